"""Floorplans: each multiplier of the engine has a place of its own, other shapes have none."""

import json

import pytest

from gen.floorplan import LFE5U_85F, Floorplan


def engine_cells():
    """Names of the multipliers of the default engine, as synthesis makes them."""
    return [*(f"dut.datapath.array.owner_{owner}.lane_{lane}.pair_{pair}._0__MULT18X18D_P"
              for owner in range(4) for lane in range(4) for pair in range(8)),
            *(f"dut.datapath.output.lane_{lane}.product_MULT18X18D_P{half}"
              for lane in range(8) for half in ("", "_1")),
            *(f"dut.datapath.dequantizer.lane_{lane}.product_MULT18X18D_P{half}"
              for lane in range(4) for half in ("", "_1")),
            *(f"dut.datapath.rows.rescale.log2.product_MULT18X18D_P{half}" for half in ("", "_1")),
            "dut.datapath.controller.log2.product_MULT18X18D_P"]


def test_every_multiplier_of_the_engine_has_a_place_of_its_own():
    names = engine_cells()
    places = LFE5U_85F.places(names)
    assert list(places) == names and len(set(places.values())) == len(names) == 155
    # A lane's eight lie in two neighbouring blocks of one row.
    for owner in range(4):
        for lane in range(4):
            own = [places[name] for name in names if f".owner_{owner}.lane_{lane}." in name]
            xs = [int(place.split("/")[0].removeprefix("X")) for place in own]
            assert len({place.split("/")[1] for place in own}) == 1 and max(xs) - min(xs) <= 16


@pytest.mark.parametrize("more", ["dut.datapath.array.owner_0.lane_0.pair_8._MULT18X18D",
                                  "dut.datapath.array.owner_4.lane_0.pair_0._MULT18X18D"])
def test_another_shape_has_no_place_at_all(more):
    assert LFE5U_85F.places([*engine_cells(), more]) == {}


def test_pinning_writes_the_places_into_the_netlist(tmp_path):
    path = tmp_path / "netlist.json"
    cells = {"dut.a.one": {"type": "MULT18X18D"}, "dut.b": {"type": "TRELLIS_FF"},
             "dut.a.two": {"type": "MULT18X18D", "attributes": {"src": "x"}}}
    path.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
    assert Floorplan({r"\.a\.": ["first", "second"]}).pin(path, "top") == 2
    pinned = json.loads(path.read_text())["modules"]["top"]["cells"]
    assert pinned["dut.a.one"]["attributes"] == {"BEL": "first"}
    assert pinned["dut.a.two"]["attributes"] == {"BEL": "second", "src": "x"}
    assert pinned["dut.b"] == cells["dut.b"]
    assert Floorplan({r"\.a\.": ["first"]}).pin(path, "top") == 0
