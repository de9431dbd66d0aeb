"""Words that travel from the logits to the lists (quad dataflow).

A field that tells things apart has at least one bit.
"""

from amaranth import *
from amaranth.lib import data

from golden.common.checks import ceil_log2

from .pv_words import row_block_bits
from .qk_words import LOGIT_BITS


__all__ = ["LOGIT_BITS", "code_row", "element", "key_block_bits", "list_entries", "list_header",
           "logit_word", "part_bits", "probability_word", "row_block_bits", "row_word"]


def key_block_bits(params):
    """Bits of a key block's number in its tile, at least one."""
    return max(1, ceil_log2(params.key_blocks))


def element():
    """A logit, and whether it was computed."""
    return data.StructLayout({"z": signed(LOGIT_BITS), "computed": 1})


def part_bits(params):
    """Bits of a number of a word within its block, at least one."""
    return max(1, ceil_log2(params.block_cols // params.slice_keys))


def logit_word(params):
    """Logits of the four rows of a block row for one key. ``end`` marks the last key of a block
    row; with ``none`` the block row has no block, and the word no logits."""
    return data.StructLayout({
        "row_block": row_block_bits(params), "key": params.key_bits,
        "z": data.ArrayLayout(signed(LOGIT_BITS), params.block_rows), "end": 1, "none": 1})


def probability_word(params):
    """P' of the four rows for ``slice_keys`` keys of a block, or an empty block row."""
    return data.StructLayout({
        "key_block": key_block_bits(params), "part": part_bits(params),
        "p": data.ArrayLayout(data.ArrayLayout(16, params.slice_keys), params.block_rows),
        "end": 1, "none": 1})


def row_word(params):
    """Maximum and sum of the four rows of a block row."""
    return data.StructLayout({
        "row_block": row_block_bits(params),
        "maximum": data.ArrayLayout(signed(LOGIT_BITS), params.block_rows),
        "total": data.ArrayLayout(params.total_bits, params.block_rows)})


def list_entries(params):
    """Entries of up to four rows of a block row, for the same key."""
    entry = data.StructLayout({
        "valid": 1, "position": params.key_bits, "key": params.key_bits,
        "high": params.segment_bits - 1, "low": signed(params.segment_bits)})
    return data.StructLayout({"row_block": row_block_bits(params),
                              "rows": data.ArrayLayout(entry, params.block_rows)})


def list_header(params):
    """Numbers of entries of the four rows, and of those in high precision."""
    counts = data.ArrayLayout(params.key_count_bits, params.block_rows)
    return data.StructLayout({"row_block": row_block_bits(params), "n_valid": counts,
                              "n_hp": counts})


def code_row(params):
    """Flag pairs of a block row: bit ``2k`` is the HP flag of key block ``k``, the next its V."""
    return data.StructLayout({"row_block": row_block_bits(params),
                              "pairs": 2 * params.key_blocks})
