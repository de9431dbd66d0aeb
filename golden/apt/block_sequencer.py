"""Reference of :mod:`rtl.apt.block_sequencer`: in what order QK works on the blocks of a tile.

A block is what four query rows and eight keys have in common: one flag pair of the ``block`` codec.
Each owner has one of the rows, and its lanes two keys each, so that a block takes
``params.block_steps`` *steps* of ``params.step_keys`` keys. A step goes over the channels once in
low precision and four times in high precision, ``params.qk_chunks`` cycles a time, and no faster
than its sums can be read out, a key a cycle.
"""

from typing import NamedTuple

import numpy as np

from golden.apt.quad_shape import BLOCK_KEYS, OWNERS
from golden.common.checks import ceil_div


__all__ = ["Block", "Issue", "Mark", "blocks", "code_words", "issue"]


class Block(NamedTuple):
    """A block to work on, or a block row without any (``key_block`` is None)."""

    row_block: int
    key_block: int | None
    hp: bool   #: high precision
    end: bool  #: last of its block row


class Issue(NamedTuple):
    """What all lanes do in a cycle: addresses of a word of K and of a word of Q, and what for."""

    row_block: int
    key_block: int
    step: int
    chunk: int
    k_lsb: int
    q_lsb: int
    first: int  #: the accumulators start afresh
    shift: int  #: the accumulators go up by a segment before they add
    last: int   #: the step's sums are complete
    low: int    #: low precision: the sums go up by two segments


class Mark(NamedTuple):
    """What sums belong to, in the cycle of ``last``; alone for a block row without blocks."""

    row_block: int
    key_block: int
    step: int
    end: int   #: last of the block row
    none: int  #: the block row has no blocks


def code_words(code, params):
    """Words of the port ``code``, a block row each, of a tile's flag pairs ``[flags]``."""
    pairs = np.asarray(code).reshape(params.row_blocks, params.key_blocks)
    return [sum(pair << 2 * index for index, pair in enumerate(row)) for row in pairs.tolist()]


def blocks(code, rows, keys, params, *, dense=False, refresh=False):
    """The blocks of a tile in the order of work: a generator of :class:`Block`.

    Parameters
    ----------
    code : integers ``[flags]``
        Flag pairs of the tile, see :mod:`golden.apt.mask_encoder`.
    rows, keys : :class:`int`
        Rows and keys that the tile has. Blocks without any of them are left out.
    dense, refresh : :class:`bool`
        All blocks are in high precision; all that are not are in low precision.
    """
    pairs = np.asarray(code).reshape(params.row_blocks, params.key_blocks)
    for row_block in range(ceil_div(rows, OWNERS)):
        found = []
        for key_block in range(ceil_div(keys, BLOCK_KEYS)):
            pair = int(pairs[row_block, key_block])
            if dense or refresh or pair:
                found.append((key_block, bool(dense or pair & 1)))
        if not found:
            yield Block(row_block, None, False, True)
        for index, (key_block, hp) in enumerate(found):
            yield Block(row_block, key_block, hp, index == len(found) - 1)


def issue(code, rows, keys, params, *, dense=False, refresh=False):
    """The cycles of a tile, when there is always a slot: pairs of :class:`Issue`, :class:`Mark`.

    Either is None where there is none in this cycle. Parameters are those of :func:`blocks`.
    """
    for block in blocks(code, rows, keys, params, dense=dense, refresh=refresh):
        if block.key_block is None:
            yield None, Mark(block.row_block, 0, 0, 1, 1)
            continue
        passes = [(0, 0), (1, 0), (0, 1), (1, 1)] if block.hp else [(0, 0)]
        for step in range(params.block_steps):
            # The sums of the step before are still being read out.
            for _ in range(params.step_keys - len(passes) * params.qk_chunks):
                yield None, None
            for k_lsb, q_lsb in passes:
                for chunk in range(params.qk_chunks):
                    first = chunk == 0 and not (k_lsb or q_lsb)
                    shift = chunk == 0 and k_lsb
                    last = chunk == params.qk_chunks - 1 and (k_lsb, q_lsb) == passes[-1]
                    end = block.end and step == params.block_steps - 1
                    yield (Issue(block.row_block, block.key_block, step, chunk, k_lsb, q_lsb,
                                 int(first), int(shift), int(last), int(not block.hp)),
                           Mark(block.row_block, block.key_block, step, int(end), 0)
                           if last else None)
