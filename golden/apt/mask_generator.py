"""Reference of :mod:`rtl.apt.mask_generator`: element masks from tile probabilities (APT 4.3)."""

import numpy as np


__all__ = ["P_ONE", "NEVER", "generate"]

#: 1.0 in U1.15, the largest P'.
P_ONE = 1 << 15
#: The threshold that no P' reaches.
NEVER = P_ONE + 1


def _checked(name, value, low, high):
    """As uint16: every legal value fits, and comparisons in it are the fastest."""
    value = np.asarray(value)
    if value.dtype.kind not in "iu":
        raise TypeError(f"{name} must have an integer dtype, not {value.dtype}")
    if value.size and not (low <= value.min() and value.max() <= high):
        worst = value.max() if value.max() > high else value.min()
        raise ValueError(f"{name} must be in {low}..{high}, not {int(worst)}")
    return value.astype(np.uint16, copy=False)


def generate(p, thresholds):
    """Masks ``HP`` and ``LP`` of the elements of a tile, or of a batch of tiles.

    ``prun_bit = P' >= theta'_p`` and ``quant_bit = P' >= theta'_q``; ``HP = prun_bit & quant_bit``
    and ``LP = prun_bit & ~quant_bit``. A threshold is at least 1, so an element with ``P' = 0``
    (outside the sequence, or never computed) is in neither.

    Parameters
    ----------
    p : integers ``[..., rows, keys]``
        P' in U1.15, 0 to ``P_ONE``.
    thresholds : integers ``[..., rows, 2]``
        theta'_p and theta'_q of each row in U1.15, 1 to ``NEVER``.

    Returns two bool arrays of the shape of ``p``.
    """
    p = _checked("P'", p, 0, P_ONE)
    thresholds = _checked("Thresholds", thresholds, 1, NEVER)
    if thresholds.shape != (*p.shape[:-1], 2):
        raise ValueError(f"Thresholds must have the shape {(*p.shape[:-1], 2)}, "
                         f"not {thresholds.shape}")
    prun = p >= thresholds[..., 0, None]
    quant = p >= thresholds[..., 1, None]
    return prun & quant, prun & ~quant
