"""Stimulus for the softmax and the lists: real tiles at two steps, random ones and corner cases."""

from typing import NamedTuple

import numpy as np

from golden.apt import attend, list_builder, tafa, vpu
from golden.apt.mask_generator import NEVER
from golden.apt.quantizer import quantize
from golden.apt.thresholds import BlockThresholds
from golden.common.checks import ceil_div
from golden.dit.tiles import load_tiles


__all__ = ["SoftmaxTile", "corner_tiles", "list_words", "logit_words", "make_tile",
           "probability_words", "random_tile", "real_tiles", "row_words", "threshold_words"]


class SoftmaxTile(NamedTuple):
    """A tile from its logits on; arrays are of whole tiles."""

    rows: int
    keys: int
    dense: bool
    counts: BlockThresholds
    blocks: np.ndarray      #: bools ``[row_blocks, key_blocks]``: the computed blocks
    computed: np.ndarray    #: elements of these that are inside
    z: np.ndarray
    maximum: np.ndarray
    p: np.ndarray
    total: np.ndarray
    thresholds: np.ndarray
    sums: np.ndarray | None  #: P times V, of real tiles
    v: np.ndarray | None

    @property
    def block_rows(self):
        """Block rows that the tile has on the streams."""
        return ceil_div(self.rows, 4)

    def lists(self, params):
        return list_builder.build(self.p, self.computed, self.thresholds, self.dense,
                                  self.counts, params)


def make_tile(params, rows, keys, blocks, z, thresholds, *, dense=False, counts=(4, 12)):
    """A tile of given blocks and logits."""
    inside = ((np.arange(params.tile_q)[:, None] < rows) & (np.arange(params.tile_k) < keys))
    blocks = blocks & inside[::4, ::8]
    computed = np.repeat(np.repeat(blocks, 4, 0), 8, 1) & inside
    return SoftmaxTile(rows, keys, dense, BlockThresholds(*counts), blocks, computed, z,
                       *vpu.softmax(z, computed, params), thresholds, None, None)


def real_tiles(params, which=range(6)):
    """Committed tiles in the design's size: for each a dense step, and the step after it."""
    tiles, stored = [], load_tiles()
    for index in which:
        tile = stored[index].crop(params.tile_q, params.tile_k, params.head_dim)
        (q, a_q), (k, a_k), (v, _) = (quantize(x.astype(np.int64), params)
                                      for x in (tile.q, tile.k, tile.v))
        scale = vpu.tile_scale(vpu.logit_scale(params.head_dim, tile.e_q, tile.e_k, params),
                               a_q, a_k)
        codes = tuple(tafa.threshold_code([1 / params.tile_k, 4 / params.tile_k]).tolist())
        first = attend.Step(codes, dense=True, counts=BlockThresholds(12, 4))
        start = attend.stages(q, k, v, *scale, None, None, None, first, params)
        dense = attend.stages(q, k, v, *scale, None, start.s, start.s, first, params)
        later = attend.stages(q, k, v, *scale, dense.code, dense.s, dense.s,
                              first._replace(dense=False), params)
        for stages, step in ((dense, first), (later, first._replace(dense=False))):
            computed = stages.hp | stages.lp
            tiles.append(SoftmaxTile(
                params.tile_q, params.tile_k, step.dense, step.counts,
                computed[::4, ::8], computed, stages.z, stages.maximum, stages.p, stages.total,
                stages.thresholds, stages.sums, v))
    return tiles


def random_tile(params, rng, *, rows=None, keys=None, density=None, dense=None, spread=None):
    """Random blocks, some block rows empty; thresholds next to P' and at the ends."""
    shape = (params.tile_q, params.tile_k)
    rows = int(rng.integers(1, shape[0] + 1)) if rows is None else rows
    keys = int(rng.integers(1, shape[1] + 1)) if keys is None else keys
    density = rng.choice([0.1, 0.5, 0.9]) if density is None else density
    dense = bool(rng.random() < 0.2) if dense is None else dense
    spread = int(rng.choice([40, 800, 3000, 40000])) if spread is None else spread
    blocks = rng.random((params.row_blocks, params.key_blocks)) < density
    blocks[rng.random(params.row_blocks) < 0.2] = False
    if dense:
        blocks[:] = True
    z = np.clip(rng.normal(0, spread, shape), -32768, 32767).astype(np.int64)
    draft = make_tile(params, rows, keys, blocks, z, np.ones((shape[0], 2), np.int64))
    thresholds = rng.integers(1, NEVER + 1, (shape[0], 2))
    near = np.take_along_axis(draft.p, rng.integers(0, shape[1], (shape[0], 2)), 1)
    thresholds = np.where(rng.random(thresholds.shape) < 0.6,
                          np.clip(near + rng.integers(-1, 2, near.shape), 1, NEVER), thresholds)
    special = rng.random(thresholds.shape)
    thresholds[special < 0.1], thresholds[special > 0.93] = 1, NEVER
    return make_tile(params, rows, keys, blocks, z, thresholds, dense=dense,
                     counts=rng.integers(0, 12, 2).tolist())


