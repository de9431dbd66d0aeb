"""Words that travel through QK of the quad dataflow.

A field that tells things apart of which there is only one has no bits.
"""

from amaranth import *
from amaranth.lib import data

from golden.common.checks import ceil_log2

from .logit_scale import MANTISSA_BITS, SHIFT_BITS


__all__ = ["LOGIT_BITS", "MANTISSA_BITS", "SHIFT_BITS", "SLOTS", "block_entry",
           "parked_sums", "qk_issue", "qk_mark", "qk_tile"]

#: Block rows that may be under way between the sequencer and the end of their softmax.
SLOTS = 4
#: Bits of a logit, Q7.8.
LOGIT_BITS = 16


def _row_block(params):
    return ceil_log2(params.row_blocks)


def _key_block(params):
    return ceil_log2(params.key_blocks)


def qk_tile(params):
    """What the block sequencer must know of a tile: how many rows and keys it has; all blocks in
    high precision; all others in low precision."""
    return data.StructLayout({
        "rows": params.row_count_bits,
        "keys": params.key_count_bits,
        "dense": 1,
        "refresh": 1,
    })


def block_entry(params):
    """A block to work on. ``begin`` and ``end`` mark the first and the last of a block row; with
    ``none``, and both of them, the block row has no block."""
    return data.StructLayout({
        "row_block": _row_block(params),
        "key_block": _key_block(params),
        "hp": 1,
        "begin": 1,
        "end": 1,
        "none": 1,
    })


def qk_issue(params):
    """A cycle of all lanes in QK: a word of K, a word of Q, and what the accumulators do.

    ``first``: they start afresh; ``shift``: they go up by a segment before they add; ``last``: the
    sums are complete, and with ``low`` go up by two segments.
    """
    chunk = ceil_log2(params.qk_chunks)
    return data.StructLayout({
        "valid": 1,
        "k": data.StructLayout({
            "key_block": _key_block(params),
            "lsb": 1,
            "step": ceil_log2(params.block_steps),
            "chunk": chunk,
        }),
        "q": data.StructLayout({"row_block": _row_block(params), "lsb": 1, "chunk": chunk}),
        "first": 1,
        "shift": 1,
        "last": 1,
        "low": 1,
    })


def qk_mark(params):
    """What sums belong to: a step of a block. ``end`` marks the last of a block row; with ``none``
    the block row has no block, and there are no sums."""
    return data.StructLayout({
        "valid": 1,
        "row_block": _row_block(params),
        "key_block": _key_block(params),
        "step": ceil_log2(params.block_steps),
        "end": 1,
        "none": 1,
    })


def parked_sums(params):
    """Sums of a step as the lanes hold them: by owner, lane and key of the lane."""
    lane = data.ArrayLayout(signed(params.logit_acc_bits), 2)
    return data.ArrayLayout(data.ArrayLayout(lane, params.owner_lanes), params.block_rows)
