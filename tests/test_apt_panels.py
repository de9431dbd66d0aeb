"""Panels: images against a packer that sets bit after bit, round trips, sizes, errors."""

import numpy as np
import pytest

from golden.apt import panels
from golden.apt.layout import Layout, Panel
from golden.apt.mask_encoder import pack_code as pack_code_words
from golden.apt.params import AptParams


SHAPES = [
    AptParams(lanes=4, multipliers=18, head_dim=72, tile_q=12, tile_k=48, beat_bytes=8),
    AptParams(lanes=16, multipliers=18, head_dim=72, tile_q=12, tile_k=48, state_bits=8),
    AptParams(lanes=8, head_dim=20, tile_q=12, tile_k=48, beat_bytes=4),
    AptParams(lanes=8, multipliers=6, head_dim=20, tile_q=8, tile_k=24, beat_bytes=3,
              segment_bits=5),
    AptParams(lanes=4, multipliers=2, head_dim=5, tile_q=4, tile_k=8, beat_bytes=1,
              segment_bits=5, state_bits=8),
]
TOKENS = [1, 13, 48, 101]


def ids(value):
    if isinstance(value, int):
        return str(value)
    return f"{value.lanes}x{value.multipliers}of{value.head_dim}in{value.beat_bytes}"


cases = pytest.mark.parametrize("params, tokens", [(params, tokens) for params in SHAPES
                                                   for tokens in TOKENS], ids=ids)


