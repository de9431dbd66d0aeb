"""What the serial dataflow asks of the engine's parameters, and where things lie in its memory."""

from typing import NamedTuple

from golden.common.checks import ceil_div, check_choice

from .quad_shape import BLOCK_KEYS, OWNERS


__all__ = ["BANK_WORDS", "MemoryMap", "SERIAL_PRODUCTS", "SerialShape"]

#: Words of 32 bits in each of the two memory banks.
BANK_WORDS = 1 << 14
#: Segment products of a cycle.
SERIAL_PRODUCTS = 4


class MemoryMap(NamedTuple):
    """First word of each area. K and V are in bank 0, the others in bank 1."""

    k: int
    v: int
    bank0_end: int
    q: int
    o: int        #: four words a column pass and row
    lists: int    #: of a row: high precision below the middle, low precision above it
    z: int        #: logits of a row, then P'
    rows: int     #: 16 words a row
    pairs: int    #: old flag pairs of the tile
    new: int      #: new ones
    counts: int   #: of a block row: a word a key block
    blocks: int   #: what is computed of a block row: five words a block
    job: int
    bank1_end: int


class SerialShape:
    """Properties of :class:`~golden.apt.params.AptParams` for the serial dataflow.

    It has the layout of the quad dataflow with eight lanes of two multipliers: every word of Q, K
    and V is four segments, three bytes.
    """

    def check_serial(self):
        """Require what the serial dataflow needs; :class:`ValueError` names field and rule."""
        for field, wanted in (("dataflow", ("serial",)), ("lanes", (8,)), ("multipliers", (2,)),
                              ("segment_bits", (6,)), ("vpu_lanes", (4,)), ("beat_bytes", (1,))):
            check_choice(self, field, wanted)
        self.check_layout()
        words = self.memory_map
        for end, what in ((words.bank0_end, "K and V"), (words.bank1_end - BANK_WORDS, "Q and O")):
            if end > BANK_WORDS:
                raise ValueError(f"AptParams.tile_q and AptParams.tile_k must leave {what} at most "
                                 f"{BANK_WORDS} words, not {end}")

    def check_engine(self):
        """Require what the engine's dataflow needs; :class:`ValueError` in one line."""
        if self.dataflow == "serial":
            self.check_serial()
        else:
            self.check_quad()

    @property
    def products(self):
        """Segment products of the whole engine in a cycle."""
        return SERIAL_PRODUCTS if self.dataflow == "serial" else self.lanes * self.multipliers

    @property
    def memory_map(self):
        """The :class:`MemoryMap`."""
        pairs = self.row_blocks * self.key_blocks
        sizes = {
            "k": self.key_blocks * 4 * self.head_dim, "v": self.tile_k * 2 * self.column_passes,
            "q": self.row_blocks * 2 * self.head_dim,
            "o": self.tile_q * 4 * self.column_passes, "lists": 2 * self.tile_k,
            "z": self.tile_k, "rows": 16 * self.tile_q, "pairs": pairs + OWNERS,
            "new": pairs + OWNERS, "counts": self.key_blocks, "blocks": 5 * self.key_blocks,
            "job": 64,
        }
        places, at = {}, 0
        for name, size in sizes.items():
            if name == "q":
                places["bank0_end"], at = at, BANK_WORDS
            places[name] = at
            at += size
        return MemoryMap(**places, bank1_end=at)

    @property
    def code_bytes(self):
        """Bytes of a tile's masks."""
        return ceil_div(self.row_blocks * self.key_blocks, BLOCK_KEYS // 2)
