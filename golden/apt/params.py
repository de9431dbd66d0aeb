"""Parameters of the APT engine: every free choice a field, every derived width a property."""

import math
from dataclasses import dataclass

from golden.common.checks import ceil_div, ceil_log2, check_choice, check_int

from .quad_shape import QuadShape
from .serial_shape import SerialShape


__all__ = ["AptParams", "CODECS", "CODE_BITS", "DATAFLOWS", "EXP2", "MULTIPLIER_STYLES",
           "PLACEMENTS", "ROWCOL_DECODES", "ROW_ALIGN", "SCALE_BITS", "SPLITS", "STATE_BITS"]

#: How an engine is built: four owners of rows and their lanes, or a processor with four
#: multipliers. Results and the layout of memory are the same.
DATAFLOWS = ("quad", "serial")
#: How a word is cut into two segments: two's complement digits, or MSB rounded and LSB signed.
SPLITS = ("truncate", "balanced")
#: Tile mask compression: row and column flags (APT 4.3), or one flag a block (ours).
CODECS = ("rowcol", "block")
#: How ``rowcol`` joins its row and column flags (APT 4.3 is ``or``).
ROWCOL_DECODES = ("or", "and")
#: Which bank holds which key of a tile (APT 4.4 is ``modulo``).
PLACEMENTS = ("modulo", "balanced", "correlated")
#: Multipliers out of logic cells, left to the synthesizer's DSP inference, or out of logic cells
#: but for two products that share a factor, which are one product for a DSP block.
MULTIPLIER_STYLES = ("lut", "dsp", "packed")
#: How powers of two are made: 16 chords, or a table of 256 (numerics 4.8).
EXP2 = ("pwl16", "table")
#: Bits of a word of TAFA state (numerics 4.2).
STATE_BITS = (16, 8)
#: Bits of a word of compressed tile masks.
CODE_BITS = 16
#: Bits of a VPU word, and so of a tile's scale word.
SCALE_BITS = 16
#: A row's elements are padded to a multiple of this in a memory image (numerics 4.6).
ROW_ALIGN = 16


