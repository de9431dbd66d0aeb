"""Count thresholds of the mask encoder within bounds on what the decoded masks lose."""

import numpy as np

from .codec_front import Setting


__all__ = ["choose_counts"]


def choose_counts(sweep, max_lost, max_demoted, on_slice=None):
    """The :class:`~golden.studies.codec_front.Setting` of the least cost within two bounds.

    ``sweep`` is a filled :class:`~golden.studies.codec_front.BlockSweep` or
    :class:`~golden.studies.codec_front.RowColSweep`. At most ``max_lost`` of all mass may be
    skipped though valid, and at most ``max_demoted`` of the mass in high precision may fall to
    low precision. Thresholds of 0 lose nothing, so there is always a setting. ``on_slice()`` is
    called after each slice of the sweep.
    """
    best = None
    for part in sweep.slices():
        # The tolerance is for sums of float32 that should be 0.
        allowed = ((part.lost <= max_lost + 1e-9)
                   & (part.demoted <= max_demoted * sweep.high_mass + 1e-9))
        cost = np.where(allowed, part.cost, np.inf)
        at = int(cost.argmin())
        if cost[at] < (best.cost if best else np.inf):
            best = Setting(dict(zip(sweep.names, part.labels[at].tolist(), strict=True)),
                           *(float(figures[at]) for figures in (part.high, part.valid, part.cost,
                                                                part.lost, part.demoted)))
        if on_slice is not None:
            on_slice()
    return best
