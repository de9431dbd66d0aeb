"""What the engine's arithmetic costs a head: QSNR against exact attention, steps in a row.

A head goes through consecutive denoising steps, each variant with the state that it left itself:

- ``int12``: dense, everything in high precision;
- ``apt``: dual precision and pruning; ``truncate``: the same with truncated segments;
- ``unpruned``: dual precision, a refresh at every step and nothing pruned by its threshold;
- ``int12 masks``: the masks of ``apt``, all of them in high precision;
- ``float masks``: the masks of ``apt`` in float64.

So ``int12 masks`` less ``apt`` is what low precision costs, and ``float masks`` what the masks
cost alone.
"""

import dataclasses

import numpy as np

from golden.apt import rescale, vpu
from golden.apt.attend import State, attend, quantize_head
from golden.apt.attend_float import FloatStep, Masks, attend_float
from golden.common.checks import ceil_div


__all__ = ["VARIANTS", "Energy", "HeadChain", "MaskCollector", "Record", "exact",
           "masked_attention"]

VARIANTS = ("int12", "apt", "truncate", "unpruned", "int12 masks", "float masks")
#: The code of a threshold that nothing with a probability in P' falls below.
_KEEP_ALL = 0xffff


@dataclasses.dataclass(frozen=True)
class Energy:
    """Squared error and squared signal; sums of them pool heads and steps."""

    error: float = 0.0
    signal: float = 0.0

    @classmethod
    def of(cls, value, reference):
        return cls(float(((value - reference) ** 2).sum()), float((reference ** 2).sum()))

    def __add__(self, other):
        return Energy(self.error + other.error, self.signal + other.signal)

    @property
    def qsnr(self):
        """``-10 log10(error / signal)``, dB."""
        if self.signal == 0:
            return float("nan")
        return float("inf") if self.error == 0 else -10 * float(np.log10(self.error / self.signal))


def exact(q, k, v):
    """``P, P @ V`` in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = q @ k.T / np.sqrt(q.shape[1])
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p, p @ v


class MaskCollector:
    """``on_tile`` of :func:`golden.apt.attend.attend` that collects the masks that were used."""

    def __init__(self, queries, keys, params, *, dense):
        self.masks = Masks.empty(queries, keys)
        self._params, self._dense = params, dense

    def __call__(self, i, j, tile):
        rows, keys = self._params.tile_q, self._params.tile_k
        pv = (tile.hp, tile.lp) if self._dense else (tile.new_hp, tile.new_lp)
        for mask, part in zip(self.masks, (tile.hp, tile.lp, *pv), strict=True):
            place = mask[i * rows:(i + 1) * rows, j * keys:(j + 1) * keys]
            place[:] = part[:place.shape[0], :place.shape[1]]


def masked_attention(head, masks, params):
    """The integer engine on given masks with every element of them in high precision.

    ``head`` is a :class:`golden.apt.attend.Head`. Returns output codes ``[queries, head_dim]``.
    """
    tokens = len(head.k)
    key_tiles = ceil_div(tokens, params.tile_k)
    shift = params.o_shift(key_tiles)
    computed, kept = masks.qk_hp | masks.qk_lp, masks.pv_hp | masks.pv_lp
    q, k, v = (words.astype(np.float64) for words in head[:3])  # sums of products fit 53 bits
    o = np.zeros(head.q.shape, np.int64)
    for i, row in enumerate(range(0, len(head.q), params.tile_q)):
        rows = slice(row, min(row + params.tile_q, len(head.q)))
        state = rescale.Rows.fresh(rows.stop - row, params.head_dim)
        for j in range(key_tiles):
            keys = slice(j * params.tile_k, min((j + 1) * params.tile_k, tokens))
            acc = (q[rows] @ k[keys].T).astype(np.int64)
            z = vpu.dequantize(acc, *vpu.tile_scale(head.scale, head.a_q[i], head.a_k[j]))
            tile = vpu.softmax(z, computed[rows, keys], params)
            words = np.where(kept[rows, keys], vpu.probability_words(tile.p, params), 0)
            sums = (words.astype(np.float64) @ v[keys]).astype(np.int64)
            output = rescale.add_output(state, sums, tile.maximum, kept[rows, keys].any(-1),
                                        head.a_v[j], shift)
            state = rescale.Rows(*rescale.merge(state.maximum, state.total, tile.maximum,
                                                tile.total), *output)
        o[rows] = rescale.normalize(state, shift, params)
    return o


@dataclasses.dataclass(frozen=True)
class Record:
    """A head at a step: :class:`Energy` by variant, and shares of the masks of ``apt``.

    ``computed``, ``high`` and ``low`` are shares of the elements, in QK and (the latter two) in
    PV; ``lost`` is the share of the mass whose elements PV does not have.
    """

    energy: dict
    computed: float
    high: float
    low: float
    lost: float
    unpruned_lost: float

    @property
    def gap(self):
        """What low precision costs, dB: QSNR of ``int12 masks`` less that of ``apt``."""
        return self.energy["int12 masks"].qsnr - self.energy["apt"].qsnr


class HeadChain:
    """One head through consecutive steps; the first is dense, whatever its settings say.

    Parameters
    ----------
    params : :class:`~golden.apt.params.AptParams`
        The engine, with ``split = balanced``.
    """

    def __init__(self, params):
        self._params = {"apt": params, "unpruned": params,
                        "truncate": dataclasses.replace(params, split="truncate")}
        self._states: dict[str, State] = {}

    def _run(self, variant, codes, exponents, step):
        """Output codes and masks of one of the variants with state."""
        params = self._params[variant]
        head = quantize_head(*codes, *exponents[:2], params)
        state = self._states.get(variant)
        step = step._replace(dense=step.dense or state is None)
        collected = MaskCollector(len(head.q), len(head.k), params, dense=step.dense)
        result = attend(head, step, state, params, on_tile=collected)
        self._states[variant] = result.state
        return head, result.o, collected.masks

    def step(self, real, codes, exponents, step):
        """A :class:`Record` of a step, or ``None`` if it was dense.

        Parameters
        ----------
        real, codes : three arrays, ``[queries, head_dim]`` and twice ``[keys, head_dim]``
            Q, K and V, and their 16-bit codes.
        exponents : three :class:`int`
            Exponents of the codes: ``codes * 2**-exponent``.
        step : :class:`golden.apt.attend.Step`
            Settings of the head at this step.
        """
        dense = step.dense or not self._states
        p, reference = exact(*real)
        unit = 2.0 ** -exponents[2]

        unpruned = step._replace(codes=(_KEEP_ALL, step.codes[1]), refresh=True)
        head, o, masks = self._run("apt", codes, exponents, step)
        outputs = {"apt": o * unit, "truncate": self._run("truncate", codes, exponents, step)[1]
                   * unit}
        _, o, all_masks = self._run("unpruned", codes, exponents, unpruned)
        if dense:
            return None
        params = self._params["apt"]
        outputs["unpruned"] = o * unit
        outputs["int12"] = attend(head, step._replace(dense=True), None, params).o * unit
        outputs["int12 masks"] = masked_attention(head, masks, params) * unit
        outputs["float masks"] = attend_float(*real, FloatStep(counts=step.counts), None, params,
                                              masks=masks).o

        def lost(masks):
            return 1 - float(p[masks.pv_hp | masks.pv_lp].sum()) / len(p)

        return Record({name: Energy.of(outputs[name], reference) for name in VARIANTS},
                      float((masks.qk_hp | masks.qk_lp).mean()), float(masks.pv_hp.mean()),
                      float(masks.pv_lp.mean()), lost(masks), lost(all_masks))