@dataclass(frozen=True, kw_only=True)
class AptParams(QuadShape, SerialShape):
    """Shape of an APT engine; models, components, benches and the command line share it.

    Parameters
    ----------
    dataflow : :class:`str`
        ``quad``, or ``serial``: the engine of least area, which some other fields then allow one
        value for; see :meth:`~golden.apt.serial_shape.SerialShape.check_serial`.
    lanes : :class:`int`
        DP-MACs, and with them banks (APT 4.5: 16). 2 to 64.
    multipliers : :class:`int`
        Segment multipliers in each DP-MAC (APT 4.5: 16). 1 to 64.
    head_dim : :class:`int`
        Channels of a head. 1 to 256; need not be a multiple of ``multipliers``.
    tile_q, tile_k : :class:`int`
        Query rows and keys of a tile. 2 to 256 and 2 to 512, ``tile_k`` at least ``lanes``.
    segment_bits : :class:`int`
        Bits of a segment; a word has two. 3 to 8 (APT: 6, so 6-bit and 12-bit arithmetic).
    split : :class:`str`
        ``truncate`` (two's complement digits, as in the paper) or ``balanced`` (MSB rounded).
    multiplier_style : :class:`str`
        ``lut`` (logic cells), ``dsp`` (left to the synthesizer's inference) or ``packed`` (two
        products that share a factor in one DSP block, others in logic cells).
    vpu_lanes : :class:`int`
        Elements a cycle of the mask generator and encoder, the quantizer and the data aligner.
        2 to 64.
    codec : :class:`str`
        ``rowcol`` (the paper's) or ``block``.
    rowcol_decode : :class:`str`
        ``or`` (the paper's) or ``and`` of row and column flags; for codec ``rowcol``.
    block_rows, block_cols : :class:`int`
        Block of the ``block`` codec, in elements. Blocks at the far edges of a
        tile may be short.
    placement : :class:`str`
        ``modulo`` (key mod lanes, the paper's), ``balanced`` or ``correlated``.
    window_qk, window_pv : :class:`int`
        Query rows that the address translator may keep open at once. 1 to ``tile_q``.
    beat_bytes : :class:`int`
        Bytes of a beat of the memory port. 1 to 64.
    exp2 : :class:`str`
        ``pwl16`` (16 chords) or ``table`` (256 values) for P' and thresholds.
    state_bits : :class:`int`
        Bits of a word of TAFA state: 16, or 8 relative to the row.
    """

    dataflow: str = "quad"
    lanes: int = 16
    multipliers: int = 16
    head_dim: int = 64
    tile_q: int = 64
    tile_k: int = 128
    segment_bits: int = 6
    split: str = "balanced"
    multiplier_style: str = "packed"
    vpu_lanes: int = 16
    codec: str = "block"
    rowcol_decode: str = "or"
    block_rows: int = 4
    block_cols: int = 8
    placement: str = "correlated"
    window_qk: int = 4
    window_pv: int = 2
    beat_bytes: int = 16
    exp2: str = "pwl16"
    state_bits: int = 16

    def __post_init__(self):
        check_choice(self, "dataflow", DATAFLOWS)
        check_int(self, "lanes", low=2, high=64)
        check_int(self, "multipliers", low=1, high=64)
        check_int(self, "head_dim", low=1, high=256)
        check_int(self, "tile_q", low=2, high=256)
        check_int(self, "tile_k", low=2, high=512)
        check_int(self, "segment_bits", low=3, high=8)
        check_choice(self, "split", SPLITS)
        check_choice(self, "multiplier_style", MULTIPLIER_STYLES)
        check_int(self, "vpu_lanes", low=2, high=64)
        check_choice(self, "codec", CODECS)
        check_choice(self, "rowcol_decode", ROWCOL_DECODES)
        check_int(self, "block_rows", low=1, high=256)
        check_int(self, "block_cols", low=1, high=512)
        check_choice(self, "placement", PLACEMENTS)
        check_int(self, "window_qk", low=1, high=self.tile_q)
        check_int(self, "window_pv", low=1, high=self.tile_q)
        check_int(self, "beat_bytes", low=1, high=64)
        check_choice(self, "exp2", EXP2)
        check_choice(self, "state_bits", STATE_BITS)
        if self.tile_k < self.lanes:
            raise ValueError(f"AptParams.tile_k must be at least AptParams.lanes ({self.lanes}), "
                             f"not {self.tile_k}")

    # Words and segments (numerics 4.6, 4.7)

    @property
    def word_bits(self):
        """Bits of a high-precision word: two segments."""
        return 2 * self.segment_bits

    @property
    def qmax(self):
        """Largest magnitude of a quantized word: 2047, or 2015 where the MSB is rounded."""
        top = (1 << (self.word_bits - 1)) - 1
        return top if self.split == "truncate" else top - (1 << (self.segment_bits - 1))

    @property
    def msb_range(self):
        """Smallest and largest MSB segment of a word in ``-qmax..qmax``."""
        half = 1 << (self.segment_bits - 1)
        return (-half, half - 1) if self.split == "truncate" else (-half + 1, half - 1)

    @property
    def lsb_range(self):
        """Smallest and largest LSB segment."""
        if self.split == "truncate":
            return 0, (1 << self.segment_bits) - 1
        half = 1 << (self.segment_bits - 1)
        return -half, half - 1

    @property
    def inverse_bits(self):
        """Bits of the quantizer's reciprocal ``floor(qmax * 2**16 / A)``, ``A`` at least 1; the
        product of it and a magnitude up to ``A`` needs no more."""
        return (self.qmax << SCALE_BITS).bit_length()

    # Memory image of a tile (numerics 4.6)

    @property
    def beat_bits(self):
        """Bits of a beat."""
        return 8 * self.beat_bytes

    @property
    def image_dim(self):
        """Elements of an image row: ``head_dim`` padded to a multiple of ``ROW_ALIGN``."""
        return ceil_div(self.head_dim, ROW_ALIGN) * ROW_ALIGN

    @property
    def dim_words(self):
        """Words of ``vpu_lanes`` elements in a row of ``head_dim``; the last may be short."""
        return ceil_div(self.head_dim, self.vpu_lanes)

    @property
    def image_words(self):
        """Words of ``vpu_lanes`` elements in an image row; the last may be short."""
        return ceil_div(self.image_dim, self.vpu_lanes)

    @property
    def image_chunk(self):
        """Elements of an image row's words but for the last."""
        return min(self.vpu_lanes, self.image_dim)

    @property
    def image_tail(self):
        """Elements of an image row's last word."""
        return self.image_dim - (self.image_words - 1) * self.image_chunk

    @property
    def dim_tail(self):
        """Elements of ``head_dim`` in the last of its ``dim_words`` words."""
        return self.head_dim - (self.dim_words - 1) * self.image_chunk

    @property
    def image_unit(self):
        """Bits of which the words of an image row and a beat are multiples."""
        return math.gcd(self.image_chunk * self.segment_bits,
                        self.image_tail * self.segment_bits, self.beat_bits)

    @property
    def scale_beats(self):
        """Beats of an image's scale word: it is padded to whole beats, as planes are."""
        return ceil_div(SCALE_BITS, self.beat_bits)

    @property
    def max_rows(self):
        """Rows of the largest tile of Q, K or V."""
        return max(self.tile_q, self.tile_k)

    @property
    def rows_bits(self):
        """Bits of a number of rows, 1 to ``max_rows``."""
        return ceil_log2(self.max_rows + 1)

    def plane_beats(self, rows):
        """Beats of one segment plane of a tile of so many rows."""
        return ceil_div(rows * self.image_dim * self.segment_bits, self.beat_bits)

    def image_bytes(self, rows):
        """Bytes of the memory image of a tile of so many rows."""
        return (self.scale_beats + 2 * self.plane_beats(rows)) * self.beat_bytes

    # DP-MAC

    @property
    def pass_bits(self):
        """Signed, negated sum of one pass: ``multipliers`` products of segments.

        ``balanced`` segments are -32 at the least, and that squared is the largest product: its
        negative takes a bit less.
        """
        half = 1 << (self.segment_bits - 1)
        largest = (2 * half - 1) ** 2 if self.split == "truncate" else half * half
        smallest = half * (2 * half - 1 if self.split == "truncate" else half - 1)
        return max((self.multipliers * largest - 1).bit_length(),
                   (self.multipliers * smallest).bit_length()) + 1

    @property
    def max_terms(self):
        """Longest dot product: channels in QK, keys in PV."""
        return max(self.head_dim, self.tile_k)

    @property
    def acc_bits(self):
        """Signed accumulator that no dot product of ``max_terms`` words can overflow.

        The worst case is all words ``-qmax`` for high precision (``qmax**2`` a term) or all MSB
        segments at their most negative for low precision.
        """
        low, _ = self.msb_range
        low_precision = low * low << self.word_bits
        worst = self.max_terms * max(self.qmax ** 2, low_precision)
        return worst.bit_length() + 1

    # Tiles

    @property
    def slots(self):
        """Keys that a bank holds of a tile: position ``p`` is bank ``p % lanes``, slot
        ``p // lanes``."""
        return ceil_div(self.tile_k, self.lanes)

    @property
    def slot_bits(self):
        """Bits of a bank address: a key's position without its bank (APT 4.4)."""
        return max(1, ceil_log2(self.slots))

    @property
    def bank_bits(self):
        """Bits of a bank's number."""
        return ceil_log2(self.lanes)

    @property
    def chunks(self):
        """Cycles of one pass over a head's channels; the last chunk may be short."""
        return ceil_div(self.head_dim, self.multipliers)

    @property
    def chunk_bits(self):
        """Bits of a chunk's number, at least one."""
        return max(1, ceil_log2(self.chunks))

    @property
    def key_bits(self):
        """Bits of a key index within its tile."""
        return ceil_log2(self.tile_k)

    @property
    def row_bits(self):
        """Bits of a row index within its tile."""
        return ceil_log2(self.tile_q)

    @property
    def vpu_words(self):
        """Words of ``vpu_lanes`` elements in a tile row of ``tile_k``; the last may be short."""
        return ceil_div(self.tile_k, self.vpu_lanes)

    # Address translator (APT 4.4)

    def att_window(self, window=None):
        """A checked window: ``window_qk`` if there is none, otherwise 1 to ``tile_q`` rows."""
        window = self.window_qk if window is None else window
        if not isinstance(window, int) or isinstance(window, bool):
            raise TypeError(f"Window must be an integer, not {window!r}")
        if not 1 <= window <= self.tile_q:
            raise ValueError(f"Window must be in 1..{self.tile_q}, not {window}")
        return window

    def att_depth(self, window):
        """Entries of a bank's FIFO, a power of two: lines that may be begun and not complete.

        Room for the lines of a row, for 16 lines that other banks are ahead (or most of what the
        window's other rows can have), and for two lines in passing: one that is begun and one
        that is popped in the same cycle. On real masks more drift gains less than 0.01.
        """
        drift = min((window - 1) * self.slots * 3 // 4, 16)
        return 1 << ceil_log2(self.slots + 2 + drift)

    def att_skew(self, window):
        """Lines that the banks may have drifted apart when a row begins."""
        return min((window - 1) * self.slots, self.att_depth(window) - self.slots - 2)

    @property
    def att_lines(self):
        """Complete lines that the address translator stores ahead of their issue.

        A scan takes as long for a sparse tile as for a dense one; this store lets the lines of a
        dense tile cover for it. Half of the lines that a tile may have, a power of two, 2 to 256.
        """
        return min(256, 1 << max(1, (self.tile_q * self.slots // 2).bit_length() - 1))

    # Compressed masks (numerics 4.4). A flag pair is the HP flag and, above it, the V flag.

    @property
    def flag_block(self):
        """Rows and columns of the elements that share a flag pair, at most the tile's;
        ``rowcol``'s column flags are blocks as tall as the tile."""
        if self.codec == "rowcol":
            return self.tile_q, 1
        return min(self.block_rows, self.tile_q), min(self.block_cols, self.tile_k)

    @property
    def flag_grid(self):
        """Rows and columns of flag pairs in a tile, without ``rowcol``'s row flags."""
        rows, cols = self.flag_block
        return ceil_div(self.tile_q, rows), ceil_div(self.tile_k, cols)

    @property
    def row_flags(self):
        """Row flag pairs of a tile: ``tile_q`` for ``rowcol``, otherwise 0."""
        return self.tile_q if self.codec == "rowcol" else 0

    @property
    def flags(self):
        """Flag pairs of a tile: row flags, then the grid's."""
        rows, cols = self.flag_grid
        return self.row_flags + rows * cols

    @property
    def row_code_words(self):
        """Words of the code's first section, the row flags; a section fills whole words."""
        return ceil_div(2 * self.row_flags, CODE_BITS)

    @property
    def code_words(self):
        """Words of a tile's code."""
        rows, cols = self.flag_grid
        return self.row_code_words + ceil_div(2 * rows * cols, CODE_BITS)

    @property
    def row_count_bits(self):
        """Bits of a number of rows of a tile, 0 to ``tile_q``."""
        return ceil_log2(self.tile_q + 1)

    @property
    def key_count_bits(self):
        """Bits of a number of keys of a tile, 0 to ``tile_k``: a row's count, or its threshold."""
        return ceil_log2(self.tile_k + 1)

    @property
    def flag_count_bits(self):
        """Bits of a count of a flag block, 0 to all its elements, or of its threshold."""
        rows, cols = self.flag_block
        return ceil_log2(rows * cols + 1)
