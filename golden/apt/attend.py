"""Reference of the APT engine: one attention head at one denoising step (APT 3, 4.1).

Integers from end to end, in the order of the hardware: query tiles, in each its key tiles, in each
the seven stages of APT 4.1. Both dataflows give these bits.
"""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64
from golden.common.checks import ceil_div

from . import mask_decoder, mask_encoder, rescale, tafa, vpu
from .dp_mac import split
from .mask_generator import generate
from .quantizer import LARGEST, quantize
from .thresholds import BlockThresholds


__all__ = ["Attention", "Head", "State", "Step", "Tile", "attend", "quantize_head", "stages"]


class Head(NamedTuple):
    """Q, K and V of a head as they lie in memory: 12-bit words and one scale word a tile."""

    q: np.ndarray    #: words ``[queries, head_dim]``
    k: np.ndarray    #: words ``[keys, head_dim]``
    v: np.ndarray
    a_q: np.ndarray  #: scale words ``[query tiles]``
    a_k: np.ndarray  #: scale words ``[key tiles]``
    a_v: np.ndarray
    scale: vpu.LogitScale


class Step(NamedTuple):
    """What the host sets for a head at a step."""

    codes: tuple = (0xffff, 0xffff)  #: -log2 of prune and quant threshold, Q5.11
    dense: bool = False              #: everything in high precision, whatever the masks say
    refresh: bool = False            #: what is not in high precision is in low precision
    counts: tuple = BlockThresholds()  #: count thresholds of the mask encoder


class State(NamedTuple):
    """What a step leaves to the next: masks of tiles and TAFA state."""

    code: np.ndarray       #: flag pairs ``[query tiles, key tiles, flags]``
    s: np.ndarray          #: words ``[queries, key tiles]`` of ``state_bits``
    c: np.ndarray          #: words ``[queries]``
    reference: np.ndarray  #: words ``[queries]``, for 8-bit state


class Attention(NamedTuple):
    """What a head's step gives."""

    o: np.ndarray    #: output ``[queries, head_dim]``, 16-bit codes in the exponent of V
    state: State
    tiles: list      #: of query tiles, the list of its key tiles' :class:`Tile`; empty if not kept


class Tile(NamedTuple):
    """The seven stages of one tile, as the hardware sees them; rows and keys of whole tiles."""

    hp: np.ndarray          #: decoded masks, ``[tile_q, tile_k]``: stage 1
    lp: np.ndarray
    acc: np.ndarray         #: dot products of Q and K, 0 where not computed: stage 3
    z: np.ndarray           #: logits, Q7.8
    maximum: np.ndarray     #: m~ ``[tile_q]``: stage 4
    p: np.ndarray           #: P', U1.15
    total: np.ndarray       #: l~
    thresholds: np.ndarray  #: theta' ``[tile_q, 2]``, U1.15: stage 5
    new_hp: np.ndarray      #: element masks
    new_lp: np.ndarray
    code: np.ndarray        #: flag pairs of the new masks: stage 6
    s: np.ndarray           #: ``m~ + log2 l~`` of rows
    sums: np.ndarray        #: P times V ``[tile_q, head_dim]``: stage 7


def quantize_head(q, k, v, e_q, e_k, params):
    """A :class:`Head` of 16-bit codes with their exponents.

    Q is ``[queries, head_dim]``, K and V are ``[keys, head_dim]``.
    """
    words, scales = [], []
    for name, x, rows in (("Q", q, params.tile_q), ("K", k, params.tile_k),
                          ("V", v, params.tile_k)):
        x = as_int64(x)
        if x.ndim != 2 or x.shape[1] != params.head_dim:
            raise ValueError(f"{name} must be [tokens, {params.head_dim}], not {list(x.shape)}")
        if name == "V" and x.shape != np.shape(k):
            raise ValueError(f"V must be {list(np.shape(k))} like K, not {list(x.shape)}")
        tiles = [quantize(x[first:first + rows], params) for first in range(0, len(x), rows)]
        words.append(np.concatenate([word for word, _ in tiles]))
        scales.append(np.array([scale for _, scale in tiles]))
    return Head(*words, *scales, vpu.logit_scale(params.head_dim, e_q, e_k, params))


def _dot(a, b, hp, computed, params):
    """Exact dot products of rows of ``a`` and ``b`` where ``computed``; float64 holds them."""
    a_msb, _ = split(a, params)
    b_msb, _ = split(b, params)
    high = a.astype(np.float64) @ b.T.astype(np.float64)
    low = (a_msb.astype(np.float64) @ b_msb.T.astype(np.float64)) * (1 << params.word_bits)
    return np.where(computed, np.where(hp, high, low), 0).astype(np.int64)


def _sums(p, v, hp, lp, params):
    p_msb, _ = split(np.where(lp, p, 0), params)
    v_msb, _ = split(v, params)
    high = np.where(hp, p, 0).astype(np.float64) @ v.astype(np.float64)
    low = (p_msb.astype(np.float64) @ v_msb.astype(np.float64)) * (1 << params.word_bits)
    return (high + low).astype(np.int64)


