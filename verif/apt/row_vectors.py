"""Rows of tiles for the row work: what goes into its blocks and what must come out."""

from typing import NamedTuple

import numpy as np

from golden.apt import attend, rescale, tafa
from golden.apt.exp2 import exp2_factor, exp2_fine
from golden.apt.log2 import log2_fine
from golden.apt.thresholds import BlockThresholds
from golden.dit.tiles import load_tiles


__all__ = ["QueryTile", "real_query_tiles", "rescale_payloads", "some_query_tile",
           "tafa_payloads"]


class QueryTile(NamedTuple):
    """Rows of a query tile with all its key tiles; arrays of int64."""

    maximum: np.ndarray      #: m~ ``[rows, key tiles]``
    total: np.ndarray        #: l~
    contributes: np.ndarray  #: bool
    a_v: np.ndarray          #: scale words of V ``[key tiles]``
    shift: int               #: shift of sums
    codes: tuple             #: codes of the two thresholds
    has_state: bool
    words: np.ndarray        #: stored state ``[rows, key tiles]``
    reference: np.ndarray    #: and ``[rows]``
    c: np.ndarray

    @property
    def whole(self):
        """M and L of the rows."""
        maximum, total = rescale.Rows.fresh(len(self.maximum), 1)[:2]
        for j in range(self.maximum.shape[1]):
            maximum, total = rescale.merge(maximum, total, self.maximum[:, j], self.total[:, j])
        return maximum, total


def some_query_tile(params, rng, rows, key_tiles):
    """Random rows and corners: none, one element, all; near maxima, far and equal ones."""
    shape = rows, key_tiles
    maximum = rng.integers(-1200, 1200, shape)
    far = rng.random(shape)
    maximum = np.where(far < 0.15, rng.integers(-1 << 15, 1 << 15, shape), maximum)
    maximum = np.where(far > 0.95, rng.choice([-1 << 15, (1 << 15) - 1], shape), maximum)
    maximum = np.where(rng.random(shape) < 0.2, maximum[:, :1], maximum)
    total = np.maximum(rng.integers(1, (params.tile_k << 15) + 1, shape)
                       >> rng.integers(0, 16, shape), 1)
    total = np.where(rng.random(shape) < 0.1, params.tile_k << 15, total)
    none = rng.random(shape) < 0.2
    none[rng.random(rows) < 0.1] = True
    maximum, total = np.where(none, -1 << 15, maximum), np.where(none, 0, total)

    spread = int(rng.choice([20, 300, 4000]))
    old = np.clip(tafa.mass(maximum, total) + rng.integers(-spread, spread, shape),
                  tafa.NONE + 1, 32767)
    old = np.where(rng.random(shape) < 0.15, tafa.NONE, old)
    words, reference = tafa.store(old, params)
    c = np.clip(old.max(-1) + rng.integers(0, 600, rows), tafa.NONE + 1, 32767)
    c = np.where(rng.random(rows) < 0.1, tafa.NONE, c)
    return QueryTile(
        maximum, total, ~none & (rng.random(shape) < 0.8),
        rng.integers(0, 1 << 15, key_tiles) >> rng.integers(0, 15, key_tiles),
        int(rng.integers(0, 16)),
        tuple(int(code) >> int(rng.integers(0, 6)) for code in rng.integers(0, 1 << 16, 2)),
        bool(rng.random() < 0.8), words, reference, c)


