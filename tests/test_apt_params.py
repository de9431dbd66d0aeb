"""The parameter object: ranges, messages, and derived widths that hold the worst case."""

import dataclasses
import itertools

import pytest

from gen.presets import APT_PRESETS
from golden.apt.params import AptParams


@pytest.mark.parametrize("field, value, error, message", [
    ("lanes", 1, ValueError, "AptParams.lanes must be in 2..64, not 1"),
    ("lanes", 65, ValueError, "AptParams.lanes must be in 2..64, not 65"),
    ("lanes", "4", TypeError, "AptParams.lanes must be an integer, not '4'"),
    ("lanes", True, TypeError, "AptParams.lanes must be an integer, not True"),
    ("lanes", 4.0, TypeError, "AptParams.lanes must be an integer, not 4.0"),
    ("multipliers", 0, ValueError, "AptParams.multipliers must be in 1..64, not 0"),
    ("head_dim", 257, ValueError, "AptParams.head_dim must be in 1..256, not 257"),
    ("tile_q", 1, ValueError, "AptParams.tile_q must be in 2..256, not 1"),
    ("tile_k", 513, ValueError, "AptParams.tile_k must be in 2..512, not 513"),
    ("tile_k", 8, ValueError, "AptParams.tile_k must be at least AptParams.lanes (16), not 8"),
    ("segment_bits", 2, ValueError, "AptParams.segment_bits must be in 3..8, not 2"),
    ("split", "x", ValueError, "AptParams.split must be truncate or balanced, not 'x'"),
    ("codec", None, ValueError, "AptParams.codec must be rowcol or block, not None"),
    ("placement", "hash", ValueError,
     "AptParams.placement must be modulo or balanced or correlated, not 'hash'"),
    ("window_qk", 65, ValueError, "AptParams.window_qk must be in 1..64, not 65"),
    ("beat_bytes", 0, ValueError, "AptParams.beat_bytes must be in 1..64, not 0"),
    ("beat_bytes", 65, ValueError, "AptParams.beat_bytes must be in 1..64, not 65"),
    ("block_rows", 0, ValueError, "AptParams.block_rows must be in 1..256, not 0"),
])
def test_bad_fields(field, value, error, message):
    with pytest.raises(error) as caught:
        dataclasses.replace(AptParams(), **{field: value})
    assert str(caught.value) == message


def test_it_is_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AptParams().lanes = 3
    with pytest.raises(TypeError):
        AptParams(16)


SHAPES = [dict(zip(("segment_bits", "split", "head_dim", "tile_k"), values, strict=True))
          for values in itertools.product((3, 6, 8), ("truncate", "balanced"), (7, 72, 128),
                                          (16, 100))]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_accumulator_holds_the_worst_case_and_is_no_wider(shape):
    params = AptParams(**shape)
    words = range(-params.qmax, params.qmax + 1)
    step, half = 1 << params.segment_bits, 1 << (params.segment_bits - 1)
    high = [(word + (half if params.split == "balanced" else 0)) // step for word in words]
    assert (min(high), max(high)) == params.msb_range
    low = [word - step * top for word, top in zip(words, high, strict=True)]
    assert (min(low), max(low)) == params.lsb_range
    largest = max(params.qmax ** 2, max(top * top for top in high) * step * step)
    worst = max(params.head_dim, params.tile_k) * largest
    assert worst <= (1 << (params.acc_bits - 1)) - 1
    assert worst > (1 << (params.acc_bits - 2)) - 1


def test_published_widths():
    """The figures that the numerics give: QK at d = 128, qmax, segment ranges."""
    wide = dict(head_dim=128, tile_k=128)
    assert AptParams(split="truncate", **wide).acc_bits == 31
    assert AptParams(split="balanced", **wide).acc_bits == 30
    assert (AptParams(split="truncate").qmax, AptParams(split="balanced").qmax) == (2047, 2015)
    assert AptParams(split="balanced").msb_range == (-31, 31)
    assert AptParams(split="balanced").lsb_range == (-32, 31)


@pytest.mark.parametrize("lanes, tile_k, slots, slot_bits", [
    (16, 128, 8, 3), (16, 16, 1, 1), (3, 10, 4, 2), (5, 128, 26, 5), (12, 100, 9, 4)])
def test_slots(lanes, tile_k, slots, slot_bits):
    params = AptParams(lanes=lanes, tile_k=tile_k)
    assert (params.slots, params.slot_bits) == (slots, slot_bits)


def test_presets_are_distinct_and_keep_the_papers_figures():
    assert len(set(APT_PRESETS.values())) == len(APT_PRESETS)
    paper = APT_PRESETS["paper"]
    assert (paper.lanes, paper.multipliers, paper.split, paper.codec, paper.placement) == (
        16, 16, "truncate", "rowcol", "modulo")
