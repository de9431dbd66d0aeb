"""What the mask codecs cost on real attention, for every value of their count thresholds.

For one setting of the thresholds, over all tiles of all heads, with the decoded masks:

- *high*, *valid*: share of the elements that run in high precision, and that run at all;
- *cost*: high + low / 4, as a share of dense high precision (APT: LP takes one pass of four);
- *lost*: mass (sum of P) of valid elements that the decoded masks skip, as a share of all mass;
- *demoted*: mass of high-precision elements that the decoded masks run in low precision, as a
  share of all mass. :attr:`Result.high_mass`, the mass of all high-precision elements, turns it
  into a share of that.

An element's fate depends on its group's counts alone, so the heads are reduced to histograms over
counts, and running sums of these give every setting at once. Counts come from
:func:`golden.apt.mask_encoder.count`, the encoder's own.
"""

import dataclasses

import numpy as np

from golden.apt.mask_encoder import count

from .pareto import ParetoFront
from .tiling import cut


__all__ = ["DEMOTED_WEIGHT", "FRONT_CELL", "BlockSweep", "Result", "RowColSweep", "Setting",
           "Slice", "evaluate", "sweep_of"]

#: Weight of the demoted mass beside the cost in the figure that ranks settings.
DEMOTED_WEIGHT = 0.3
#: Resolution of the Pareto front in lost and in demoted mass.
FRONT_CELL = (0.001, 0.005)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Figures of a block of settings: ``labels`` [n, thresholds], and a value of each figure."""

    labels: np.ndarray
    high: np.ndarray
    valid: np.ndarray
    lost: np.ndarray
    demoted: np.ndarray

    @property
    def cost(self):
        """High + low / 4."""
        return 0.75 * self.high + 0.25 * self.valid


class _Sweep:
    """Collects heads; :meth:`slices` yields the figures of all settings in ``slice_count`` parts.

    Three sums are kept of any set of elements: their number, the mass of the valid ones and the
    mass of the high-precision ones, in this order.
    """

    def __init__(self, params):
        self.params = params
        self._total = np.zeros(3)
        self._mass = 0.0

    def add(self, p, high, valid):
        """Add a head: probabilities and boolean element masks ``[queries, keys]``."""
        size = self.params.tile_q, self.params.tile_k
        kept = np.where(valid, p, np.float32(0))
        self._mass += p.sum(dtype=np.float64)
        self._total += (p.size, kept.sum(dtype=np.float64), kept[high].sum(dtype=np.float64))
        high, valid, kept = (cut(array, *size) for array in (high, valid, kept))
        self._add(high, kept, count(high, valid & ~high, self.params))

    @property
    def high_mass(self):
        """Mass of the high-precision elements, as a share of all mass."""
        return float(self._total[2] / self._mass)

    def _slice(self, labels, skipped, not_high, low):
        """Figures from sums [3, ...] over the skipped elements, over those that are not decoded as
        high precision, and over those decoded as low precision."""
        elements, shape = self._total[0], skipped[0].shape
        figures = (1 - not_high[0] / elements, 1 - skipped[0] / elements,
                   skipped[1] / self._mass, low[2] / self._mass)
        return Slice(labels, *(np.broadcast_to(figure, shape).reshape(-1) for figure in figures))


def _grid(*sizes):
    """All index tuples of an array of these sizes, [n, len(sizes)] int16."""
    return np.stack(np.meshgrid(*(np.arange(size, dtype=np.int16) for size in sizes),
                                indexing="ij"), axis=-1).reshape(-1, len(sizes))


def _at_most(sums, axes):
    """Histograms to sums over all counts up to and with each count, along ``axes``; in place."""
    for axis in axes:
        np.cumsum(sums, axis=axis, out=sums)
    return sums


def _above(sums, axes):
    """Histograms to sums over all counts above each count, along ``axes``."""
    for axis in axes:
        sums = np.flip(np.cumsum(np.flip(sums, axis), axis=axis), axis)
        sums = np.roll(sums, -1, axis)
        sums[(slice(None),) * axis + (-1,)] = 0
    return sums


class BlockSweep(_Sweep):
    """All settings ``k_hp, k_v`` of codec ``block``."""

    names = ("k_hp", "k_v")
    slice_count = 1

    def __init__(self, params):
        super().__init__(params)
        rows, cols = params.flag_block
        self._levels = rows * cols + 1
        self._sums = np.zeros((3, self._levels, self._levels))

    def _blocks(self, values):
        rows, cols = self.params.flag_block
        by_row = np.add.reduceat(values, np.arange(0, self.params.tile_q, rows), axis=1)
        return np.add.reduceat(by_row, np.arange(0, self.params.tile_k, cols), axis=2).reshape(-1)

    def _add(self, high, kept, counts):
        counts = counts.reshape(-1, 2).astype(np.int64)
        bins = counts[:, 0] * self._levels + counts[:, 1]
        for sums, values in zip(self._sums, (np.ones(kept.shape), kept, kept * high), strict=True):
            sums += np.bincount(bins, self._blocks(values), sums.size).reshape(sums.shape)

    def slices(self):
        """One :class:`Slice` with everything."""
        skipped = _at_most(self._sums.copy(), (1, 2))
        not_high = skipped[:, :, -1:]
        yield self._slice(_grid(self._levels, self._levels), skipped, not_high, not_high - skipped)


class RowColSweep(_Sweep):
    """All settings ``k_row_hp, k_row_v, k_col_hp, k_col_v`` of codec ``rowcol``.

    The rows of all tiles are kept, sorted by their HP count when :meth:`slices` is called; a slice
    holds the settings of one ``k_row_hp``.
    """

    names = ("k_row_hp", "k_row_v", "k_col_hp", "k_col_v")

    def __init__(self, params):
        super().__init__(params)
        self._parts = []

    @property
    def slice_count(self):
        """Slices that :meth:`slices` yields."""
        return self.params.tile_k + 1

    def _add(self, high, kept, counts):
        rows = counts[:, :self.params.tile_q]
        cols = counts[:, self.params.tile_q:].astype(np.int32)
        self._parts.append((rows, cols, kept, high))

    def slices(self):
        """A :class:`Slice` for each ``k_row_hp`` from 0 (``or``) or from the top (``and``)."""
        rows, cols, kept, high = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        tile_of_row = np.repeat(np.arange(len(rows)), rows.shape[1])
        rows = rows.reshape(-1, 2)
        kept, high = kept.reshape(len(rows), -1), high.reshape(len(rows), -1)
        by_count = np.argsort(rows[:, 0], kind="stable")
        edges = np.searchsorted(rows[by_count, 0], np.arange(self.params.tile_k + 2))

        def histogram(level):
            """Sums [3, column HP, row V, column V] over the rows with this HP count."""
            chosen = by_count[edges[level]:edges[level + 1]]
            columns = cols[tile_of_row[chosen]]
            bins = ((columns[..., 0] * row_levels + rows[chosen, 1, None]) * col_levels
                    + columns[..., 1]).reshape(-1)
            mass = kept[chosen].reshape(-1)
            weights = (None, mass, mass * high[chosen].reshape(-1))
            return np.stack([np.bincount(bins, weight, col_levels * row_levels * col_levels)
                             for weight in weights]).reshape(3, col_levels, row_levels, col_levels)

        row_levels, col_levels = self.params.tile_k + 1, self.params.tile_q + 1
        grid = _grid(col_levels, row_levels, col_levels)
        decode = self._or_slices if self.params.rowcol_decode == "or" else self._and_slices
        for level, figures in decode(histogram, row_levels):
            first = np.full((len(grid), 1), level, dtype=np.int16)
            labels = np.concatenate([first, grid[:, 1:2], grid[:, 0:1], grid[:, 2:3]], axis=1)
            yield self._slice(labels, *figures)

    def _or_slices(self, histogram, levels):
        running = 0
        for level in range(levels):
            running = running + histogram(level)
            skipped = _at_most(running.copy(), (1, 2, 3))
            not_high = skipped[:, :, -1:, -1:]
            yield level, (skipped, not_high, not_high - skipped)

    def _and_slices(self, histogram, levels):
        total = sum(histogram(level).sum(axis=1) for level in range(levels))
        everything = self._total[:, None, None, None]
        in_v = _above(total, (1, 2))[:, None]                # row and column of V
        running = np.zeros(1)
        for level in reversed(range(levels)):
            # ``running`` holds the rows whose HP count is above ``level``.
            if level + 1 < levels:
                running = running + histogram(level + 1)
            else:
                running = np.zeros_like(histogram(level))
            both = _above(running, (1, 2, 3))
            in_high = _above(running.sum(axis=(2, 3)), (1,))[:, :, None, None]
            low = in_v - both
            yield level, (everything - in_high - low, everything - in_high, low)


def sweep_of(params):
    """The empty sweep of a codec."""
    return (BlockSweep if params.codec == "block" else RowColSweep)(params)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Thresholds by name, and the figures that they give."""

    thresholds: dict
    high: float
    valid: float
    cost: float
    lost: float
    demoted: float

    @property
    def figure(self):
        """What settings are ranked by: cost + 0.3 x demoted."""
        return self.cost + DEMOTED_WEIGHT * self.demoted


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of a codec.

    ``settings`` is the number of settings tried, ``high_mass`` the mass of high-precision elements;
    ``best`` has the best :class:`Setting` for each limit on the lost mass (or ``None``);
    ``front`` [n, 3] is the Pareto front of cost, lost and demoted up to the largest limit, and
    ``front_thresholds`` [n, m] the thresholds ``names`` of its points.
    """

    settings: int
    high_mass: float
    best: dict
    names: tuple
    front: np.ndarray
    front_thresholds: np.ndarray

    def front_within(self, limit):
        """Indices of the front of cost and demoted alone where at most ``limit`` is lost."""
        allowed = np.flatnonzero(self.front[:, 1] <= limit)
        demoted = self.front[allowed, 2]  # by rising cost: each must demote less than those before
        before = np.minimum.accumulate(np.concatenate([[np.inf], demoted[:-1]])[:len(demoted)])
        return allowed[demoted < before]


def evaluate(sweep, limits, on_slice=None):
    """Go through all settings of a sweep: the best ones, and the front up to the largest limit.

    ``limits`` are bounds on the lost mass; for each, the setting with the least
    ``cost + 0.3 * demoted`` is found. ``on_slice()`` is called after each slice.
    """
    front = ParetoFront((max(limits), FRONT_CELL[0]), (1.0, FRONT_CELL[1]))
    best, settings = dict.fromkeys(limits), 0
    for part in sweep.slices():
        cost = part.cost
        settings += len(cost)
        front.add(cost, part.lost, part.demoted, part.labels)
        figure = cost + DEMOTED_WEIGHT * part.demoted
        for limit in limits:
            masked = np.where(part.lost <= limit, figure, np.inf)
            at = int(masked.argmin())
            if masked[at] < (best[limit].figure if best[limit] else np.inf):
                best[limit] = Setting(
                    dict(zip(sweep.names, part.labels[at].tolist(), strict=True)),
                    *(float(figures[at]) for figures in (part.high, part.valid, cost, part.lost,
                                                         part.demoted)))
        if on_slice is not None:
            on_slice()
    return Result(settings, sweep.high_mass, best, sweep.names, *front.result)
