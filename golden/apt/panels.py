"""Byte images of a head's tensors in external memory.

Every tensor is a *panel*: its tiles one after another at a fixed distance, each made of whole
beats of ``beat_bytes``. All bits are packed from bit 0 of byte 0 on, and everything that pads is
zero. A tile at the end of a sequence holds only the words that it has rows or keys for, so its
image is the beginning of a whole tile's.

- Q, K and V: the 16-bit scale word in beats of its own (one, for beats of two bytes and more),
  then the words of the engine's memory, each padded to whole bytes: fields of ``segment_bits``
  in the order

  ===== ============================== =========================================
  panel words                          fields of a word
  ===== ============================== =========================================
  Q     ``[row block][lsb][chunk]``     ``[4 rows][qk_width channels]``
  K     ``[key block][lsb][step][chunk]`` ``[step_keys keys][qk_width channels]``
  V     ``[key][lsb][column pass]``     ``[pv_width columns]``
  ===== ============================== =========================================

- masks: ``row_blocks`` words of ``2 * key_blocks`` bits, the flag pairs of a block row;
- TAFA state of tiles: a word of ``state_bits`` a row;
- TAFA state of rows: 32 bits a row, ``c`` below ``reference``;
- O: ``head_dim`` values of 16 bits a row.

The last four have no gap between words. Panels of masks and of state of tiles are query tile by
query tile, in each key tile by key tile.
"""

from typing import NamedTuple

import numpy as np

from golden.common.arith import as_int64
from golden.common.checks import ceil_div

from .dp_mac import join, split
from .layout import VALUE_BITS, Layout
from .mask_encoder import check_code
from .params import SCALE_BITS
from .quad_shape import OWNERS


__all__ = ["pack_code", "pack_k", "pack_o", "pack_q", "pack_rows",
           "pack_state", "pack_v", "unpack_code", "unpack_k", "unpack_o", "unpack_q",
           "unpack_rows", "unpack_state", "unpack_v"]

# Fields and bytes

def _pack_fields(values, bits):
    """Fields ``[..., words, fields]`` to bytes ``[..., words, bytes]``, each word whole bytes."""
    planes = (values[..., None] >> np.arange(bits)) & 1
    planes = planes.astype(np.uint8).reshape(*values.shape[:-1], -1)
    return np.packbits(planes, axis=-1, bitorder="little")


def _unpack_fields(image, fields, bits, *, signed):
    """The inverse of :func:`_pack_fields`, int64."""
    planes = np.unpackbits(image, axis=-1, bitorder="little", count=fields * bits)
    planes = planes.reshape(*image.shape[:-1], fields, bits)
    weights = 1 << np.arange(bits, dtype=np.int64)
    if signed:
        weights[-1] = -weights[-1]
    return planes @ weights


def _place(tiles, panel, head, params):
    """Bytes ``[tiles, bytes]`` behind ``head`` bytes into an image of whole strides."""
    image = np.zeros((len(tiles), panel.stride * params.beat_bytes), np.uint8)
    image[:, head:head + tiles.shape[1]] = tiles
    return image


def _image_tiles(image, panel, params):
    """An image as ``[tiles, bytes]``."""
    image = np.asarray(image)
    if image.dtype != np.uint8:
        raise TypeError(f"Image must have the dtype uint8, not {image.dtype}")
    expected = panel.total * params.beat_bytes
    if image.shape != (expected,):
        raise ValueError(f"Image must have {expected} bytes, not {list(image.shape)}")
    return image.reshape(len(panel.words), -1)


def _whole(x, count, axis=0):
    """``x`` with zeros behind it up to ``count`` along an axis."""
    return np.pad(x, [(0, count - x.shape[axis] if k == axis else 0) for k in range(x.ndim)])


def _signed(name, values, bits):
    values = as_int64(values)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    outside = values[(values < low) | (values > high)]
    if outside.size:
        raise ValueError(f"{name} must be in {low}..{high}, not {int(outside.flat[0])}")
    return values


# Q, K and V

