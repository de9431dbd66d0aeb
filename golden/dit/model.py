"""Forward pass and sampler of the emoji diffusion transformer, float32. Imports NumPy alone.

``golden/dit/data/README.md`` is the card of the weights: shapes, sampler, training, licences.
"""

import importlib.resources
import itertools
import math

import numpy as np


__all__ = ["CHANNELS", "DEPTH", "GUIDANCE", "HEADS", "HEAD_DIM", "SIDE", "STEPS", "TOKENS", "WIDTH",
           "Dit", "attention", "initial_noise", "label_names", "sample", "to_uint8", "trajectory"]

#: Image: colour channels and side in pixels; the image is cut into patches of 2 x 2.
CHANNELS, SIDE = 3, 64
_PATCH = 2
_GRID = SIDE // _PATCH
#: Transformer: tokens, width of a token, blocks, attention heads and channels of a head.
TOKENS, WIDTH, DEPTH, HEADS, HEAD_DIM = _GRID * _GRID, 192, 10, 3, 64
#: Sampler: Euler steps and classifier-free guidance that the weights were made for.
STEPS, GUIDANCE = 28, 3.0

_WEIGHTS = importlib.resources.files(__package__) / "data" / "dit_emoji64.npz"


def label_names():
    """Names of the categories and of the styles, in the order of their numbers."""
    with _WEIGHTS.open("rb") as file, np.load(file) as stored:
        return tuple(stored["category_names"].tolist()), tuple(stored["style_names"].tolist())


def attention(q, k, v, *, step, layer, guided):
    """Softmax attention of all heads: ``q``, ``k``, ``v`` [heads, tokens, 64] to the same shape.

    The shape of the hook that :func:`sample` takes as ``attn``. ``step`` counts from 0 (pure
    noise), ``layer`` from 0, and ``guided`` tells the pass with labels from the pass without.
    """
    scores = (q * np.float32(1 / math.sqrt(q.shape[-1]))) @ k.transpose(0, 2, 1)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    return (scores @ v) / scores.sum(axis=-1, keepdims=True)


