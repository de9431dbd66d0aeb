"""Reference of :mod:`rtl.apt.mask_decoder`: tile masks out of their code (APT 4.3)."""

import numpy as np

from golden.apt.mask_encoder import check_code
from golden.common.arith import as_int64


__all__ = ["decode"]


def _per_tile(name, value, high):
    value = as_int64(value)
    if value.size and not (value.min() >= 0 and value.max() <= high):
        worst = value.max() if value.max() > high else value.min()
        raise ValueError(f"{name} must be in 0..{high}, not {int(worst)}")
    return value[..., None, None]


def decode(code, refresh, rows, keys, params):
    """Masks ``HP`` and ``LP`` that the code of a tile stands for, or of a batch of tiles.

    With F_h and F_v the flags of an element's group (``block``), or the ``or`` (with
    ``rowcol_decode = and`` the ``and``) of its row's and its column's (``rowcol``)::

        HP = F_h & inside
        LP = (F_v | refresh) & ~F_h & inside

    Parameters
    ----------
    code : integers ``[..., params.flags]``
        Flag pairs, see :mod:`golden.apt.mask_encoder`.
    refresh, rows, keys : integers ``[...]``
        Refresh bit and valid rows and keys of each tile, 0 to ``tile_q`` and to ``tile_k``; an
        element is ``inside`` when its row and its key are below these. Scalars serve all tiles.

    Returns two bool arrays ``[..., tile_q, tile_k]``.
    """
    code = check_code(code, params)
    refresh = np.asarray(refresh)
    refresh = _per_tile("Refresh", refresh.view(np.uint8) if refresh.dtype == bool else refresh, 1)
    rows = _per_tile("Rows", rows, params.tile_q)
    keys = _per_tile("Keys", keys, params.tile_k)

    # From the short axis to the long one, on pairs: one pass for both planes.
    grid = code[..., params.row_flags:].reshape(*code.shape[:-1], *params.flag_grid)
    height, width = params.flag_block
    pairs = np.repeat(grid, width, axis=-1)[..., :params.tile_k] if width > 1 else grid
    pairs = np.repeat(pairs, height, axis=-2)[..., :params.tile_q, :]
    if params.row_flags:
        row = code[..., :params.row_flags, None]
        pairs = pairs | row if params.rowcol_decode == "or" else pairs & row
    pairs = pairs | (refresh << 1).astype(np.uint8)
    inside = ((np.arange(params.tile_q)[:, None] < rows)
              & (np.arange(params.tile_k) < keys))
    return (pairs & 1).view(bool) & inside, (pairs == 2) & inside
