"""The cycle model by itself: what can be told without the RTL."""

import dataclasses

import numpy as np
import pytest

from golden.apt import cycles, cycles_memory, cycles_pv, cycles_softmax
from golden.apt.attend import Step, attend, quantize_head
from golden.apt.cycles import Work, ideal, predict, work_of
from golden.apt.cycles_memory import Memory
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from rtl.apt.block_scan import BlockScan
from rtl.apt.dequantizer import Dequantizer
from rtl.apt.list_builder import ListBuilder
from rtl.apt.loader import Loader
from rtl.apt.log2_fine import Log2Fine
from rtl.apt.memory_port import MemoryPort
from rtl.apt.pv_sequencer import PvSequencer
from rtl.apt.quad_array import QuadArray
from rtl.apt.rescale import Rescale
from rtl.apt.tafa import Tafa
from rtl.apt.vpu import Vpu


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
    assert cycles.pv == cycles_pv._START * tiles
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


@pytest.mark.parametrize("params", [
    SMALL, AptParams(), AptParams(multipliers=18, head_dim=72, vpu_lanes=8),
    dataclasses.replace(SMALL, lanes=8, multipliers=6, tile_k=24, vpu_lanes=32),
], ids=["tiny", "default", "18 multipliers", "odd"])
def test_constants_are_what_components_state(params):
    softmax = cycles_softmax.SoftmaxCycles(params)
    vpu, lists, rescale, tafa = (one(params) for one in (Vpu, ListBuilder, Rescale, Tafa))
    assert softmax.logits == QuadArray(params).latency + Dequantizer(params).latency
    assert cycles_softmax._STORED + cycles_softmax._POWER == vpu.latency
    assert softmax.sums == vpu.rows_latency
    # Results that have left are seen in the next cycle.
    assert cycles_softmax._ANSWER == tafa.latency == cycles_softmax._TAFA - 1
    assert cycles_softmax._TAFA_WHOLE == tafa.row_latency + 1
    assert cycles_softmax._FACTOR == rescale.latency
    assert cycles_softmax._RESCALE == cycles_softmax._WHOLE == rescale.row_latency
    assert cycles_softmax._RESCALE_LAST == rescale.final_latency + 1
    assert cycles_softmax._HEADER == 1 + lists.latency + lists.header_latency
    assert cycles_softmax._TILE_GAP == lists.tile_gap
    assert cycles_pv._START == PvSequencer(params).latency
    assert cycles._FIRST_BLOCK == BlockScan(params).latency + 1  # queue
    assert cycles._UNIT == Log2Fine(params).latency + 3  # queue, start, offer
    assert (cycles_memory._REQUEST
            == Loader(params).request_latency + MemoryPort(params).latency)


def block_rows(params, blocks, *, every, unit_v=0, last=False, count=40):
    """Ends of QK of block rows in turn, as slots allow, ``every`` so many cycles at the soonest;
    and the tile's end."""
    softmax, marks, take = cycles_softmax.SoftmaxCycles(params), [], 0
    for _ in range(count):
        take = max(take, softmax.slot()) + every
        marks.append(take + 1)
        softmax.block_row(take + 1, blocks, 4, unit_v=unit_v, last=last)
    return marks, softmax.end_tile(0)


def test_the_slowest_unit_sets_the_pace_of_block_rows():
    params = AptParams(vpu_lanes=8)

    def pace(blocks, every, **settings):
        marks, _ = block_rows(params, blocks, every=every, count=80, **settings)
        assert len(set(np.diff(marks[-8:]))) == 1
        return marks[-1] - marks[-2]
    assert pace(8, 100) == 100            # QK
    assert pace(1, 8) == 4 * 13           # running sums, a row each
    assert pace(0, 1) == 4 * 13           # also without a block
    assert pace(1, 8, last=True) == 4 * 31
    assert pace(16, 16) == 16 * 8         # lists, a key a cycle


def test_row_work_waits_for_the_scale_of_v():
    params = AptParams(vpu_lanes=8)
    soon, end = block_rows(params, 4, every=64, count=16)
    late, late_end = block_rows(params, 4, every=64, count=16, unit_v=3000)
    # Eight block rows wait for the running sums, four with P', four with S; then QK does.
    assert late == soon and end < 3000 < late_end - 16 * 4 * 13 + 13
    held, _ = block_rows(params, 4, every=64, count=20, unit_v=3000)
    assert held[:16] == soon and held[17] > 3000


def test_loads_overlap_their_latencies_and_keep_to_the_bursts_allowed():
    params = AptParams()
    layout = Layout(params, 1024)
    beats = layout.k.beats[0]
    loads = cycles_memory.LoadCycles(Memory(latency=100), params)
    first = loads.load(0, layout.k, 0, head=1)
    assert first == (105, 105 + beats - 1 + 2)
    second = loads.load(10, layout.k, 0, head=1)
    assert second == (105 + beats + 1, 105 + 2 * beats + 2)
    one = cycles_memory.LoadCycles(Memory(latency=100, bursts=1), params)
    assert one.load(0, layout.k, 0, head=1).end > 100 * beats // 64
    # Narrow words come one a cycle, however wide the beats are.
    state = cycles_memory.LoadCycles(Memory(latency=100), params)
    loaded = state.load(0, layout.state, 0)
    assert layout.state.beats[0] == 8 and loaded.end - loaded.first == pytest.approx(64 - 8 + 2,
                                                                                     abs=2)
