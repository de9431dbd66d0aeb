"""Whole heads cut into tiles."""

__all__ = ["cut"]


def cut(head, tile_q, tile_k):
    """``[queries, keys]`` to ``[tiles, tile_q, tile_k]``: row of tiles by row of tiles.

    The tile must divide the head.
    """
    queries, keys = head.shape
    if queries % tile_q or keys % tile_k:
        raise ValueError(f"Tile must divide a head of {queries} x {keys}, not {tile_q} x {tile_k}")
    grid = head.reshape(queries // tile_q, tile_q, keys // tile_k, tile_k)
    return grid.transpose(0, 2, 1, 3).reshape(-1, tile_q, tile_k)