def corner_tiles(params, rng):
    """Empty tiles, tails, dense tiles with P' = 0, ties, and logits at both ends."""
    whole = {"rows": params.tile_q, "keys": params.tile_k}
    one = {"rows": 1, "keys": 1}
    tail = {"rows": params.tile_q - 3, "keys": params.tile_k - 5}
    ends = random_tile(params, rng, **whole, density=1, dense=False)
    z = np.where(rng.random(ends.z.shape) < 0.5, -32768, 32767)
    z[::3] = -32768
    return [
        random_tile(params, rng, **whole, density=0, dense=False),
        random_tile(params, rng, **one, density=1, dense=False),
        random_tile(params, rng, **one, dense=True),
        random_tile(params, rng, **tail, density=0.5, dense=False),
        random_tile(params, rng, **tail, dense=True, spread=9000),
        make_tile(params, ends.rows, ends.keys, ends.blocks, z, ends.thresholds, counts=(0, 0)),
        make_tile(params, **whole, blocks=ends.blocks, z=np.zeros_like(z), dense=True,
                  thresholds=np.ones_like(ends.thresholds), counts=(31, 31)),
        make_tile(params, **whole, blocks=ends.blocks, z=np.zeros_like(z),
                  thresholds=np.tile([1, NEVER], (params.tile_q, 1)), counts=(32, 31)),
    ]


def logit_words(tile, rng):
    """Payloads of ``vpu.z``; logits that are not computed are noise."""
    noise = rng.integers(-32768, 32768, tile.z.shape)
    z = np.where(tile.computed, tile.z, noise)
    words = []
    for row_block in range(tile.block_rows):
        row = slice(4 * row_block, 4 * row_block + 4)
        keys = [8 * block + key for block in np.flatnonzero(tile.blocks[row_block]).tolist()
                for key in range(8)]
        words += [{"row_block": row_block, "key": key, "z": z[row, key].tolist(),
                   "end": int(key == keys[-1]), "none": 0} for key in keys]
        if not keys:
            words.append({"row_block": row_block, "key": 0, "z": [-1, 5, 0, 7], "end": 1,
                          "none": 1})
    return words


def probability_words(tile, params, none_p=0):
    """Payloads of ``vpu.p`` and of ``list_builder.p``; ``none_p`` is P' in an empty one's."""
    width, words = params.slice_keys, []
    for row_block in range(tile.block_rows):
        row = slice(4 * row_block, 4 * row_block + 4)
        blocks = np.flatnonzero(tile.blocks[row_block]).tolist()
        for block in blocks:
            for part in range(8 // width):
                key = 8 * block + part * width
                end = block == blocks[-1] and part == 8 // width - 1
                words.append({"key_block": block, "part": part, "end": int(end), "none": 0,
                              "p": tile.p[row, key:key + width].tolist()})
        if not blocks:
            words.append({"key_block": 0, "part": 0, "end": 1, "none": 1,
                          "p": [[none_p] * width] * 4})
    return words


def row_words(tile):
    """Payloads of ``vpu.rows``."""
    return [{"row_block": block, "maximum": tile.maximum[4 * block:4 * block + 4].tolist(),
             "total": tile.total[4 * block:4 * block + 4].tolist()}
            for block in range(tile.block_rows)]


def threshold_words(tile):
    """Payloads of ``list_builder.thresholds``."""
    return [{"pairs": [{"prune": prune, "quant": quant} for prune, quant in
                       tile.thresholds[4 * block:4 * block + 4].tolist()]}
            for block in range(tile.block_rows)]


def list_words(tile, params):
    """What ``list_builder`` gives: words of ``entry`` with a valid row, ``header`` and ``code``.

    Entries that are not valid are 0.
    """
    lists = tile.lists(params)
    names = ("position", "key", "high", "low")
    entries, headers, codes = [], [], []
    for block in range(params.row_blocks):
        rows = slice(4 * block, 4 * block + 4)
        for word in list_builder.writes(lists, block, params):
            entries.append({"row_block": block, "rows": [
                {"valid": 0, **dict.fromkeys(names, 0)} if entry is None
                else {"valid": 1, **dict(zip(names, entry, strict=True))} for entry in word]})
        headers.append({"row_block": block, "n_valid": lists.n_valid[rows].tolist(),
                        "n_hp": lists.n_hp[rows].tolist()})
        pairs = sum(pair << 2 * index for index, pair in enumerate(lists.code[block].tolist()))
        codes.append({"row_block": block, "pairs": pairs})
    return entries, headers, codes
