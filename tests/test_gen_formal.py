"""``python -m gen formal``: proofs that can fail, faults that are really seeded, honest errors."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
from amaranth import *

from gen.formal import load_proofs, runs_of
from gen.proofs import Fault, Proof, Spec, faulty_class


ROOT = pathlib.Path(__file__).resolve().parents[1]
PROOFS = load_proofs()


class ToySpec(Spec):
    properties = ("holds", "never_three")
    covers = ("stalled", "impossible")

    def specify(self, m):
        for name, signal in (("i_valid", self.dut.i.valid), ("i_payload", self.dut.i.payload),
                             ("o_ready", self.dut.o.ready)):
            m.d.comb += signal.eq(self.free(Signal.like(signal, name=name)))
        self.check_holds(m, "holds", self.dut.o)
        with m.If(self.dut.o.valid):
            self.check(m, "never_three", self.dut.o.payload != 3)
        self.cover(m, "stalled", self.dut.o.valid & ~self.dut.o.ready)
        self.cover(m, "impossible", self.dut.o.valid & ~self.dut.o.valid)


TOY = Proof(name="toy", component="tests.formal_toy:Toy", build=lambda cls: cls(), spec=ToySpec,
            depth=5, cover_depth=5, inductive=("holds",), induction_depth=2, faults=(
                Fault("holds", "self.i.ready.eq(~self.o.valid | self.o.ready)",
                      "self.i.ready.eq(1)"),
                Fault("holds", "self.o.payload.eq(self.i.payload)", "self.o.payload.eq(0)")))


def test_each_kind_of_outcome(tmp_path):
    bmc, prove, cover, caught, missed = [run() for run in runs_of(TOY, tmp_path)]
    assert (bmc.mode, bmc.result, bmc.passed) == ("bmc", "fails", False)  # three can come
    assert (prove.mode, prove.result, prove.passed) == ("prove", "holds", True)
    assert (cover.mode, cover.passed) == ("cover", False) and cover.result != "reached"
    assert (caught.result, caught.passed) == ("caught", True)
    assert (missed.result, missed.passed) == ("missed", False)
    assert missed.what == "fault against holds"


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_every_property_and_cover_is_stated(proof, monkeypatch):
    stated = {"check": [], "cover": []}
    for kind in stated:
        original = getattr(Spec, kind)

        def record(self, m, name, condition, kind=kind, original=original):
            stated[kind].append(name)
            original(self, m, name, condition)
        monkeypatch.setattr(Spec, kind, record)
    spec = proof.spec(proof.build(faulty_class(proof.component)))
    spec.module()
    assert set(stated["check"]) == set(spec.properties) and spec.properties
    assert set(stated["cover"]) == set(spec.covers) and spec.covers
    assert len(spec.ports) > 1


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_every_fault_changes_the_source(proof):
    assert proof.faults
    for fault in proof.faults:
        assert fault.old != fault.new
        changed = faulty_class(proof.component, fault)
        assert changed is not faulty_class(proof.component)
        assert changed.__name__ == proof.component.partition(":")[2]


def test_control_blocks_are_covered():
    components = {proof.component.partition(":")[2] for proof in PROOFS.values()}
    assert {"AddressTranslator", "MaskEncoder", "MaskDecoder"} <= components


def test_a_fault_whose_text_is_gone_is_an_error():
    with pytest.raises(ValueError, match=r"^Fault must replace text that occurs once in "
                                         r"tests\.formal_toy, but 'nowhere' occurs 0 times$"):
        faulty_class("tests.formal_toy:Toy", Fault("holds", "nowhere", ""))


def test_a_proof_names_properties_that_exist():
    with pytest.raises(ValueError, match=r"^Proof 'toy': property must be one of .*, not 'no'$"):
        dataclasses.replace(TOY, inductive=("no",))


def formal(*arguments):
    done = subprocess.run([sys.executable, "-m", "gen", "formal", *arguments], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return done.returncode, done.stdout, done.stderr


def test_an_unknown_proof_is_one_line():
    status, out, err = formal("nope")
    assert (status, out) == (2, "")
    assert err == (f"gen: error: unknown proof 'nope'; the proofs are {', '.join(PROOFS)}\n")


def test_the_report_of_a_proof(tmp_path):
    status, out, _ = formal("mask_gather", "--no-faults", "--json", str(tmp_path / "f.json"),
                            "-o", str(tmp_path / "formal"))
    outcomes = json.loads((tmp_path / "f.json").read_text())["outcomes"]
    assert status == 0 and "3 of 3 runs came out as they must" in out
    assert [outcome["mode"] for outcome in outcomes] == ["bmc", "prove", "cover"]
    assert all(outcome["passed"] for outcome in outcomes)