class _Order(NamedTuple):
    """How words of a tensor become words of the engine's memory."""

    rows: int      #: of a tile
    columns: int   #: of a row, padded
    grid: tuple    #: rows and columns of a tile cut up
    axes: tuple    #: of ``[lsb, tile, *grid]``, in the order of the image
    fields: int    #: of a word


def _order(name, p):
    if name == "q":
        return _Order(p.tile_q, p.qk_chunks * p.qk_width,
                      (p.row_blocks, OWNERS, p.qk_chunks, p.qk_width), (1, 2, 0, 4, 3, 5),
                      OWNERS * p.qk_width)
    if name == "k":
        return _Order(p.tile_k, p.qk_chunks * p.qk_width,
                      (p.key_blocks, p.block_steps, p.step_keys, p.qk_chunks, p.qk_width),
                      (1, 2, 0, 3, 5, 4, 6), p.step_keys * p.qk_width)
    return _Order(p.tile_k, p.column_passes * p.pv_width,
                  (p.tile_k, p.column_passes, p.pv_width), (1, 2, 0, 3, 4), p.pv_width)


def _pack_operand(name, words, scales, params):
    words = as_int64(words)
    if words.ndim != 2 or words.shape[1] != params.head_dim:
        raise ValueError(f"{name.upper()} must be [tokens, {params.head_dim}], "
                         f"not {list(words.shape)}")
    panel = getattr(Layout(params, len(words)), name)
    tiles = len(panel.words)
    scales = as_int64(scales)
    if scales.shape != (tiles,):
        raise ValueError(f"Scales must be [{tiles}], not {list(scales.shape)}")
    outside = scales[(scales < 0) | (scales >> SCALE_BITS > 0)]
    if outside.size:
        raise ValueError(f"Scales must be in 0..{(1 << SCALE_BITS) - 1}, "
                         f"not {int(outside.flat[0])}")
    order = _order(name, params)
    segments = np.stack(split(words, params))
    segments = _whole(_whole(segments, tiles * order.rows, 1), order.columns, 2)
    segments = segments.reshape(2, tiles, *order.grid).transpose(order.axes)
    packed = _pack_fields(segments.reshape(tiles, -1, order.fields), params.segment_bits)
    image = _place(packed.reshape(tiles, -1), panel, params.scale_beats * params.beat_bytes, params)
    image[:, 0], image[:, 1] = scales & 0xff, scales >> 8
    return image.reshape(-1)


def _unpack_operand(name, image, tokens, params):
    panel = getattr(Layout(params, tokens), name)
    image = _image_tiles(image, panel, params)
    order = _order(name, params)
    tiles, head = len(image), params.scale_beats * params.beat_bytes
    size = panel.word_bits // 8
    whole = order.rows * order.columns * 2 // order.fields
    words = image[:, head:head + whole * size].reshape(tiles, whole, size)
    segments = _unpack_fields(words, order.fields, params.segment_bits, signed=True)
    shape = 2, tiles, *order.grid
    segments = segments.reshape([shape[axis] for axis in order.axes])
    segments = segments.transpose(np.argsort(order.axes))
    segments = segments.reshape(2, -1, order.columns)[:, :tokens, :params.head_dim]
    scales = image[:, 0].astype(np.int64) | image[:, 1].astype(np.int64) << 8
    return join(segments[0], segments[1], params), scales


def pack_q(words, scales, params):
    """Image of Q: words ``[tokens, head_dim]`` and the scale words of their tiles."""
    return _pack_operand("q", words, scales, params)


def pack_k(words, scales, params):
    """Image of K, see :func:`pack_q`."""
    return _pack_operand("k", words, scales, params)


def pack_v(words, scales, params):
    """Image of V, see :func:`pack_q`."""
    return _pack_operand("v", words, scales, params)


def unpack_q(image, tokens, params):
    """Words ``[tokens, head_dim]`` and scale words of an image of Q, both int64."""
    return _unpack_operand("q", image, tokens, params)


def unpack_k(image, tokens, params):
    """See :func:`unpack_q`."""
    return _unpack_operand("k", image, tokens, params)


