"""Where tiles of a head's tensors lie in external memory.

See :mod:`golden.apt.panels` for what is in them.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

from golden.common.checks import ceil_div

from .params import AptParams
from .quad_shape import BLOCK_KEYS, OWNERS


__all__ = ["VALUE_BITS", "Layout", "Panel"]

#: Bits of a value of O, and of each half of a row word.
VALUE_BITS = 16


class Panel(NamedTuple):
    """Where the tiles of a panel lie and how large they are."""

    word_bits: int  #: from the beginning of one word to the next
    stride: int     #: beats from one tile to the next: those of a whole tile
    words: tuple    #: words of each tile
    beats: tuple    #: beats of each tile

    @property
    def total(self):
        """Beats of all tiles, with the gap after a tile that is not whole."""
        return self.stride * len(self.words)


@dataclass(frozen=True)
class Layout:
    """Panels of a sequence of ``tokens``.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; the layout must support it.
    tokens : :class:`int`
        Keys, at least 1; and queries, if these are not given.
    queries : :class:`int` or ``None``
        Queries, at least 1.
    """

    params: AptParams
    tokens: int
    queries: int | None = None

    def __post_init__(self):
        self.params.check_layout()
        if self.queries is None:
            object.__setattr__(self, "queries", self.tokens)
        for name in ("tokens", "queries"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name.capitalize()} must be an integer, not {value!r}")
            if value < 1:
                raise ValueError(f"{name.capitalize()} must be at least 1, not {value}")

    @property
    def query_tiles(self):
        return ceil_div(self.queries, self.params.tile_q)

    @property
    def key_tiles(self):
        return ceil_div(self.tokens, self.params.tile_k)

    @property
    def tile_rows(self):
        """Rows of each query tile."""
        return self._sizes(self.queries, self.params.tile_q)

    @property
    def tile_keys(self):
        """Keys of each key tile."""
        return self._sizes(self.tokens, self.params.tile_k)

    @staticmethod
    def _sizes(count, whole):
        rest = count % whole
        return (whole,) * (count // whole) + ((rest,) if rest else ())

    def _panel(self, whole, words, word_bits, head=0):
        def beats(count):
            return head + ceil_div(count * word_bits, self.params.beat_bits)
        return Panel(word_bits, beats(whole), tuple(words), tuple(map(beats, words)))

    def _operand(self, whole, counts, each, fields):
        """``each`` words of so many fields for each of ``counts`` parts of the tiles."""
        return self._panel(whole * each, [count * each for count in counts],
                           8 * ceil_div(fields * self.params.segment_bits, 8),
                           self.params.scale_beats)

    @functools.cached_property
    def q(self):
        p = self.params
        return self._operand(p.row_blocks, [ceil_div(rows, OWNERS) for rows in self.tile_rows],
                             2 * p.qk_chunks, OWNERS * p.qk_width)

    @functools.cached_property
    def k(self):
        p = self.params
        return self._operand(p.key_blocks,
                             [ceil_div(keys, BLOCK_KEYS) for keys in self.tile_keys],
                             2 * p.block_steps * p.qk_chunks, p.step_keys * p.qk_width)

    @functools.cached_property
    def v(self):
        p = self.params
        return self._operand(p.tile_k, self.tile_keys, 2 * p.column_passes, p.pv_width)

    @functools.cached_property
    def code(self):
        p = self.params
        tiles = self.query_tiles * self.key_tiles
        return self._panel(p.row_blocks, [p.row_blocks] * tiles, 2 * p.key_blocks)

    @functools.cached_property
    def state(self):
        words = [rows for rows in self.tile_rows for _ in range(self.key_tiles)]
        return self._panel(self.params.tile_q, words, self.params.state_bits)

    @functools.cached_property
    def rows(self):
        return self._panel(self.params.tile_q, self.tile_rows, 2 * VALUE_BITS)

    @functools.cached_property
    def o(self):
        return self._panel(self.params.tile_q, self.tile_rows, VALUE_BITS * self.params.head_dim)