def _positions():
    """Fixed sine and cosine positions [tokens, width]: sin y, cos y, sin x, cos x."""
    frequencies = 10000.0 ** -(np.arange(WIDTH // 4) / (WIDTH // 4))
    y, x = np.divmod(np.arange(TOKENS), _GRID)
    y, x = np.outer(y, frequencies), np.outer(x, frequencies)
    return np.concatenate([np.sin(y), np.cos(y), np.sin(x), np.cos(x)], axis=1).astype(np.float32)


def _silu(x):
    return x / (1 + np.exp(-x))


def _gelu(x):
    """The tanh form of GELU, written as ``x * sigmoid(2 u)``: one exponential, no tanh."""
    gate = np.float32(-2 * math.sqrt(2 / math.pi)) * x
    gate *= 1 + np.float32(0.044715) * x * x
    np.minimum(gate, 80, out=gate)  # exp stays finite, and x / exp(80) is 0 beside the rest
    np.exp(gate, out=gate)
    gate += 1
    return x / gate


def _modulated_norm(x, shift, scale):
    """LayerNorm without affine parameters, then the modulation ``(1 + scale) * x + shift``."""
    x = x - x.mean(axis=-1, keepdims=True)
    x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    return x * (1 + scale) + shift


def _to_tokens(image):
    """[3, 64, 64] to token vectors [tokens, 12] in (channel, row, column) order."""
    patches = image.reshape(CHANNELS, _GRID, _PATCH, _GRID, _PATCH)
    return patches.transpose(1, 3, 0, 2, 4).reshape(TOKENS, CHANNELS * _PATCH * _PATCH)


def _to_image(tokens):
    patches = tokens.reshape(_GRID, _GRID, CHANNELS, _PATCH, _PATCH)
    return patches.transpose(2, 0, 3, 1, 4).reshape(CHANNELS, SIDE, SIDE)


class Dit:
    """The transformer: weights in float32 and the forward pass.

    Parameters
    ----------
    weights : :class:`dict`
        Float32 arrays by the names of the card.
    """

    def __init__(self, weights):
        self._weights = weights
        self._position = _positions()

    @classmethod
    def load(cls):
        """The trained weights that come with Tilewright."""
        with _WEIGHTS.open("rb") as file, np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return cls({name: array.astype(np.float32) for name, array in arrays.items()
                    if array.dtype == np.float16})

    def _linear(self, x, name):
        y = x @ self._weights[name + ".weight"].T
        y += self._weights[name + ".bias"]
        return y

    def _condition(self, time, category, style):
        """Embedding [width] of the time and of two labels; ``None`` is the null label."""
        half = WIDTH // 2
        angles = 1000 * time * np.exp(-math.log(10000) * np.arange(half) / half)
        angles = angles.astype(np.float32)
        hidden = _silu(self._linear(np.concatenate([np.cos(angles), np.sin(angles)]), "t1"))
        labels = (self._weights["yc.weight"][-1 if category is None else category]
                  + self._weights["ys.weight"][-1 if style is None else style])
        return self._linear(hidden, "t2") + labels

    def forward(self, image, time, category, style, attend):
        """Velocity [3, 64, 64] at the noisy ``image`` and ``time`` (1 is noise, 0 the image).

        ``attend(q, k, v, layer=...)`` maps [heads, tokens, 64] to the same shape.
        ``category`` and ``style`` are label numbers, or ``None`` for the null label.
        """
        condition = self._condition(time, category, style)
        shared = self._linear(_silu(condition), "tm").reshape(6, WIDTH)
        x = self._linear(_to_tokens(image), "emb") + self._position
        for layer in range(DEPTH):
            block = f"blocks.{layer}."
            modulation = self._weights[block + "tab"] + shared
            shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation

            qkv = self._linear(_modulated_norm(x, shift, scale), block + "qkv")
            q, k, v = qkv.reshape(TOKENS, 3, HEADS, HEAD_DIM).transpose(1, 2, 0, 3)
            mixed = attend(q, k, v, layer=layer).transpose(1, 0, 2).reshape(TOKENS, WIDTH)
            x += gate * self._linear(mixed, block + "o")

            hidden = _gelu(self._linear(_modulated_norm(x, mlp_shift, mlp_scale), block + "f1"))
            x += mlp_gate * self._linear(hidden, block + "f2")
        shift, scale = self._weights["ftab"] + condition
        return _to_image(self._linear(_modulated_norm(x, shift, scale), "out"))


def initial_noise(seed):
    """The noise [3, 64, 64] that a seed stands for."""
    return np.random.default_rng(seed).standard_normal((CHANNELS, SIDE, SIDE), dtype=np.float32)


def trajectory(model, noise, *, category, style, steps=STEPS, guidance=GUIDANCE, attn=attention):
    """Yield the image [3, 64, 64] after each of ``steps`` Euler steps from ``noise`` at time 1.

    A step makes two forward passes, first the guided one (with labels), then the one without,
    and follows ``v_null + guidance * (v_label - v_null)``. ``attn`` is called as
    :func:`attention` is.
    """
    image, times = noise.astype(np.float32), np.linspace(1, 0, steps + 1)
    for step, (time, after) in enumerate(itertools.pairwise(times)):
        velocity = {}
        for guided in (True, False):
            def attend(q, k, v, *, layer, step=step, guided=guided):
                return attn(q, k, v, step=step, layer=layer, guided=guided)
            labels = (category, style) if guided else (None, None)
            velocity[guided] = model.forward(image, time, *labels, attend)
        towards = velocity[False] + np.float32(guidance) * (velocity[True] - velocity[False])
        image = image + np.float32(after - time) * towards
        yield image


def sample(model, noise, *, on_step=None, **options):
    """The image [3, 64, 64] at time 0, about -1 to 1; options as of :func:`trajectory`.

    ``on_step(done)`` is called after each step.
    """
    for done, latest in enumerate(trajectory(model, noise, **options), 1):
        image = latest
        if on_step is not None:
            on_step(done)
    return image


def to_uint8(image):
    """[3, 64, 64] in -1..1 to pixels [64, 64, 3] in 0..255."""
    return np.rint((image.clip(-1, 1) + 1) * 127.5).astype(np.uint8).transpose(1, 2, 0)
