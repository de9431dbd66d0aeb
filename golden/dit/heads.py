"""Calibrated attention heads: probabilities, thresholds per head and step, element masks.

The heads that Tilewright's figures are stated for: one sampling run, three steps, three layers, all
heads, with thresholds that prune 57.3 % of the elements and keep 9.1 % in high precision, the
operating point that APT reports for PixArt.
"""

import dataclasses

import numpy as np

from .capture import Capture, capture


__all__ = ["CATEGORY", "HIGH_SHARE", "LAYERS", "PRUNED_SHARE", "SEED", "STEPS", "STYLE", "Head",
           "calibrated_heads", "calibrate", "masks_of", "probabilities", "study_capture"]

#: The run: animals, fluent3d, noise of seed 3, the guided pass.
CATEGORY, STYLE, SEED = 2, 2, 3
#: Early, middle and late steps; first, middle and last layer.
STEPS, LAYERS = (4, 14, 24), (0, 4, 9)
#: Share of the elements that is pruned, and share that is in high precision.
PRUNED_SHARE, HIGH_SHARE = 0.573, 0.091


def probabilities(q, k):
    """Attention probabilities [queries, keys], float32, of ``q`` and ``k`` [tokens, 64]."""
    scores = (q / np.float32(np.sqrt(q.shape[-1]))) @ k.T
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def calibrate(p, *, pruned=PRUNED_SHARE, high=HIGH_SHARE):
    """Thresholds ``theta_p, theta_q`` of a whole head: the quantiles that give the two shares."""
    theta_p, theta_q = np.quantile(p, [pruned, 1 - high])
    return float(theta_p), float(theta_q)


def masks_of(p, theta_p, theta_q):
    """Element masks ``high, valid`` of probabilities; valid is high or low precision."""
    valid = p >= theta_p
    return (p >= theta_q) & valid, valid


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Head:
    """One head of one step: probabilities [1024, 1024] and its element masks, both boolean."""

    step: int
    layer: int
    head: int
    p: np.ndarray
    high: np.ndarray
    valid: np.ndarray

    @property
    def name(self):
        """Short name for tables and files."""
        return f"step {self.step} layer {self.layer} head {self.head}"


def study_capture(path=None, *, on_step=None):
    """The :class:`~golden.dit.capture.Capture` of the study heads; kept in ``path`` if given."""
    if path is not None:
        try:
            return Capture.load(path)
        except FileNotFoundError:
            pass
    taken = capture(category=CATEGORY, style=STYLE, seed=SEED, steps=STEPS, layers=LAYERS,
                    on_step=on_step)
    if path is not None:
        taken.save(path)
    return taken


def calibrated_heads(taken, *, pruned=PRUNED_SHARE, high=HIGH_SHARE):
    """Yield the :class:`Head` of every step, layer and head of a capture, one at a time."""
    for step in taken.steps:
        for layer in taken.layers:
            for head in range(taken.q.shape[2]):
                q, k, _ = taken.at(step, layer, head)
                p = probabilities(q, k)
                high_mask, valid = masks_of(p, *calibrate(p, pruned=pruned, high=high))
                yield Head(step=step, layer=layer, head=head, p=p, high=high_mask, valid=valid)
