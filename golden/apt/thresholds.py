"""Run-time count thresholds of the mask encoder, by codec (APT 4.3)."""

from typing import NamedTuple

import numpy as np


__all__ = ["THRESHOLDS", "BlockThresholds", "RowColThresholds", "check_thresholds"]


class RowColThresholds(NamedTuple):
    """Count thresholds of ``rowcol``; the fields are the encoder's static inputs."""

    k_row_hp: int = 0
    k_row_v: int = 0
    k_col_hp: int = 0
    k_col_v: int = 0


class BlockThresholds(NamedTuple):
    """Count thresholds of ``block``; the fields are the encoder's static inputs."""

    k_hp: int = 0
    k_v: int = 0


#: The thresholds that each codec takes.
THRESHOLDS = {"rowcol": RowColThresholds, "block": BlockThresholds}


def check_thresholds(thresholds, params):
    """The thresholds as the codec's named tuple.

    Each is from 0 (a flag for any set element) to the full count of its group (never a flag).
    Raises :class:`TypeError` for the kind and :class:`ValueError` for the range.
    """
    kind = THRESHOLDS[params.codec]
    if not isinstance(thresholds, kind):
        raise TypeError(f"Thresholds of codec {params.codec} must be {kind.__name__}, "
                        f"not {thresholds!r}")
    rows, cols = params.flag_block
    for name, value in thresholds._asdict().items():
        high = params.tile_k if name.startswith("k_row") else rows * cols
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{kind.__name__}.{name} must be an integer, not {value!r}")
        if not 0 <= value <= high:
            raise ValueError(f"{kind.__name__}.{name} must be in 0..{high}, not {value}")
    return thresholds
