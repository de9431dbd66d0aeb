"""Stimulus for the blocks that carry Q, K and V: stream words, real tiles, hard tiles."""

import numpy as np

from golden.apt.params import SCALE_BITS
from golden.dit.tiles import load_tiles


__all__ = ["hard_tensors", "real_tensors", "row_words"]


def row_words(tensor, lanes, fill=0):
    """Words of ``lanes`` elements, row by row; ``fill`` pads each row's last word.

    ``fill`` is a number, or as many as there are elements of padding in all.
    """
    tensor = np.asarray(tensor)
    rows, dim = tensor.shape
    width = -(-dim // lanes) * lanes
    padded = np.empty((rows, width), dtype=np.int64)
    padded[:, :dim] = tensor
    padded[:, dim:] = np.reshape(fill, (rows, -1)) if np.ndim(fill) else fill
    return padded.reshape(-1, lanes).tolist()


def real_tensors(params, count):
    """Q, K and V of committed tiles in turn, 16-bit codes ``[rows, head_dim]``."""
    tensors = []
    for tile in load_tiles():
        tile = tile.crop(params.tile_q, params.tile_k, params.head_dim)
        tensors += [tile.q, tile.k, tile.v]
    return [tensor.astype(np.int64) for tensor in tensors[:count]]


def hard_tensors(params, rng, rows):
    """Tiles of so many rows that a quantizer may get wrong.

    All zeros; one element, or -32768, among zeros; every power of two as scale and its neighbours;
    scales whose reciprocal makes ties of whole ranges of elements; full range.
    """
    shape = (rows, params.head_dim)
    limit = 1 << (SCALE_BITS - 1)

    def scaled(scale):
        tensor = rng.integers(-scale, scale + 1, shape)
        tensor.flat[rng.integers(tensor.size)] = rng.choice([-scale, scale])
        return tensor

    lowest, single = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    lowest.flat[rng.integers(lowest.size)] = -limit
    single.flat[rng.integers(single.size)] = 1
    tensors = [np.zeros(shape, np.int64), lowest, single,
               rng.integers(-limit, limit, shape), np.full(shape, -limit)]
    scales = {min(limit - 1, (1 << bit) + offset) for bit in range(SCALE_BITS)
              for offset in (-1, 0, 1)}
    # A = qmax * 2**k / m: inverse = m * 2**(16 - k) exactly.
    scales |= {params.qmax << k for k in range(SCALE_BITS) if params.qmax << k < limit}
    scales |= {params.qmax // 5 << k for k in range(SCALE_BITS) if params.qmax // 5 << k < limit}
    return tensors + [scaled(scale) for scale in sorted(scales - {0})]
