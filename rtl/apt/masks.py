"""Stream payloads that the mask blocks share."""

from amaranth.lib import data


__all__ = ["mask_word"]


def mask_word(width):
    """A word of ``width`` elements of both masks; element ``i`` is bit ``i`` of each field.

    A row of a tile is its keys in natural order; the last word of a row is padded with zeros.
    """
    return data.StructLayout({"hp": width, "lp": width})
