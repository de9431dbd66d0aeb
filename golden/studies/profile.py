"""What a calibration needs to know of probabilities: their deviation and their distribution.

The probabilities of a head at a step are counted in bins of logarithmic width, ``1 / 64`` of an
octave's lower end, from ``2**-40`` to 1; the bins are the leading bits of a float32. So a whole
sampling run needs 20 kB for a head and step, and any threshold can be tried afterwards.
"""

import numpy as np


__all__ = ["BINS", "EDGES", "Profile", "statistics"]

_DROPPED_BITS = 17  # of a float32; six bits of the fraction remain
_FIRST = int(np.float32(2.0 ** -40).view(np.int32)) >> _DROPPED_BITS
_LAST = int(np.float32(1).view(np.int32)) >> _DROPPED_BITS

#: Number of bins; the first holds everything below ``2**-40`` too, the last 1 and above.
BINS = _LAST - _FIRST + 1
#: Edges of the bins, ``BINS + 1`` of them; the first is 0.
EDGES = (np.arange(_FIRST, _LAST + 2, dtype=np.int32) << _DROPPED_BITS).view(np.float32)
EDGES = np.concatenate([[0.0], EDGES[1:].astype(np.float64)])


def statistics(p):
    """``sigma, counts, mass`` of float32 probabilities ``[queries, keys]``.

    Their standard deviation over all elements, and by bin their number and their sum.
    """
    bins = np.ascontiguousarray(p, np.float32).view(np.int32).reshape(-1) >> _DROPPED_BITS
    bins = np.clip(bins - _FIRST, 0, BINS - 1)
    return (float(p.std(dtype=np.float64)), np.bincount(bins, minlength=BINS),
            np.bincount(bins, p.reshape(-1), BINS))


class Profile:
    """Statistics of heads and steps, summed over profiling runs.

    Parameters
    ----------
    steps, layers : :class:`tuple` of :class:`int`
        Steps and layers that are profiled, in rising order.
    heads : :class:`int`
        Heads of a layer.
    """

    def __init__(self, steps, layers, heads):
        self.steps, self.layers, self.heads = tuple(steps), tuple(layers), heads
        shape = len(self.layers), heads, len(self.steps)
        self._runs = np.zeros(shape, np.int64)
        self._sigma = np.zeros(shape)
        self._counts = np.zeros((*shape, BINS + 1))
        self._mass = np.zeros((*shape, BINS + 1))

    def add(self, step, layer, head, p):
        """Add the probabilities of a head of one run."""
        where = self.layers.index(layer), head, self.steps.index(step)
        sigma, counts, mass = statistics(p)
        self._runs[where] += 1
        self._sigma[where] += sigma
        self._counts[where][1:] += counts
        self._mass[where][1:] += mass

    @property
    def sigma(self):
        """Mean deviation over the runs ``[layers, heads, steps]``."""
        if not self._runs.all():
            raise ValueError("Every head must be profiled at every step")
        return self._sigma / self._runs

    def shares_below(self):
        """Shares ``[layers, heads, steps, BINS + 1]`` of elements below each of :data:`EDGES`."""
        below = self._counts.cumsum(-1)
        return below / below[..., -1:]

    def mass_below(self):
        """Shares of the mass (the sum of P) below each of :data:`EDGES`."""
        below = self._mass.cumsum(-1)
        return below / below[..., -1:]
