"""Tiles for PV of the quad dataflow, and what its blocks exchange about them."""

from typing import NamedTuple

import numpy as np

from golden.apt import attend, rescale, vpu
from golden.apt.dp_mac import split
from golden.apt.exp2 import FINE_BITS, exp2_factor, exp2_fine
from golden.apt.log2 import log2_fine
from golden.apt.mask_generator import generate
from golden.apt.pv_sequencer import lists
from golden.apt.quantizer import quantize
from golden.dit.tiles import load_tiles


__all__ = ["PvTile", "corner_tiles", "factor_words", "final_words", "random_tile", "real_tiles"]


class PvTile(NamedTuple):
    """A tile as PV sees it; rows and keys of a whole tile."""

    p: np.ndarray    #: words P ``[tile_q, tile_k]``
    hp: np.ndarray   #: element masks
    lp: np.ndarray
    v: np.ndarray    #: words V ``[tile_k, head_dim]``
    maximum: np.ndarray
    total: np.ndarray
    a_v: int

    @property
    def contributes(self):
        return (self.hp | self.lp).any(-1)

    def lists(self, params):
        return lists(self.p, self.hp, self.lp, params)

    def sums(self, params):
        """Sums of P times V, by way of whole words."""
        p_msb, v_msb = (split(x, params)[0] for x in (self.p, self.v))
        high = np.where(self.hp, self.p, 0) @ self.v
        return high + ((np.where(self.lp, p_msb, 0) @ v_msb) << params.word_bits)


def random_tile(params, rng, hp=0.2, lp=0.4, largest=None):
    """Random words; ``hp`` and ``lp`` are shares of elements, ``largest`` the magnitude of all."""
    shape = params.tile_q, params.tile_k
    pick = rng.random(shape)
    p = rng.integers(0, params.qmax + 1, shape)
    v = rng.integers(-params.qmax, params.qmax + 1, (params.tile_k, params.head_dim))
    if largest is not None:
        p, v = np.full_like(p, params.qmax), np.full_like(v, largest)
    return PvTile(p, pick < hp, (pick >= hp) & (pick < hp + lp), v,
                  rng.integers(-4000, 4000, params.tile_q),
                  rng.integers(1 << 15, params.tile_k << 15, params.tile_q),
                  int(rng.integers(0, 1 << 15)))


def corner_tiles(params, rng):
    """Nothing, all in high and all in low precision, single elements, empty rows, extremes."""
    one = random_tile(params, rng)
    keys = rng.integers(0, params.tile_k, params.tile_q)
    single = np.arange(params.tile_k) == keys[:, None]
    none = np.zeros_like(single)
    odd = (np.arange(params.tile_q) // 4 % 2 == 1)[:, None]
    return [
        random_tile(params, rng, 0, 0), random_tile(params, rng, 1, 0),
        random_tile(params, rng, 0, 1), one._replace(hp=single, lp=none),
        one._replace(hp=none, lp=single), one._replace(hp=one.hp & odd, lp=one.lp & odd),
        random_tile(params, rng, 1, 0, params.qmax), random_tile(params, rng, 1, 0, -params.qmax),
        random_tile(params, rng, 0, 1, -params.qmax)]


def real_tiles(params):
    """The committed tiles, cropped; the first half with their thresholds, the others dense."""
    result = []
    scale_tiles = load_tiles()
    for number, tile in enumerate(scale_tiles):
        tile = tile.crop(params.tile_q, params.tile_k, params.head_dim)
        (q, a_q), (k, a_k), (v, a_v) = (quantize(x, params) for x in (tile.q, tile.k, tile.v))
        scale = vpu.logit_scale(params.head_dim, tile.e_q, tile.e_k, params)
        mantissa, shift = vpu.tile_scale(scale, a_q, a_k)
        done = attend.stages(q, k, v, mantissa, shift, None, None, None,
                             attend.Step(dense=True), params)
        hp, lp = done.hp, done.lp
        if number < len(scale_tiles) - 1:
            hp, lp = generate(done.p, tile.thresholds)
        result.append(PvTile(vpu.probability_words(done.p, params), hp, lp, v, done.maximum,
                             done.total, int(a_v)))
        if number == len(scale_tiles) - 1:
            assert (result[-1].sums(params) == done.sums).all()
    return result


def factor_words(state, tile, params, rows):
    """What the rescaling of rows says to the O update: dicts in order of rows."""
    difference = rescale.tile_unit(tile.maximum, tile.a_v) - state.unit
    factor = exp2_factor(np.abs(difference))
    return [{"row": row, "begin": int(not state.begun[row]),
             "contributes": int(tile.contributes[row]), "scale_o": int(difference[row] > 0),
             "factor": int(factor[row])} for row in range(rows)]


def final_words(state, shift, params, rows):
    """What makes output of rows, as :func:`golden.apt.rescale.normalize` has it."""
    fine = FINE_BITS - 8
    u = ((state.maximum << fine) + log2_fine(np.maximum(state.total, 1)) - (15 << FINE_BITS)
         + params.log2_qmax_squared - state.unit - (shift << FINE_BITS))
    mantissa, places = exp2_fine(u)
    places = np.clip(places + 15, 1, 62)
    zero = ~(state.begun & (state.total > 0))
    return [{"row": row, "zero": int(zero[row]), "mantissa": int(mantissa[row]),
             "places": int(places[row])} for row in range(rows)]
