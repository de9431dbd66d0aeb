"""Thresholds of heads and steps out of a profile (APT 3.1).

A threshold is wanted that leaves a *share* of the elements, or of the mass, below it. The value
that does so at one head and step is a quantile of its probabilities. The paper's rule gives
thresholds of a head from its deviation,

    theta(t) = alpha * (sigma(t) - min) / (max - min) + beta,

with one pair ``alpha, beta`` for the model or one for each head. A pair is the straight line that
is nearest to the quantiles, relative to them, scaled so that the share over all its heads and steps
is the wanted one.
"""

from typing import NamedTuple

import numpy as np

from .profile import EDGES


__all__ = ["PER", "Fit", "fit", "fit_above", "quantiles", "relative_sigma", "share_at"]

#: For what a pair ``alpha, beta`` serves; ``step``: no rule, the quantile of every head and step.
PER = ("head", "model", "step")
#: Thresholds are within what a code of Q5.11 can say.
_SMALLEST, _LARGEST = 2.0 ** -31.9, 1.0
_BISECTIONS = 50


class Fit(NamedTuple):
    """Thresholds, and the rule that they come from."""

    theta: np.ndarray  #: ``[layers, heads, steps]``
    alpha: np.ndarray  #: ``[layers, heads]``; NaN where there is no rule
    beta: np.ndarray


def _interpolate(x, xs, ys):
    """``np.interp`` along the last axis of ``xs`` or ``ys``, whichever has heads and steps."""
    result = np.empty(x.shape)
    for where in np.ndindex(x.shape):
        result[where] = np.interp(x[where], xs[where] if xs.ndim > 1 else xs,
                                  ys[where] if ys.ndim > 1 else ys)
    return result


def quantiles(below, share):
    """Thresholds ``[layers, heads, steps]`` with the share below each; ``below`` by edge."""
    theta = _interpolate(np.full(below.shape[:-1], share), below, EDGES)
    return np.clip(theta, _SMALLEST, _LARGEST)


def share_at(below, theta):
    """Share below the thresholds, of each head and step."""
    return _interpolate(theta, EDGES, below)


def relative_sigma(sigma):
    """``(sigma - min) / (max - min)`` of each head over its steps; 0 where all are the same."""
    low = sigma.min(-1, keepdims=True)
    width = sigma.max(-1, keepdims=True) - low
    return np.divide(sigma - low, width, where=width > 0, out=np.zeros_like(sigma))


def _line(x, wanted):
    """Values at ``x = 0`` and ``x = 1`` of the line with the least relative error.

    Both are kept within the wanted values, so that the line is positive.
    """
    x, wanted = x.reshape(-1), wanted.reshape(-1)
    slope, start = np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1) / wanted[:, None],
                                   np.ones_like(x), rcond=None)[0]
    return np.clip([start, start + slope], wanted.min(), wanted.max())


def _scaled(ends, x, below, share):
    """The line times what gives the share over all heads and steps: by bisection."""
    line = ends[0] + (ends[1] - ends[0]) * x
    low, high = np.log(_SMALLEST / line.min()), np.log(_LARGEST / line.max())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if share_at(below, line * np.exp(middle)).mean() <= share:
            low = middle
        else:
            high = middle
    return ends * np.exp(low)


def fit(below, sigma, share, per):
    """The :class:`Fit` of thresholds with the share below them; ``per`` is one of :data:`PER`.

    ``below`` ``[layers, heads, steps, edges]`` are shares of elements or of mass.
    """
    wanted = quantiles(below, share)
    pairs = np.full((2, *sigma.shape[:2]), np.nan)
    if per == "step":
        return Fit(wanted, *pairs)
    x = relative_sigma(sigma)
    if per == "model":
        groups = [(slice(None), slice(None))]
    else:
        groups = [(slice(layer, layer + 1), slice(head, head + 1))
                  for layer, head in np.ndindex(sigma.shape[:2])]
    for group in groups:
        start, end = _scaled(_line(x[group], wanted[group]), x[group], below[group], share)
        pairs[0][group], pairs[1][group] = end - start, start
    return Fit(pairs[0][..., None] * x + pairs[1][..., None], *pairs)


def fit_above(first, second, sigma):
    """The second fit, raised to the first where it is below it (APT: quant above prune).

    Lines that are ordered at both ends are ordered everywhere, so the rule still holds.
    """
    if np.isnan(first.alpha).any():
        return second._replace(theta=np.maximum(first.theta, second.theta))
    beta = np.maximum(first.beta, second.beta)
    alpha = np.maximum(first.beta + first.alpha, second.beta + second.alpha) - beta
    return Fit(alpha[..., None] * relative_sigma(sigma) + beta[..., None], alpha, beta)
