"""The bench runner: payloads, parameter matrices, reports, and errors in one line."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from amaranth import signed
from amaranth.lib import data, enum

import verif.runner
from gen.designs import DESIGNS
from gen.presets import APT_PRESETS
from gen.verilog import shape_layout
from golden.apt.params import AptParams
from golden.common.errors import UserError
from verif.__main__ import _junit
from verif.benches import BENCHES
from verif.common.payload import pack, unpack
from verif.runner import BenchResult, _read_results, build_root, require_simulator


ROOT = pathlib.Path(__file__).resolve().parents[1]


class _Pass(enum.Enum, shape=2):
    HH = 0
    LL = 3


LAYOUT = shape_layout(data.StructLayout({
    "a": data.ArrayLayout(signed(5), 3), "kind": _Pass, "flag": 1, "big": 40}))


def test_pack_places_fields_as_the_layout_says():
    value = {"a": [-1, 15, -16], "kind": "LL", "flag": 1, "big": (1 << 40) - 2}
    bits = pack(LAYOUT, value)
    assert bits == (0b11111 | 0b01111 << 5 | 0b10000 << 10 | 3 << 15 | 1 << 17
                    | ((1 << 40) - 2) << 18)
    assert unpack(LAYOUT, bits) == {**value, "kind": 3}


@pytest.mark.parametrize("change, message", [
    ({"a": [0, 0]}, r"^Array must have 3 elements, not 2$"),
    ({"a": [0, 0, 16]}, r"^Value must be in -16\.\.15, not 16$"),
    ({"flag": 2}, r"^Value must be in 0\.\.1, not 2$"),
    ({"more": 1}, r"^Fields must be \['a', 'big', 'flag', 'kind'\], not "),
])
def test_pack_never_wraps(change, message):
    value = {"a": [0, 0, 0], "kind": 0, "flag": 0, "big": 0, **change}
    with pytest.raises(ValueError, match=message):
        pack(LAYOUT, value)


#: Fields whose values change what a block builds, by bench.
MATRIX = {
    "bank_memory": {"lanes", "multipliers", "head_dim", "tile_k", "segment_bits"},
    "quantizer": {"vpu_lanes", "split", "segment_bits"},
    "data_aligner": {"vpu_lanes", "segment_bits", "beat_bytes"},
    "mask_generator": {"vpu_lanes", "tile_k"},
    "mask_encoder": {"vpu_lanes", "tile_q", "tile_k", "codec"},
    "mask_decoder": {"lanes", "tile_q", "tile_k", "codec"},
    "address_translator": {"lanes", "tile_q", "tile_k", "placement", "window_qk"},
    "dp_mac": {"multipliers", "split", "segment_bits"},
    "vpu": {"tile_q", "tile_k", "exp2"},
    "tafa": {"tile_q", "tile_k", "exp2"},
    "list_builder": {"tile_q", "tile_k", "segment_bits"},
    "rescale": {"tile_q", "tile_k", "segment_bits"},
    "sd_mpu": {"multipliers", "head_dim", "tile_q", "tile_k", "exp2", "multiplier_style"},
}


@pytest.mark.parametrize("bench", BENCHES)
def test_each_bench_runs_off_the_defaults(bench):
    assert set(BENCHES) == set(DESIGNS) == set(MATRIX)
    rows = [dataclasses.replace(AptParams(), **overrides) for overrides in BENCHES[bench]]
    assert rows[0] == AptParams() or DESIGNS[bench].whole
    for field in MATRIX[bench]:
        values = {getattr(params, field) for params in rows}
        assert len(values) >= 2, f"{bench} never changes {field}"
        numbers = [value for value in values if isinstance(value, int)]
        assert not numbers or any(value & (value - 1) for value in numbers), (
            f"{bench} has only powers of two for {field}")


RESULTS = """\
<testsuites><testsuite name="all">
<testcase name="good" time="0.5" />
<testcase name="bad" time="0.1"><failure error_msg="o[3]: 1 instead of 2" /></testcase>
<testcase name="left" time="0.0"><skipped /></testcase>
</testsuite></testsuites>
"""


def test_results_are_read_and_a_skipped_test_is_no_pass(tmp_path):
    (tmp_path / "results.xml").write_text(RESULTS)
    result = BenchResult("dp_mac", "verilator", {"lanes": 3}, tmp_path)
    _read_results(tmp_path / "results.xml", result)
    assert [failure for *_, failure in result.tests] == [None, "o[3]: 1 instead of 2", "skipped"]
    assert not result.passed
    suite = ElementTree.fromstring(_junit([result])).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    assert suite.findall("testcase")[1].find("failure").get("message") == "o[3]: 1 instead of 2"


def test_a_bench_without_tests_fails(tmp_path):
    (tmp_path / "results.xml").write_text("<testsuites><testsuite/></testsuites>")
    result = BenchResult("dp_mac", "verilator", {}, tmp_path)
    _read_results(tmp_path / "results.xml", result)
    assert result.failure == "the bench ran no test" and not result.passed


@pytest.mark.parametrize("simulator, missing, message", [
    ("icarus", "iverilog", ("Icarus Verilog is not installed (no iverilog on PATH); install it, "
                            "or use --simulator verilator")),
    ("verilator", "perl", "Verilator needs perl, which is not on PATH"),
    ("verilator", "g++", "Verilator needs g++, which is not on PATH"),
], ids=["icarus", "perl", "g++"])
def test_a_missing_simulator_is_one_line(simulator, missing, message, monkeypatch):
    which = verif.runner.shutil.which
    monkeypatch.setattr(verif.runner.shutil, "which",
                        lambda tool: None if tool == missing else which(tool) or "somewhere")
    monkeypatch.setattr(verif.runner, "_verilator_bin", lambda: _Here())
    with pytest.raises(UserError, match="^" + re.escape(message) + "$"):
        require_simulator(simulator)


class _Here:
    """A folder in which everything exists."""

    def __truediv__(self, name):
        return self

    def exists(self):
        return True


def test_builds_leave_a_path_with_a_space(tmp_path, monkeypatch):
    spaced = tmp_path / "a b"
    spaced.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(spaced)
    assert " " not in str(build_root()) and build_root().is_relative_to(tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    assert build_root() == tmp_path / "build" / "verif"


@pytest.mark.parametrize("arguments, message", [
    (["nope"], "unknown bench 'nope'; the benches are " + ", ".join(BENCHES)),
    (["dp_mac", "--set", "split=odd"], "AptParams.split must be truncate or balanced, not 'odd'"),
    (["--simulator", "nope"],
     "Invalid value for '--simulator': 'nope' is not one of 'verilator', 'icarus'."),
    (["--seed", "-1"], "Invalid value for '--seed': -1 is not in the range 0<=x<=2147483647."),
    (["--preset", "nope"],
     f"unknown preset 'nope'; the presets are {', '.join(APT_PRESETS)}"),
    (["sd_mpu", "--calibration", "nope.json"],
     "cannot use nope.json: No such file or directory"),
    (["dp_mac", "--calibration", "nope.json"],
     ("--calibration is for the real heads of sd_mpu, which run in Verilator on parameters that it "
      "fits")),
    (["sd_mpu", "--calibration", "pyproject.toml"],
     "pyproject.toml must be a calibration file: Expecting value: line 1 column 2 (char 1)"),
])
def test_bad_input_is_one_line_and_status_2(arguments, message):
    done = subprocess.run([sys.executable, "-m", "verif", *arguments], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"verif: error: {message}\n"
