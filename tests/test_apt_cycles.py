"""The cycle model by itself: what can be told without the RTL."""

import dataclasses

import numpy as np
import pytest

from golden.apt.attend import Step, attend, quantize_head
from golden.apt.cycles import Work, ideal, predict, work_of
from golden.apt.cycles_memory import Memory
from golden.apt.layout import Layout
from golden.apt.params import AptParams


SMALL = AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                  placement="modulo")


def uniform(params, queries, keys, *, hp_blocks, lp_blocks, valid, hp):
    """Tiles that all ask the same of the array."""
    layout = Layout(params, keys, queries)
    blocks, rows = params.row_blocks, params.tile_q
    work = [[Work(np.full(blocks, hp_blocks), np.full(blocks, lp_blocks), np.full(rows, valid),
                  np.full(rows, hp), inside, inside_keys) for inside_keys in layout.tile_keys]
            for inside in layout.tile_rows]
    return work, layout


def test_a_dense_head_takes_little_more_than_its_products():
    params = AptParams(vpu_lanes=8)
    work, layout = uniform(params, 128, 1024, hp_blocks=16, lp_blocks=0, valid=128, hp=128)
    cycles = predict(work, layout, dense=True, has_state=False)
    qk, pv = ideal(work, params)
    assert (qk, pv) == (131072, 131072)
    assert qk < cycles.qk < 1.001 * qk and pv < cycles.pv < 1.001 * pv
    assert cycles.qk + cycles.pv < cycles.total < 1.02 * (qk + pv)


def test_empty_tiles_take_their_overheads():
    work, layout = uniform(SMALL, 64, 64, hp_blocks=0, lp_blocks=0, valid=0, hp=0)
    cycles = predict(work, layout, dense=False, has_state=True)
    tiles = layout.query_tiles * layout.key_tiles
    assert cycles.pv == 7 * tiles  # the start alone
    assert cycles.qk >= 9 * tiles  # start, and a cycle a block row
    # Loads and the row work are all that is left.
    assert cycles.total >= tiles * (sum(panel.beats[0] for panel in (layout.k, layout.v)))


def test_slow_memory_and_more_work_take_longer():
    work, layout = uniform(SMALL, 48, 48, hp_blocks=1, lp_blocks=1, valid=9, hp=3)
    fast = predict(work, layout, dense=False, has_state=True)
    late, slow = (predict(work, layout, dense=False, has_state=True, memory=memory)
                  for memory in (Memory(latency=500), Memory(beats_a_cycle=0.02)))
    assert late.total > fast.total and slow.total > 1.5 * fast.total
    more, _ = uniform(SMALL, 48, 48, hp_blocks=2, lp_blocks=0, valid=9, hp=3)
    assert predict(more, layout, dense=False, has_state=True).qk > fast.qk
    longer, _ = uniform(SMALL, 48, 48, hp_blocks=1, lp_blocks=1, valid=12, hp=3)
    assert predict(longer, layout, dense=False, has_state=True).pv > fast.pv


@pytest.mark.parametrize("params", [SMALL, dataclasses.replace(
    SMALL, lanes=8, head_dim=20, tile_q=12, tile_k=24, vpu_lanes=8)], ids=["tiny", "odd"])
def test_work_counts_what_the_masks_leave(params):
    rng = np.random.default_rng(3)
    layout = Layout(params, 50, 29)
    codes = [rng.integers(-30000, 30001, (count, params.head_dim)) for count in (29, 50, 50)]
    head = quantize_head(*codes, 12, 12, params)
    dense = attend(head, Step(dense=True), None, params, keep_tiles=True)
    work = work_of(dense.tiles, layout, dense=True)
    assert sum(int(tile.hp.sum()) for row in work for tile in row) == 29 * 50
    masked = attend(head, Step(codes=(9000, 12000)), dense.state, params, keep_tiles=True)
    work = work_of(masked.tiles, layout, dense=False)
    for row, tiles in zip(work, masked.tiles, strict=True):
        for one, tile in zip(row, tiles, strict=True):
            assert (one.valid == (tile.new_hp | tile.new_lp).sum(1)).all()
            blocks = sum((tile.hp | tile.lp)[4 * b:4 * b + 4, 8 * k:8 * k + 8].any()
                         for b in range(params.row_blocks) for k in range(params.key_blocks))
            assert one.hp_blocks.sum() + one.lp_blocks.sum() == blocks
    qk, pv = ideal(work, params)
    assert qk > 0 and pv > 0
