"""Element masks of attention tiles: bool arrays ``[..., rows, keys]``, and words of them."""

import numpy as np

from golden.common.checks import ceil_div


__all__ = ["as_mask", "pack_mask_words", "unpack_mask_words"]


def as_mask(mask):
    """The mask as a bool array.

    Raises :class:`TypeError` for anything but booleans and integers and :class:`ValueError` for
    an integer other than 0 and 1.
    """
    mask = np.asarray(mask)
    if mask.dtype.kind == "b":
        return mask
    if mask.dtype.kind not in "iu":
        raise TypeError(f"Mask must have a boolean or integer dtype, not {mask.dtype}")
    if mask.size and (mask.min() < 0 or mask.max() > 1):
        worst = mask.max() if mask.max() > 1 else mask.min()
        raise ValueError(f"Mask must consist of 0 and 1, not {int(worst)}")
    return mask.astype(bool)


def pack_mask_words(mask, width):
    """Words of ``width`` elements (1 to 64), as the hardware's streams carry a row.

    Bit ``i`` of word ``w`` is key ``w * width + i``; a row's last word is padded with zeros.
    Returns uint64 of shape ``[..., rows, words]``.
    """
    mask = as_mask(mask)
    keys = mask.shape[-1]
    words = ceil_div(keys, width)
    padded = np.zeros((*mask.shape[:-1], words * width), dtype=bool)
    padded[..., :keys] = mask
    padded = padded.reshape(*mask.shape[:-1], words, width)
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    return (padded * weights).sum(axis=-1, dtype=np.uint64)


def unpack_mask_words(words, keys, width):
    """The inverse of :func:`pack_mask_words`: ``[..., rows, keys]``, padding dropped."""
    words = np.asarray(words)
    if words.dtype.kind not in "iu":
        raise TypeError(f"Words must have an integer dtype, not {words.dtype}")
    bits = words.astype(np.uint64)[..., None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
    return bits.astype(bool).reshape(*words.shape[:-1], -1)[..., :keys]
