"""What the quad dataflow asks of the engine's parameters, and what it derives from them."""

import math

from golden.common.checks import ceil_div, ceil_log2, check_choice, check_int


__all__ = ["BLOCK_KEYS", "MOST_KEYS", "OWNERS", "QuadShape"]

#: Owners of query rows, and with them the rows of a mask block.
OWNERS = 4
#: Keys of a mask block.
BLOCK_KEYS = 8
#: Keys of the longest tile.
MOST_KEYS = 512


class QuadShape:
    """Properties of :class:`~golden.apt.params.AptParams` for the quad dataflow.

    Four owners of rows, each of ``lanes / 4`` lanes.
    """

    def check_quad(self):
        """Require what the quad dataflow needs; :class:`ValueError` names the field and the rule.

        Four owners of one, two or four lanes; multipliers in pairs that share a factor; balanced
        segments; blocks of four rows, one an owner, and of eight keys.
        """
        check_choice(self, "dataflow", ("quad",))
        self.check_layout()

    def check_layout(self):
        """Require what the layout of tensors in memory needs, which all dataflows share."""
        for field, wanted in (("lanes", (4, 8, 16)), ("split", ("balanced",)),
                              ("codec", ("block",)), ("block_rows", (OWNERS,)),
                              ("block_cols", (BLOCK_KEYS,))):
            check_choice(self, field, wanted)
        check_int(self, "multipliers", low=2, high=64, multiple_of=2)
        check_int(self, "tile_q", low=OWNERS, high=256, multiple_of=OWNERS)
        check_int(self, "tile_k", low=BLOCK_KEYS, high=MOST_KEYS, multiple_of=BLOCK_KEYS)
        check_int(self, "vpu_lanes", low=OWNERS, high=OWNERS * BLOCK_KEYS, multiple_of=OWNERS)
        check_choice(self, "vpu_lanes", (4, 8, 16, 32))

    @property
    def owner_lanes(self):
        """Lanes of an owner; in QK each has two keys of a block, in PV ``multipliers`` columns."""
        return self.lanes // OWNERS

    @property
    def row_blocks(self):
        """Block rows of a tile: its rows by fours, one an owner."""
        return ceil_div(self.tile_q, OWNERS)

    @property
    def key_blocks(self):
        """Key blocks of a tile: its keys by eights."""
        return ceil_div(self.tile_k, BLOCK_KEYS)

    @property
    def qk_width(self):
        """Channels a cycle in QK: half the multipliers, each pair has one channel of two keys."""
        return self.multipliers // 2

    @property
    def qk_chunks(self):
        """Cycles of a pass over a head's channels in QK; the last chunk may be short."""
        return ceil_div(self.head_dim, self.qk_width)

    @property
    def step_keys(self):
        """Keys of a block that QK works on at once: two a lane."""
        return 2 * self.owner_lanes

    @property
    def block_steps(self):
        """Groups of ``step_keys`` keys in a block."""
        return BLOCK_KEYS // self.step_keys

    @property
    def slice_keys(self):
        """Keys a cycle in each of the four slices of the vector unit."""
        return self.vpu_lanes // OWNERS

    @property
    def pv_width(self):
        """Columns of V that an owner works on at once."""
        return self.owner_lanes * self.multipliers

    @property
    def column_passes(self):
        """Times that PV goes through a row's elements: once for every ``pv_width`` columns."""
        return ceil_div(self.head_dim, self.pv_width)

    @property
    def run_bits(self):
        """Signed sum of a run of PV: of the levels HH, HL + LH and LL the second can be largest,
        two products of ``31 * 32`` an element (with 6-bit segments)."""
        half = 1 << (self.segment_bits - 1)
        return (2 * (half - 1) * half * self.tile_k).bit_length() + 1

    @property
    def logit_acc_bits(self):
        """Signed dot product of a query and a key; with balanced segments, which
        :attr:`acc_bits` does not assume, no low-precision one is larger."""
        return (self.head_dim * self.qmax ** 2).bit_length() + 1

    @property
    def sum_bits(self):
        """Signed sum of P times V over the keys of a tile."""
        low, _ = self.msb_range
        return (self.tile_k * max(self.qmax ** 2, low * low << self.word_bits)).bit_length() + 1

    def o_shift(self, key_tiles):
        """Places that a tile's sums are shifted right by, so that O of so many tiles fits 32
        bits."""
        return max(0, self.sum_bits + ceil_log2(key_tiles) - 32)

    @property
    def log2_qmax_squared(self):
        """``log2(qmax**2)`` with twelve fraction bits, to nearest: what a word of P times a word
        of V is worth."""
        return round(4096 * math.log2(self.qmax ** 2))

    @property
    def total_bits(self):
        """Row sum of P' of a tile, U.15."""
        return (self.tile_k << 15).bit_length()
