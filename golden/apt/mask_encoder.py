"""Reference of :mod:`rtl.apt.mask_encoder`: compressed tile masks and their memory image.

The planes that are compressed are HP and V = HP | LP. A *flag pair* says of a group of elements
whether their count in each plane exceeds that plane's threshold: bit 0 for HP, bit 1 for V. The
groups are

- codec ``rowcol`` (APT 4.3): each row of the tile, then each column: RM and CM;
- codec ``block``: each block of ``block_rows`` x ``block_cols`` elements, block row by block row.
  Blocks at the far edges of a tile may be short.

A code is an array of ``params.flags`` pairs in that order. Its image in memory is
``params.code_words`` words of 16 bits: a section (RM; CM or the blocks) is packed eight pairs to
a word, pair ``n`` of the section in bits ``2n`` and ``2n + 1`` of the little endian string, and
filled up with zeros to a whole word. So the two planes travel together, a section has no other
gap, and row flags come first, as they are the first to be known.
"""

import numpy as np

from golden.apt.masks import as_mask
from golden.apt.params import CODE_BITS
from golden.apt.thresholds import check_thresholds
from golden.common.checks import ceil_div


__all__ = ["check_code", "count", "encode", "pack_code", "unpack_code"]

_PAIRS = CODE_BITS // 2


def _plane_counts(plane, params):
    rows, cols = params.flag_block
    bits = plane.view(np.uint8)
    by_row = np.add.reduceat(bits, np.arange(0, params.tile_q, rows), axis=-2, dtype=np.uint16)
    if cols == 1:
        return by_row.astype(np.int32)
    return np.add.reduceat(by_row, np.arange(0, params.tile_k, cols), axis=-1, dtype=np.int32)


def count(hp, lp, params):
    """Set elements of each group in plane HP and in plane V = HP | LP.

    ``hp`` and ``lp`` are masks of whole tiles ``[..., tile_q, tile_k]``. Returns int32 counts
    ``[..., params.flags, 2]`` in the order of the code: what a sweep over thresholds needs.
    """
    hp, lp = as_mask(hp), as_mask(lp)
    shape = (params.tile_q, params.tile_k)
    for name, mask in (("HP", hp), ("LP", lp)):
        if mask.shape[-2:] != shape or mask.shape != hp.shape:
            raise ValueError(f"{name} mask must have the shape [..., {shape[0]}, {shape[1]}] "
                             f"of both masks, not {list(mask.shape)}")
    batch = hp.shape[:-2]
    counts = np.empty((*batch, params.flags, 2), dtype=np.int32)
    for index, plane in enumerate((np.ascontiguousarray(hp), hp | lp)):
        if params.row_flags:
            counts[..., :params.row_flags, index] = plane.view(np.uint8).sum(-1, dtype=np.int32)
        counts[..., params.row_flags:, index] = _plane_counts(plane, params).reshape(*batch, -1)
    return counts


def encode(hp, lp, thresholds, params):
    """The code of a tile's masks, or of a batch of them: flag pairs, uint8 ``[..., flags]``.

    A flag is set where the group's count *exceeds* the threshold. ``thresholds`` is a
    :class:`~golden.apt.thresholds.RowColThresholds` or a
    :class:`~golden.apt.thresholds.BlockThresholds`, as the codec asks.
    """
    thresholds = check_thresholds(thresholds, params)
    counts = count(hp, lp, params)
    limit = np.empty((params.flags, 2), dtype=np.int32)
    limit[params.row_flags:] = thresholds[-2:]
    limit[:params.row_flags] = thresholds[:2]
    flags = counts > limit
    return flags[..., 0] | flags[..., 1].astype(np.uint8) << 1


def check_code(code, params):
    """The code as a uint8 array of flag pairs; :class:`TypeError` or :class:`ValueError`."""
    code = np.asarray(code)
    if code.dtype.kind not in "iu":
        raise TypeError(f"Code must have an integer dtype, not {code.dtype}")
    if code.shape[-1:] != (params.flags,):
        raise ValueError(f"Code must have {params.flags} flag pairs, not {code.shape[-1:]}")
    if code.size and not (code.min() >= 0 and code.max() <= 3):
        worst = code.max() if code.max() > 3 else code.min()
        raise ValueError(f"Code must consist of flag pairs 0..3, not {int(worst)}")
    return code.astype(np.uint8, copy=False)


def pack_code(code, params):
    """The memory image of a code: uint16 ``[..., code_words]``."""
    code = check_code(code, params)
    sections = []
    for section in (code[..., :params.row_flags], code[..., params.row_flags:]):
        words = ceil_div(section.shape[-1], _PAIRS)
        pairs = np.zeros((*code.shape[:-1], words * _PAIRS), np.uint16)
        pairs[..., :section.shape[-1]] = section
        pairs = pairs.reshape(*code.shape[:-1], words, _PAIRS)
        sections.append((pairs << np.arange(0, CODE_BITS, 2, dtype=np.uint16)).sum(
            axis=-1, dtype=np.uint16))
    return np.concatenate(sections, axis=-1)


def unpack_code(words, params):
    """The code of a memory image: the inverse of :func:`pack_code`; fill bits are ignored."""
    words = np.asarray(words)
    if words.dtype.kind not in "iu":
        raise TypeError(f"Words must have an integer dtype, not {words.dtype}")
    if words.shape[-1:] != (params.code_words,):
        raise ValueError(f"Image must have {params.code_words} words, not {words.shape[-1:]}")
    if words.size and not (words.min() >= 0 and words.max() < 1 << CODE_BITS):
        raise ValueError(f"Words must be in 0..{(1 << CODE_BITS) - 1}")
    pairs = words.astype(np.uint16)[..., None] >> np.arange(0, CODE_BITS, 2, dtype=np.uint16) & 3
    pairs = pairs.astype(np.uint8).reshape(*words.shape[:-1], -1)
    first = params.row_code_words * _PAIRS
    return np.concatenate([pairs[..., :params.row_flags],
                           pairs[..., first:first + params.flags - params.row_flags]], axis=-1)
