"""Real attention tiles for tests and benches.

A tile is what the hardware works on: 64 queries and 128 keys of one head, as 16-bit fixed-point
codes, the unnormalized probabilities P' of the tile and the two rescaled thresholds of each row.
The committed file holds six, of three steps and three layers. ``TILEWRIGHT_TILES`` names another
file of the same form.
"""

import dataclasses
import importlib.resources
import os
import pathlib

import numpy as np

from golden.common.errors import UserError
from golden.common.files import writing_whole


__all__ = ["KEYS", "QUERIES", "THRESHOLD_NEVER", "Tile", "load_tiles", "save_tiles"]

#: Queries and keys of a stored tile.
QUERIES, KEYS = 64, 128
#: A threshold above every P' (U1.15 ends at 1.0 = 2**15).
THRESHOLD_NEVER = (1 << 15) + 1

_PLACE = ("step", "layer", "head", "query0", "key0")
_EXPONENTS = ("e_q", "e_k", "e_v")
_ARRAYS = {"q": np.int16, "k": np.int16, "v": np.int16, "p": np.uint16, "thresholds": np.int32}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """One attention tile.

    Parameters
    ----------
    step, layer, head : :class:`int`
        Where in the sampling run (steps and layers from 0).
    query0, key0 : :class:`int`
        First query and first key of the tile within the head.
    q, k, v : array
        Int16 codes [64, 64], [128, 64], [128, 64], |code| <= 32767: ``x = code * 2**-e``.
    e_q, e_k, e_v : :class:`int`
        The exponents ``e``, one a tensor and head.
    p : array
        Uint16 [64, 128]: P' = exp(S - max of S in the tile's row) in U1.15, S from the codes.
    thresholds : array
        Int32 [64, 2]: theta'_p and theta'_q of each row in U1.15, 1..2**15 + 1 (never); with rho of
        the previous step (APT 4.2).
    """

    step: int
    layer: int
    head: int
    query0: int
    key0: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    e_q: int
    e_k: int
    e_v: int
    p: np.ndarray
    thresholds: np.ndarray

    @property
    def masks(self):
        """Boolean ``high, low`` [64, 128]: the element masks that the thresholds make."""
        prune = self.p >= self.thresholds[:, 0, None]
        quant = self.p >= self.thresholds[:, 1, None]
        return prune & quant, prune & ~quant

    def crop(self, rows, keys, dim):
        """The tile in another size: cut where it is too large, repeated where it is too small.

        ``p`` and ``thresholds`` are cut and repeated with the rest, not computed anew: they are
        real vectors for the mask path, but no longer the softmax of the cropped ``q`` and ``k``.
        """
        for name, size in (("rows", rows), ("keys", keys), ("dim", dim)):
            if size < 1:
                raise ValueError(f"Tile {name} must be at least 1, not {size!r}")
        row, key = np.arange(rows) % self.q.shape[0], np.arange(keys) % self.k.shape[0]
        channel = np.arange(dim) % self.q.shape[1]
        return dataclasses.replace(
            self, q=self.q[np.ix_(row, channel)], k=self.k[np.ix_(key, channel)],
            v=self.v[np.ix_(key, channel)], p=self.p[np.ix_(row, key)],
            thresholds=self.thresholds[row])


def save_tiles(path, tiles):
    """Write tiles to a compressed .npz file; the same tiles give the same bytes."""
    arrays = {name: np.stack([getattr(tile, name) for tile in tiles]) for name in _ARRAYS}
    arrays["place"] = np.array([[getattr(tile, name) for name in _PLACE] for tile in tiles],
                               dtype=np.int32)
    arrays["exponents"] = np.array([[getattr(tile, name) for name in _EXPONENTS]
                                    for tile in tiles], dtype=np.int32)
    with writing_whole(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _default_path():
    override = os.environ.get("TILEWRIGHT_TILES")
    if override:
        return pathlib.Path(override)
    return importlib.resources.files(__package__) / "data" / "tiles.npz"


def load_tiles(path=None):
    """The tiles of a file: ``path``, else ``$TILEWRIGHT_TILES``, else the committed ones."""
    path = _default_path() if path is None else pathlib.Path(path)
    try:
        with path.open("rb") as file, np.load(file) as stored:
            arrays = {name: stored[name] for name in (*_ARRAYS, "place", "exponents")}
    except FileNotFoundError as error:
        raise UserError(f"tile file {path} does not exist: `python -m golden fixture -o PATH` "
                        "writes one") from error
    except (KeyError, ValueError, EOFError) as error:
        raise UserError(f"{path} must be a file that `golden fixture` wrote: {error}") from error
    for name, dtype in _ARRAYS.items():
        if arrays[name].dtype != dtype:
            raise UserError(f"{path}: {name} must be {np.dtype(dtype)}, not {arrays[name].dtype}")
    return [
        Tile(**dict(zip(_PLACE, place.tolist(), strict=True)),
             **dict(zip(_EXPONENTS, exponents.tolist(), strict=True)),
             **{name: arrays[name][number] for name in _ARRAYS})
        for number, (place, exponents) in enumerate(zip(arrays["place"], arrays["exponents"],
                                                        strict=True))
    ]
