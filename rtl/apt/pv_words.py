"""Shapes that the blocks of PV share (quad dataflow)."""

from amaranth import *
from amaranth.lib import data

from golden.apt.quad_shape import OWNERS
from golden.common.checks import ceil_div, ceil_log2


__all__ = ["OWNERS", "RING_SLOTS", "RUNS_AHEAD", "header_shape", "list_entry",
           "o_row_words", "o_word", "row_block_bits", "row_done", "run_sums", "run_tag",
           "sums_address"]

#: Rows of an owner whose tile sums may exist at once: one grows while another waits or is read.
RING_SLOTS = 2
#: Runs of an owner that may be under way from their last element to the flush bus; each has a
#: register of its own, in the lanes and in front of the bus.
RUNS_AHEAD = 2


def row_block_bits(params):
    """Bits of an owner's row within a tile, at least one."""
    return max(1, ceil_log2(params.row_blocks))


def _pass_bits(params):
    return max(1, ceil_log2(params.column_passes))


def list_entry(params):
    """An element of a row: its key and the two segments of its P; P_H is never negative."""
    return data.StructLayout({"key": params.key_bits, "high": params.segment_bits - 1,
                              "low": signed(params.segment_bits)})


def header_shape(params):
    """Elements of a row, and those in high precision."""
    return data.StructLayout({"n_valid": params.key_count_bits, "n_hp": params.key_count_bits})


def run_tag(params):
    """What goes with the sums of a run.

    ``shift`` is the level in segments (HH 2, MID 1, LL 0), ``row_first`` marks the first run of a
    row's column pass, ``row_last`` the last run of a row; ``buffer`` is the tile's parity.
    """
    return data.StructLayout({"buffer": 1, "row_block": row_block_bits(params),
                              "pass_": _pass_bits(params), "shift": 2,
                              "row_first": 1, "row_last": 1})


def run_sums(params):
    """Sums of a run, lane by lane; ``valid`` for one cycle, the sums stay until the next. ``soon``
    says that they will be ``valid`` in the next cycle."""
    return data.StructLayout({
        "soon": 1, "valid": 1, "tag": run_tag(params),
        "sums": data.ArrayLayout(
            data.ArrayLayout(signed(params.run_bits), params.multipliers), params.owner_lanes),
    })


def row_done(params):
    """A row whose tile sums are complete, and the slot of its owner's ring that they are in."""
    return data.StructLayout({"buffer": 1, "row_block": row_block_bits(params),
                              "slot": ceil_log2(RING_SLOTS)})


def sums_address(params):
    """Where ``multipliers`` tile sums lie; ``word`` of them begin at column
    ``word * multipliers``."""
    return data.StructLayout({
        "word": max(1, ceil_log2(params.column_passes * params.owner_lanes)),
        "slot": ceil_log2(RING_SLOTS), "owner": ceil_log2(OWNERS)})


def o_row_words(params):
    """Words of ``multipliers / 2`` values in a row of O."""
    return ceil_div(params.head_dim, params.multipliers // 2)


def o_word(params):
    """Output values, of which ``keep`` count; ``last`` of a query tile."""
    width = params.multipliers // 2
    return data.StructLayout({"values": data.ArrayLayout(signed(16), width),
                              "keep": ceil_log2(width + 1), "last": 1})
