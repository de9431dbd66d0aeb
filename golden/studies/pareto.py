"""Pareto front of many points in three dimensions, to a resolution."""

import numpy as np


__all__ = ["ParetoFront"]


class ParetoFront:
    """Collects the front of points whose three coordinates are all to be small.

    The second and the third coordinate are cut into cells; of the points in a cell the one with
    the least first coordinate counts. So a point of the front may be dominated by another one that
    is better by less than a cell. Points beyond the limits are ignored.

    Parameters
    ----------
    second, third : (:class:`float`, :class:`float`)
        Limit and size of a cell.
    """

    def __init__(self, second, third):
        self._limits = second[0], third[0]
        self._sizes = second[1], third[1]
        # A point on a cell's upper edge belongs to it; zero has cells of its own.
        shape = tuple(int(np.ceil(limit / size)) + 1 for limit, size in (second, third))
        self._points = np.full((*shape, 3), np.inf)
        self._labels = None

    def add(self, first, second, third, labels):
        """Add points by coordinate; ``labels`` [n, m] are given back with the front."""
        if self._labels is None:
            self._labels = np.zeros((*self._points.shape[:2], labels.shape[1]), labels.dtype)
        inside = np.flatnonzero((second <= self._limits[0]) & (third <= self._limits[1]))
        row, col = (
            np.ceil(values[inside] / size).astype(np.int64).clip(0, cells - 1)
            for values, size, cells in zip((second, third), self._sizes, self._points.shape,
                                           strict=False))
        better = np.flatnonzero(first[inside] < self._points[row, col, 0])
        chosen, row, col = inside[better], row[better], col[better]
        falling = np.argsort(-first[chosen], kind="stable")  # the least of a cell is written last
        chosen, row, col = chosen[falling], row[falling], col[falling]
        self._points[row, col] = np.stack([first[chosen], second[chosen], third[chosen]], axis=1)
        self._labels[row, col] = labels[chosen]

    @property
    def result(self):
        """``points [n, 3], labels [n, m]`` of the front, by rising first coordinate."""
        first = self._points[..., 0]
        before = np.full((first.shape[0] + 1, first.shape[1] + 1), np.inf)
        before[1:, 1:] = np.minimum.accumulate(np.minimum.accumulate(first, axis=0), axis=1)
        on_front = first < np.minimum(before[:-1, 1:], before[1:, :-1])
        points, labels = self._points[on_front], self._labels[on_front]
        order = np.lexsort(points.T[::-1])
        return points[order], labels[order]