class SlowTile:
    """A tile's image, put together field by field in a Python integer."""

    def __init__(self, params):
        self.params, self.bits, self.at = params, 0, 0

    def put(self, value, width):
        self.bits |= (int(value) % (1 << width)) << self.at
        self.at += width

    def align(self, width):
        self.at += -self.at % width

    def bytes(self):
        self.align(self.params.beat_bits)
        return self.bits.to_bytes(self.at // 8, "little")


def segment(matrix, row, column, lsb, params):
    """A segment of a word; 0 beyond the matrix."""
    if row >= matrix.shape[0] or column >= matrix.shape[1]:
        return 0
    word, size = int(matrix[row, column]), 1 << params.segment_bits
    high = (word + size // 2) // size
    return word - high * size if lsb else high


def slow_operand(name, words, scale, p):
    """A tile of Q, K or V as the specification tells it."""
    tile = SlowTile(p)
    tile.put(scale, 16)
    tile.align(p.beat_bits)
    width = p.multipliers // 2

    def word(rows, columns, lsb):
        for row in rows:
            for column in columns:
                tile.put(segment(words, row, column, lsb, p), p.segment_bits)
        tile.align(8)

    if name == "v":
        width = p.lanes // 4 * p.multipliers
        for key in range(len(words)):
            for lsb in (0, 1):
                for first in range(0, p.head_dim, width):
                    word([key], range(first, first + width), lsb)
        return tile.bytes()
    block, step = (4, 4) if name == "q" else (8, p.lanes // 2)
    for first in range(0, len(words), block):
        for lsb in (0, 1):
            for row in range(first, first + block, step):
                for channel in range(0, p.head_dim, width):
                    word(range(row, row + step), range(channel, channel + width), lsb)
    return tile.bytes()


def check(image, panel, tiles, params):
    """Tiles at their strides with zeros behind them."""
    image = image.tobytes()
    stride = panel.stride * params.beat_bytes
    assert len(image) == panel.total * params.beat_bytes == stride * len(tiles)
    assert len(panel.words) == len(panel.beats) == len(tiles)
    for index, (tile, beats) in enumerate(zip(tiles, panel.beats, strict=True)):
        assert len(tile) == beats * params.beat_bytes
        assert image[index * stride:(index + 1) * stride] == tile.ljust(stride, b"\0")


@cases
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_operands_are_the_slow_images(name, params, tokens):
    rng = np.random.default_rng(tokens)
    rows = params.tile_q if name == "q" else params.tile_k
    words = rng.integers(-params.qmax, params.qmax + 1, (tokens, params.head_dim))
    words.flat[:2] = -params.qmax, params.qmax
    scales = rng.integers(0, 1 << 16, -(-tokens // rows))
    image = getattr(panels, f"pack_{name}")(words, scales, params)
    panel = getattr(Layout(params, tokens), name)
    check(image, panel,
          [slow_operand(name, words[first:first + rows], scale, params)
           for first, scale in zip(range(0, tokens, rows), scales, strict=True)], params)
    for count, beats in zip(panel.words, panel.beats, strict=True):
        # The last beat has something of the last word.
        rest = (beats - params.scale_beats) * params.beat_bits - count * panel.word_bits
        assert 0 <= rest < params.beat_bits
    back, its_scales = getattr(panels, f"unpack_{name}")(image, tokens, params)
    assert np.array_equal(back, words) and np.array_equal(its_scales, scales)


@cases
def test_masks_state_and_output_are_the_slow_images(params, tokens):
    rng = np.random.default_rng(tokens)
    layout = Layout(params, tokens)
    queries, keys = -(-tokens // params.tile_q), -(-tokens // params.tile_k)
    firsts = range(0, tokens, params.tile_q)

    code = rng.integers(0, 4, (queries, keys, params.flags))
    image = panels.pack_code(code, layout)
    tiles = []
    for i in range(queries):
        for j in range(keys):
            tile = SlowTile(params)
            for pair in code[i, j]:
                tile.put(pair, 2)
            tiles.append(tile.bytes())
    check(image, layout.code, tiles, params)
    # The same bits as in 16-bit words of the mask encoder.
    words = pack_code_words(code, params).astype("<u2").reshape(queries * keys, -1).view(np.uint8)
    size = min(words.shape[1], len(tiles[0]))
    assert all(bytes(word[:size]) == tile[:size] for word, tile in zip(words, tiles, strict=True))
    back = panels.unpack_code(image, layout)
    assert back.dtype == np.uint8 and np.array_equal(back, code)

    half = 1 << (params.state_bits - 1)
    s = rng.integers(-half, half, (tokens, keys))
    image = panels.pack_state(s, layout)
    tiles = []
    for first in firsts:
        for j in range(keys):
            tile = SlowTile(params)
            for value in s[first:first + params.tile_q, j]:
                tile.put(value, params.state_bits)
            tiles.append(tile.bytes())
    check(image, layout.state, tiles, params)
    assert np.array_equal(panels.unpack_state(image, layout), s)

    c, reference = rng.integers(-1 << 15, 1 << 15, (2, tokens))
    image = panels.pack_rows(c, reference, params)
    tiles = []
    for first in firsts:
        tile = SlowTile(params)
        for row in range(first, min(first + params.tile_q, tokens)):
            tile.put(c[row], 16)
            tile.put(reference[row], 16)
        tiles.append(tile.bytes())
    check(image, layout.rows, tiles, params)
    back = panels.unpack_rows(image, tokens, params)
    assert np.array_equal(back[0], c) and np.array_equal(back[1], reference)

    o = rng.integers(-1 << 15, 1 << 15, (tokens, params.head_dim))
    image = panels.pack_o(o, params)
    tiles = []
    for first in firsts:
        tile = SlowTile(params)
        for value in o[first:first + params.tile_q].flat:
            tile.put(value, 16)
        tiles.append(tile.bytes())
    check(image, layout.o, tiles, params)
    assert np.array_equal(panels.unpack_o(image, tokens, params), o)


def test_sizes_of_the_default_shape():
    layout = Layout(AptParams(), 1000)
    assert (layout.query_tiles, layout.key_tiles) == (16, 8)
    assert layout.tile_rows == (64,) * 15 + (40,) and layout.tile_keys == (128,) * 7 + (104,)
    # A scale beat and 256 words of 24 or 48 bytes; the tails have 10 of 16 blocks and 13 of 16.
    assert layout.q == Panel(192, 385, (256,) * 15 + (160,), (385,) * 15 + (241,))
    assert layout.k == Panel(384, 769, (256,) * 7 + (208,), (769,) * 7 + (625,))
    assert layout.v == Panel(384, 769, (256,) * 7 + (208,), (769,) * 7 + (625,))
    assert layout.code == Panel(32, 4, (16,) * 128, (4,) * 128)
    assert layout.state == Panel(16, 8, (64,) * 120 + (40,) * 8, (8,) * 120 + (5,) * 8)
    assert layout.rows == Panel(32, 16, (64,) * 15 + (40,), (16,) * 15 + (10,))
    assert layout.o == Panel(1024, 512, (64,) * 15 + (40,), (512,) * 15 + (320,))
    assert layout.q.total == 16 * 385


def test_errors():
    params = SHAPES[2]
    words = np.zeros((13, 20), int)
    with pytest.raises(ValueError, match=r"^AptParams\.codec must be block, not 'rowcol'$"):
        Layout(AptParams(codec="rowcol"), 1)
    with pytest.raises(TypeError, match=r"^Tokens must be an integer, not 1\.0$"):
        Layout(params, 1.0)
    with pytest.raises(ValueError, match=r"^Tokens must be at least 1, not 0$"):
        Layout(params, 0)
    with pytest.raises(ValueError, match=r"^K must be \[tokens, 20\], not \[20, 13\]$"):
        panels.pack_k(words.T, [0], params)
    with pytest.raises(ValueError, match=r"^Scales must be \[2\], not \[1\]$"):
        panels.pack_q(words, [0], params)
    with pytest.raises(ValueError, match=r"^Scales must be in 0\.\.65535, not 65536$"):
        panels.pack_v(words, [65536], params)
    with pytest.raises(ValueError, match=r"^Words must be in -2015\.\.2015, not 2016$"):
        panels.pack_v(words + 2016, [0], params)
    with pytest.raises(TypeError, match=r"^Value must have an integer dtype, not float64$"):
        panels.pack_v(words * 1.0, [0], params)
    with pytest.raises(TypeError, match=r"^Image must have the dtype uint8, not int64$"):
        panels.unpack_k(words, 13, params)
    with pytest.raises(ValueError, match=r"^Image must have 872 bytes, not \[643\]$"):
        panels.unpack_q(np.zeros(643, np.uint8), 13, params)
    with pytest.raises(ValueError, match=r"^Code must be \[2, 1, 18\], not \[1, 1, 18\]$"):
        panels.pack_code(np.zeros((1, 1, 18), int), Layout(params, 13))
    with pytest.raises(ValueError, match=r"^State must be in -32768\.\.32767, not 32768$"):
        panels.pack_state(words[:, :1] + 32768, Layout(params, 13))
    with pytest.raises(ValueError, match=r"^State must be \[13, 1\], not \[13, 20\]$"):
        panels.pack_state(words, Layout(params, 13))
    with pytest.raises(ValueError, match=r"^State must be in -32768\.\.32767, not -32769$"):
        panels.pack_rows(words[:, 0], words[:, 0] - 32769, params)
    with pytest.raises(ValueError, match=r"^Output must be \[tokens, 20\], not \[13, 1\]$"):
        panels.pack_o(words[:, :1], params)
