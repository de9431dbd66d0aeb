"""How busy the lanes are behind the address translator on real attention.

Lane utilisation = valid elements / (lanes x issue slots): a slot is the ``head_dim / multipliers``
cycles for which the lanes keep one line, and a slot in which they have none because the scanner is
behind counts as lost. Tiles of a head follow each other without a pause; the cycles are those of
the block's model, :func:`golden.apt.address_translator.transfer_cycles`.
"""

import dataclasses

import numpy as np

from golden.apt.address_translator import schedule, transfer_cycles
from golden.apt.params import AptParams
from golden.apt.placement import placement_tables

from .tiling import cut


__all__ = ["WINDOWS", "Usage", "bank_bound", "engine", "head_usage"]

#: Rows that may be open at once; at most a tile has.
WINDOWS = (1, 2, 4, 8, 64)


@dataclasses.dataclass(frozen=True)
class Usage:
    """Valid elements, and places for them: lanes x slots, which need not be whole."""

    elements: int = 0
    places: float = 0.0

    def __add__(self, other):
        return Usage(self.elements + other.elements, self.places + other.places)

    @property
    def share(self):
        """Lane utilisation, 0 to 1."""
        return self.elements / self.places


def engine(tile_q, tile_k, placement):
    """The engine of the study: 16 lanes of 16 multipliers, 64 channels."""
    return AptParams(tile_q=tile_q, tile_k=tile_k, placement=placement)


def bank_bound(tiles, tables, params):
    """Usage that no window exceeds: in each tile a slot for every element of the fullest bank."""
    columns = np.take_along_axis(tiles.sum(axis=1), tables, axis=1)
    padded = np.zeros((len(tiles), params.slots * params.lanes), np.int64)
    padded[:, :params.tile_k] = columns
    loads = padded.reshape(len(tiles), params.slots, params.lanes).sum(axis=1)
    return Usage(int(columns.sum()), params.lanes * int(loads.max(axis=1).sum()))


def head_usage(mask, params, windows):
    """:class:`Usage` of one head's mask ``[queries, keys]`` for each window, and the bound.

    The placement tables are made from each tile's own mask.
    """
    tiles = cut(mask, params.tile_q, params.tile_k)
    tables = placement_tables(tiles, params)
    usages = []
    for window in windows:
        plan = schedule(tiles, params, min(window, params.tile_q), tables)
        cycles = int(transfer_cycles(plan, params.chunks)[-1]) + params.chunks
        usages.append(Usage(int(mask.sum()), params.lanes * cycles / params.chunks))
    return [*usages, bank_bound(tiles, tables, params)]
