"""Model of :mod:`rtl.common.bank_memory`: where each segment of a key tile lies, and reads."""

import numpy as np

from .arith import as_int64


__all__ = ["place", "read"]


def place(segments, params, table=None):
    """Segments of a key tile ``[..., tile_k, head_dim]`` as the banks hold them.

    Returns ``[..., lanes, slots, chunks, multipliers]``: position ``p`` of the tile is bank
    ``p % lanes``, slot ``p // lanes``, and holds key ``table[p]`` (by default key ``p``; -1 for
    none). Positions without a key and channels beyond ``head_dim`` are 0.

    Raises :class:`ValueError` for another shape, or a table that does not hold each key once.
    """
    segments = as_int64(segments)
    p = params
    if segments.shape[-2:] != (p.tile_k, p.head_dim):
        raise ValueError(f"Segments must be [..., {p.tile_k}, {p.head_dim}], "
                         f"not {list(segments.shape)}")
    positions = p.lanes * p.slots
    if table is None:
        table = np.full(positions, -1)
        table[:p.tile_k] = np.arange(p.tile_k)
    table = as_int64(table)
    if sorted(table[table >= 0].tolist()) != list(range(p.tile_k)) or len(table) > positions:
        raise ValueError(f"Table must hold each of {p.tile_k} keys once in {positions} positions")
    placed = np.zeros((*segments.shape[:-2], positions, p.chunks * p.multipliers), np.int64)
    where = np.flatnonzero(table >= 0)
    placed[..., where, :p.head_dim] = segments[..., table[where], :]
    placed = placed.reshape(*segments.shape[:-2], p.slots, p.lanes, p.chunks, p.multipliers)
    return placed.swapaxes(-4, -3)


def read(placed, chunk, slots, enable):
    """What one read returns: ``[lanes, multipliers]``, 0 for a bank that is not enabled."""
    slots, enable = as_int64(slots), np.asarray(enable, bool)
    rows = placed[np.arange(len(slots)), slots, chunk]
    return np.where(enable[:, None], rows, 0)