def stages(q, k, v, mantissa, shift, code, s, c, step, params):
    """One tile through the stages; see :class:`Tile`.

    Parameters
    ----------
    q, k, v : integers ``[rows, head_dim]`` and twice ``[keys, head_dim]``
        Words; fewer than ``tile_q`` rows or ``tile_k`` keys in the tiles at the end.
    mantissa, shift : :class:`int`
        Scale of the logits.
    code : integers ``[flags]``
        Masks of the step before; only looked at where the step is not dense.
    s, c : integers ``[rows]`` or ``None``
        TAFA state of the step before; without it theta' is 1.
    """
    rows, keys = len(q), len(k)
    shape = params.tile_q, params.tile_k

    def whole(x, fill=0):
        padded = np.full(shape[:1] + x.shape[1:], fill, x.dtype)
        padded[:rows] = x
        return padded

    inside = (np.arange(shape[0])[:, None] < rows) & (np.arange(shape[1]) < keys)
    if step.dense:
        hp, lp = inside, np.zeros(shape, bool)
    else:
        hp, lp = mask_decoder.decode(code, step.refresh, rows, keys, params)
    padded_k, padded_v = (np.pad(x, ((0, shape[1] - keys), (0, 0))) for x in (k, v))
    acc = _dot(whole(q), padded_k, hp, hp | lp, params)
    z = vpu.dequantize(acc, mantissa, shift)
    maximum, p, total = vpu.softmax(z, hp | lp, params)
    if s is None:
        thresholds = np.ones((shape[0], 2), np.int64)
    else:
        thresholds = tafa.thresholds(step.codes, total, whole(c, tafa.NONE), whole(s, tafa.NONE),
                                     params)
    new_hp, new_lp = generate(p, thresholds)
    new_code = mask_encoder.encode(new_hp, new_lp, step.counts, params)
    pv_hp, pv_lp = (hp, lp) if step.dense else (new_hp, new_lp)
    sums = _sums(vpu.probability_words(p, params), padded_v, pv_hp, pv_lp, params)
    return Tile(hp, lp, acc, z, maximum, p, total, thresholds, new_hp, new_lp, new_code,
                tafa.mass(maximum, total), sums)


def _check(head, step, state, params):
    for name, count in (("q", len(head.q)), ("k", len(head.k)), ("v", len(head.k))):
        if count < 1:
            raise ValueError(f"{name.upper()} must have at least one token")
        words = as_int64(getattr(head, name))
        if words.shape != (count, params.head_dim):
            raise ValueError(f"{name.upper()} must be [{count}, {params.head_dim}], "
                             f"not {list(words.shape)}")
    for name, tokens, rows in (("a_q", len(head.q), params.tile_q),
                               ("a_k", len(head.k), params.tile_k),
                               ("a_v", len(head.k), params.tile_k)):
        scales = as_int64(getattr(head, name))
        if scales.shape != (ceil_div(tokens, rows),):
            raise ValueError(f"{name} must have {ceil_div(tokens, rows)} words, "
                             f"not {list(scales.shape)}")
        if scales.min() < 0 or scales.max() > LARGEST:
            raise ValueError(f"{name} must be in 0..{LARGEST}")
    for code in step.codes:
        if not 0 <= code <= 0xffff:
            raise ValueError(f"Codes of thresholds must be in 0..65535, not {code}")
    if state is None and not step.dense:
        raise ValueError("The first step must be dense: there are no masks yet")


def attend(head, step, state, params, *, keep_tiles=False, on_tile=None):
    """Attention of a head at one denoising step: an :class:`Attention`.

    Parameters
    ----------
    head : :class:`Head`
        Operands, see :func:`quantize_head`.
    step : :class:`Step`
        Settings of the head at this step.
    state : :class:`State` or ``None``
        What the step before left; ``None`` at the first, which must be dense.
    keep_tiles : :class:`bool`
        Whether to return every tile's stages.
    on_tile : callable or ``None``
        Called with ``(query tile, key tile, Tile)`` as each tile is done.
    """
    _check(head, step, state, params)
    queries, tokens = len(head.q), len(head.k)
    query_tiles, key_tiles = ceil_div(queries, params.tile_q), ceil_div(tokens, params.tile_k)
    shift = params.o_shift(key_tiles)
    o = np.zeros((queries, params.head_dim), np.int64)
    s = np.full((queries, key_tiles), tafa.NONE, np.int64)
    c = np.full(queries, tafa.NONE, np.int64)
    code = np.zeros((query_tiles, key_tiles, params.flags), np.uint8)
    kept = []
    for i in range(query_tiles):
        rows = slice(i * params.tile_q, min((i + 1) * params.tile_q, queries))
        count = rows.stop - rows.start
        state_rows = rescale.Rows.fresh(params.tile_q, params.head_dim)
        old_s = None if state is None else tafa.recall(
            state.s[rows], state.reference[rows, None], params)
        row_tiles = []
        for j in range(key_tiles):
            keys = slice(j * params.tile_k, min((j + 1) * params.tile_k, tokens))
            mantissa, places = vpu.tile_scale(head.scale, head.a_q[i], head.a_k[j])
            tile = stages(head.q[rows], head.k[keys], head.v[keys], mantissa, places,
                          None if state is None else state.code[i, j],
                          None if state is None else old_s[:, j],
                          None if state is None else state.c[rows], step, params)
            contributes = (tile.hp | tile.lp if step.dense else tile.new_hp | tile.new_lp).any(-1)
            unit, begun, sums = rescale.add_output(state_rows, tile.sums, tile.maximum,
                                                   contributes, head.a_v[j], shift)
            maximum, total = rescale.merge(state_rows.maximum, state_rows.total, tile.maximum,
                                           tile.total)
            state_rows = rescale.Rows(maximum, total, unit, begun, sums)
            s[rows, j], code[i, j] = tile.s[:count], tile.code
            if keep_tiles:
                row_tiles.append(tile)
            if on_tile is not None:
                on_tile(i, j, tile)
        o[rows] = rescale.normalize(state_rows, shift, params)[:count]
        c[rows] = tafa.mass(state_rows.maximum, state_rows.total)[:count]
        kept.append(row_tiles)
    words, reference = tafa.store(s, params)
    return Attention(o, State(code, words, c, reference), kept if keep_tiles else [])