def real_query_tiles(params, count=2):
    """Query tiles of a second step on the committed tiles, cropped; it follows a dense one."""
    tokens = params.tile_k * 2 - params.tile_k // 3
    found = []
    for tile in load_tiles()[:count]:
        tile = tile.crop(tokens, tokens, params.head_dim)
        before = attend.quantize_head(tile.q, tile.k, tile.v, tile.e_q, tile.e_k, params)
        after = attend.quantize_head(tile.q * 15 // 16, tile.k, tile.v, tile.e_q, tile.e_k, params)
        state = attend.attend(before, attend.Step(dense=True), None, params).state
        codes = tuple(tafa.threshold_code([2.0 ** -10, 2.0 ** -7]).tolist())
        step = attend.Step(codes=codes, refresh=True, counts=BlockThresholds())
        second = attend.attend(after, step, state, params, keep_tiles=True)
        shift = params.o_shift(len(after.a_v))
        for i, tiles in enumerate(second.tiles):
            rows = slice(i * params.tile_q, min((i + 1) * params.tile_q, tokens))
            here = rows.stop - rows.start

            def side(name, tiles=tiles, here=here):
                return np.stack([getattr(one, name)[:here] for one in tiles], 1)

            found.append(QueryTile(
                side("maximum"), side("total"), side("new_hp").any(-1) | side("new_lp").any(-1),
                after.a_v, shift, codes, True, state.s[rows], state.reference[rows],
                state.c[rows]))
            payloads = tafa_payloads(found[-1], params)
            # The payloads are made here from parts of the model: they must be the engine's.
            want = np.stack([one.thresholds[:here] for one in tiles]).reshape(-1, 2).tolist()
            assert [list(word["thresholds"].values()) for word in payloads["o"]] == want
            assert ([word["s"] for word in payloads["o"]]
                    == second.state.s[rows].T.ravel().tolist())
            assert [word["c"] for word in payloads["row_o"]] == second.state.c[rows].tolist()
    return found


def tafa_payloads(tile, params):
    """Payloads by stream of :class:`rtl.apt.tafa.Tafa`, key tile by key tile."""
    rows, key_tiles = tile.maximum.shape
    new_words, new_reference = tafa.store(tafa.mass(tile.maximum, tile.total), params)
    old_s = tafa.recall(tile.words, tile.reference[:, None], params)
    maximum, total = tile.whole
    found = {"i": [], "o": [], "row_i": [], "row_o": []}
    for j in range(key_tiles):
        pairs = (tafa.thresholds(tile.codes, tile.total[:, j], tile.c, old_s[:, j], params)
                 if tile.has_state else np.ones((rows, 2), np.int64))
        for row in range(rows):
            found["i"].append({
                "row": row, "first": int(j == 0), "has_state": int(tile.has_state),
                "code_prune": tile.codes[0], "code_quant": tile.codes[1],
                "maximum": int(tile.maximum[row, j]), "total": int(tile.total[row, j]),
                "c": int(tile.c[row]), "reference": int(tile.reference[row]),
                "s": int(tile.words[row, j])})
            found["o"].append({
                "row": row, "s": int(new_words[row, j]),
                "thresholds": dict(zip(("prune", "quant"), pairs[row].tolist(), strict=True))})
    for row in range(rows):
        found["row_i"].append({"row": row, "maximum": int(maximum[row]),
                               "total": int(total[row])})
        found["row_o"].append({"row": row, "c": int(tafa.mass(maximum[row], total[row])),
                               "reference": int(new_reference[row])})
    return found


def rescale_payloads(tile, params):
    """Payloads by stream of :class:`rtl.apt.rescale.Rescale`, key tile by key tile.

    ``mantissa`` and ``places`` of ``final`` are those of the formula also where it says zero, and
    so are side and factor where a row begins or does not contribute.
    """
    rows, key_tiles = tile.maximum.shape
    found = {"i": [], "o": [], "final": [], "row_o": []}
    maximum, total, unit, begun = rescale.Rows.fresh(rows, 1)[:4]
    unit_v = log2_fine(np.maximum(tile.a_v, 1))
    qmax = params.log2_qmax_squared
    for j in range(key_tiles):
        contributes = tile.contributes[:, j]
        tile_unit = rescale.tile_unit(tile.maximum[:, j], tile.a_v[j])
        difference = tile_unit - unit
        factor = exp2_factor(np.abs(difference))
        maximum, total = rescale.merge(maximum, total, tile.maximum[:, j], tile.total[:, j])
        unit = np.where(contributes & (~begun | (difference > 0)), tile_unit, unit)
        for row in range(rows):
            found["i"].append({
                "row": row, "first": int(j == 0), "last": int(j == key_tiles - 1),
                "maximum": int(tile.maximum[row, j]), "total": int(tile.total[row, j]),
                "contributes": int(contributes[row]), "unit_v": int(unit_v[j]),
                "shift": tile.shift})
            found["o"].append({
                "row": row, "begin": int(contributes[row] & ~begun[row]),
                "contributes": int(contributes[row]), "scale_o": int(difference[row] > 0),
                "factor": int(factor[row])})
        begun = begun | contributes
    mantissa, places = exp2_fine((maximum << 4) + log2_fine(np.maximum(total, 1)) - (15 << 12)
                                 + qmax - unit - (tile.shift << 12))
    places = np.clip(places + 15, 1, 62)
    for row in range(rows):
        found["row_o"].append({"row": row, "maximum": int(maximum[row]),
                               "total": int(total[row])})
        found["final"].append({"row": row, "zero": int(not (begun[row] and total[row] > 0)),
                               "mantissa": int(mantissa[row]), "places": int(places[row])})
    return found