def unpack_v(image, tokens, params):
    """See :func:`unpack_q`."""
    return _unpack_operand("v", image, tokens, params)


# Masks, state and output

def _pack_contiguous(values, bits, panel, params):
    return _place(_pack_fields(values, bits), panel, 0, params).reshape(-1)


def _unpack_contiguous(image, panel, fields, bits, params, *, signed):
    image = _image_tiles(image, panel, params)
    return _unpack_fields(image[:, :ceil_div(fields * bits, 8)], fields, bits, signed=signed)


def pack_code(code, layout):
    """Image of masks: flag pairs ``[query tiles, key tiles, flags]``."""
    params = layout.params
    code = check_code(code, params)
    if code.shape[:-1] != (layout.query_tiles, layout.key_tiles):
        raise ValueError(f"Code must be [{layout.query_tiles}, {layout.key_tiles}, "
                         f"{params.flags}], not {list(code.shape)}")
    return _pack_contiguous(code.reshape(-1, params.flags), 2, layout.code, params)


def unpack_code(image, layout):
    """The inverse of :func:`pack_code`, uint8."""
    params = layout.params
    code = _unpack_contiguous(image, layout.code, params.flags, 2, params, signed=False)
    return code.astype(np.uint8).reshape(layout.query_tiles, layout.key_tiles, -1)


def pack_state(s, layout):
    """Image of state of tiles: words ``[queries, key tiles]`` of ``state_bits`` signed."""
    params = layout.params
    s = _signed("State", s, params.state_bits)
    if s.shape != (layout.queries, layout.key_tiles):
        raise ValueError(f"State must be [{layout.queries}, {layout.key_tiles}], "
                         f"not {list(s.shape)}")
    tiles = _whole(s, layout.query_tiles * params.tile_q)
    tiles = tiles.reshape(layout.query_tiles, params.tile_q, -1).transpose(0, 2, 1)
    return _pack_contiguous(tiles.reshape(-1, params.tile_q), params.state_bits, layout.state,
                            params)


def unpack_state(image, layout):
    """The inverse of :func:`pack_state`, int64."""
    params = layout.params
    s = _unpack_contiguous(image, layout.state, params.tile_q, params.state_bits, params,
                           signed=True)
    s = s.reshape(layout.query_tiles, layout.key_tiles, -1).transpose(0, 2, 1)
    return s.reshape(-1, layout.key_tiles)[:layout.queries]


def _pack_rows_of(values, panel, params):
    """Values ``[tokens, fields]`` of 16 bits, query tile by query tile."""
    tiles = _whole(values, len(panel.words) * params.tile_q).reshape(len(panel.words), -1)
    return _pack_contiguous(tiles, VALUE_BITS, panel, params)


def _unpack_rows_of(image, panel, tokens, params):
    fields = panel.word_bits // VALUE_BITS
    values = _unpack_contiguous(image, panel, params.tile_q * fields, VALUE_BITS, params,
                                signed=True)
    return values.reshape(-1, fields)[:tokens]


def pack_rows(c, reference, params):
    """Image of state of rows: words ``c`` and ``reference``, each ``[tokens]`` signed."""
    words = np.stack([_signed("State", x, VALUE_BITS) for x in (c, reference)], axis=-1)
    return _pack_rows_of(words, Layout(params, len(words)).rows, params)


def unpack_rows(image, tokens, params):
    """The inverse of :func:`pack_rows`: ``c`` and ``reference``, both int64."""
    words = _unpack_rows_of(image, Layout(params, tokens).rows, tokens, params)
    return words[:, 0], words[:, 1]


def pack_o(o, params):
    """Image of the output ``[tokens, head_dim]``."""
    o = _signed("Output", o, VALUE_BITS)
    if o.ndim != 2 or o.shape[1] != params.head_dim:
        raise ValueError(f"Output must be [tokens, {params.head_dim}], not {list(o.shape)}")
    return _pack_rows_of(o, Layout(params, len(o)).o, params)


def unpack_o(image, tokens, params):
    """The inverse of :func:`pack_o`, int64."""
    return _unpack_rows_of(image, Layout(params, tokens).o, tokens, params)
