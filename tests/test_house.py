"""Imports run downwards only, and each floor imports no more than it may."""

import ast
import pathlib
import sys

import pytest

from gen.designs import DESIGNS
from golden.apt.params import AptParams
from verif.benches import BENCHES


ROOT = pathlib.Path(__file__).resolve().parents[1]
HOUSE = ("golden", "rtl", "gen", "verif", "fpga", "tests")

#: Which floors of the house a floor may import.
ALLOWED = {
    "golden": {"golden"},
    "rtl": {"golden", "rtl"},
    "gen": {"golden", "rtl", "gen"},
    "verif": {"golden", "rtl", "gen", "verif"},
    "fpga": {"golden", "rtl", "gen", "fpga"},
}


def modules(floor):
    return sorted((ROOT / floor).rglob("*.py"))


def imports(path):
    """Full names of what a file imports, relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[:len(package) - node.level + 1]) if node.level else ""
            yield ".".join(filter(None, [base, node.module]))


@pytest.mark.parametrize("floor", ALLOWED)
def test_imports_run_downwards(floor):
    paths = modules(floor)
    assert paths
    for path in paths:
        for name in imports(path):
            top = name.partition(".")[0]
            assert top not in HOUSE or top in ALLOWED[floor], f"{path} imports {name}"


STANDARD = sys.stdlib_module_names


@pytest.mark.parametrize("folder", ["golden/common", "golden/apt", "golden/studies"])
def test_models_import_numpy_alone(folder):
    for path in modules(folder):
        for name in imports(path):
            assert name.partition(".")[0] in STANDARD | {"numpy", "golden"}, (
                f"{path} imports {name}")
            assert not name.startswith(("golden.dit", "golden.cli")), f"{path} imports {name}"


#: Modules of golden without a model in them.
SHARED_WITH_RTL = (".params", ".checks", ".thresholds", ".quad_shape", ".serial_shape", ".layout",
                   ".job")


def test_rtl_imports_parameters_and_tables_only():
    for path in modules("rtl"):
        for name in imports(path):
            top = name.partition(".")[0]
            assert top in STANDARD | {"amaranth", "golden", "rtl"}, f"{path} imports {name}"
            if top == "golden":
                assert name.endswith(SHARED_WITH_RTL), f"{path} imports {name}"


def test_nothing_reads_the_shared_folder_or_names_a_machine():
    for floor in HOUSE:
        for path in modules(floor):
            if path == pathlib.Path(__file__).resolve():
                continue
            text = path.read_text()
            for word in ("../shared", "/work/", "/root/", "/tmp/", "/home/"):
                assert word not in text, f"{path} has {word}"


@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda design: design.name)
def test_a_block_has_one_name_on_every_floor(design):
    module = ROOT / pathlib.Path(*design.path.partition(":")[0].split(".")).with_suffix(".py")
    assert module.exists() and module.stem == design.name
    model = module.with_stem(design.model or design.name)
    assert (ROOT / "golden" / model.relative_to(ROOT / "rtl")).exists()
    assert (ROOT / "verif" / design.engine / f"bench_{design.name}.py").exists()
    assert design.name in BENCHES
    component = design.component(AptParams())
    assert type(component).__doc__ and isinstance(component.latency, int)
    assert component.throughput
    for section in ("Parameters", "Members"):
        assert f"{section}\n    ---" in type(component).__doc__, f"{design.name}: no {section}"


def test_files_stay_short():
    long = {str(path.relative_to(ROOT)): lines for floor in HOUSE for path in modules(floor)
            if (lines := len(path.read_text().splitlines())) > 400}
    assert not long
