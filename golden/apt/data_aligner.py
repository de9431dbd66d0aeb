"""Reference for :mod:`rtl.apt.data_aligner`: memory images of quantized tiles (numerics 4.6).

An image is the scale word, the plane of MSB segments and the plane of LSB segments, each padded
with zeros to whole beats of ``beat_bytes``. A plane is row-major, ``segment_bits`` a field, packed
from bit 0 of byte 0 on; a row is padded with zero fields to a multiple of 16.
"""

import numpy as np

from golden.common.arith import as_int64

from .dp_mac import join, split
from .params import SCALE_BITS


__all__ = ["pack_plane", "pack_tile", "unpack_plane", "unpack_tile"]


def pack_plane(segments, params):
    """Plane of segments ``[..., rows, head_dim]``: uint8 ``[..., bytes]``.

    A segment's low ``segment_bits`` are stored; its sign, if it has one, is among them.
    """
    segments = as_int64(segments)
    if segments.ndim < 2 or segments.shape[-1] != params.head_dim:
        raise ValueError(f"Segments must have the shape (..., rows, {params.head_dim}), "
                         f"not {segments.shape}")
    *batch, rows, dim = segments.shape
    fields = np.zeros((*batch, rows, params.image_dim, params.segment_bits), dtype=np.uint8)
    low = segments.astype(np.uint8)  # segments have at most 8 bits
    for bit in range(params.segment_bits):
        np.bitwise_and(low >> bit, 1, out=fields[..., :dim, bit])
    plane = np.zeros((*batch, params.plane_beats(rows) * params.beat_bytes), dtype=np.uint8)
    packed = np.packbits(fields.reshape(*batch, -1), axis=-1, bitorder="little")
    plane[..., :packed.shape[-1]] = packed
    return plane


def unpack_plane(plane, rows, params, *, signed):
    """Segments ``[..., rows, head_dim]`` of a plane, int64; padding is dropped unread."""
    plane = np.asarray(plane)
    if plane.dtype != np.uint8:
        raise TypeError(f"Plane must have the dtype uint8, not {plane.dtype}")
    expected = params.plane_beats(rows) * params.beat_bytes
    if plane.shape[-1] != expected:
        raise ValueError(f"Plane must have {expected} bytes, not {plane.shape[-1]}")
    bits = np.unpackbits(plane, axis=-1, bitorder="little",
                         count=rows * params.image_dim * params.segment_bits)
    bits = bits.reshape(*plane.shape[:-1], rows, params.image_dim, params.segment_bits)
    segments = np.zeros(bits.shape[:-1], dtype=np.int64)
    for bit in range(params.segment_bits):
        weight = 1 << bit
        if signed and bit == params.segment_bits - 1:
            weight = -weight
        segments += bits[..., bit] * np.int64(weight)
    return segments[..., :params.head_dim]


def pack_tile(words, scale, params):
    """Image of words ``[..., rows, head_dim]`` and their scale words ``[...]``.

    Returns uint8 ``[..., params.image_bytes(rows)]``. Raises :class:`ValueError` for a word outside
    ``-qmax..qmax`` or a scale that is not 16 bits unsigned, :class:`TypeError` for floats.
    """
    msb, lsb = split(words, params)
    scale = as_int64(scale)
    if scale.shape != msb.shape[:-2]:
        raise ValueError(f"Scales must have the shape {msb.shape[:-2]}, not {scale.shape}")
    largest = (1 << SCALE_BITS) - 1
    outside = scale[(scale < 0) | (scale > largest)]
    if outside.size:
        raise ValueError(f"Scales must be in 0..{largest}, not {int(outside.flat[0])}")
    header = np.zeros((*scale.shape, params.scale_beats * params.beat_bytes), dtype=np.uint8)
    header[..., 0] = scale & 0xff
    header[..., 1] = scale >> 8
    return np.concatenate([header, pack_plane(msb, params), pack_plane(lsb, params)], axis=-1)


def unpack_tile(image, rows, params):
    """Words and scale words of images of tiles with so many rows: the inverse of
    :func:`pack_tile`, both int64."""
    image = np.asarray(image)
    if image.dtype != np.uint8:
        raise TypeError(f"Image must have the dtype uint8, not {image.dtype}")
    if image.shape[-1] != params.image_bytes(rows):
        raise ValueError(f"Image must have {params.image_bytes(rows)} bytes, "
                         f"not {image.shape[-1]}")
    start = params.scale_beats * params.beat_bytes
    middle = start + params.plane_beats(rows) * params.beat_bytes
    scale = image[..., 0].astype(np.int64) | image[..., 1].astype(np.int64) << 8
    msb = unpack_plane(image[..., start:middle], rows, params, signed=True)
    lsb = unpack_plane(image[..., middle:], rows, params, signed=params.split == "balanced")
    return join(msb, lsb, params), scale
