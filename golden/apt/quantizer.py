"""Reference for :mod:`rtl.apt.quantizer`: one symmetric scale a tile (APT 4.1, numerics 4.6)."""

import numpy as np

from golden.common.arith import as_int64

from .params import SCALE_BITS


__all__ = ["LARGEST", "absmax", "inverse", "quantize", "quantize_with"]

#: Largest magnitude of a VPU word; -32768 is saturated first.
LARGEST = (1 << (SCALE_BITS - 1)) - 1


def _vpu_words(x):
    x = as_int64(x)
    outside = x[(x < -LARGEST - 1) | (x > LARGEST)]
    if outside.size:
        raise ValueError(f"Elements must be in {-LARGEST - 1}..{LARGEST}, "
                         f"not {int(outside.flat[0])}")
    return np.maximum(x, -LARGEST)


def _scales(scale):
    scale = as_int64(scale)
    outside = scale[(scale < 0) | (scale > LARGEST)]
    if outside.size:
        raise ValueError(f"Scales must be in 0..{LARGEST}, not {int(outside.flat[0])}")
    return scale


def absmax(x):
    """Scale word ``A`` of each tile ``[..., rows, channels]``: its largest magnitude, int64.

    Elements are 16-bit VPU words; -32768 counts as -32767, so ``A`` is in ``0..LARGEST``. A tile
    without elements has the scale 0.
    """
    return np.abs(_vpu_words(x)).max(axis=(-2, -1), initial=0)


def inverse(scale, params):
    """Reciprocal ``floor(qmax * 2**16 / A)`` of scale words of any shape; 0 for ``A = 0``."""
    scale = _scales(scale)
    return np.where(scale == 0, 0, (params.qmax << SCALE_BITS) // np.maximum(scale, 1))


def quantize_with(x, scale, params):
    """Words ``q = sign(x) * ((|x| * inverse(A) + 2**15) >> 16)`` of elements ``|x| <= A``.

    ``scale`` broadcasts against ``x``. Words stand for ``q * A / qmax`` and are in
    ``-qmax..qmax``.

    Raises :class:`ValueError` for an element beyond its scale.
    """
    x, scale = _vpu_words(x), _scales(scale)
    magnitude = np.abs(x)
    if np.any(magnitude > scale):
        raise ValueError("Elements must not exceed their scale")
    half = 1 << (SCALE_BITS - 1)
    return np.sign(x) * ((magnitude * inverse(scale, params) + half) >> SCALE_BITS)


def quantize(x, params):
    """Words and scale words of tiles ``[..., rows, channels]``: ``(q, A)``, both int64."""
    scale = absmax(x)
    return quantize_with(x, scale[..., None, None], params), scale
