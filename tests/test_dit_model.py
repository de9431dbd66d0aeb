"""The diffusion transformer: against its formulas in float64, and against the PyTorch sample."""

import importlib.resources
import itertools
import math

import numpy as np
import pytest

from golden.dit.model import (
    DEPTH,
    GUIDANCE,
    HEADS,
    STEPS,
    TOKENS,
    WIDTH,
    Dit,
    attention,
    initial_noise,
    label_names,
    sample,
    to_uint8,
    trajectory,
)


DATA = importlib.resources.files("golden.dit") / "data"


@pytest.fixture(scope="module")
def model():
    return Dit.load()


@pytest.fixture(scope="module")
def reference():
    with (DATA / "reference_sample.npz").open("rb") as file, np.load(file) as stored:
        return {name: stored[name] for name in stored.files}


def float64_velocity(image, time, category, style):
    """The card's formulas in float64, token by token and head by head where that is plain."""
    with (DATA / "dit_emoji64.npz").open("rb") as file, np.load(file) as stored:
        w = {name: stored[name].astype(np.float64) for name in stored.files
             if stored[name].dtype == np.float16}

    def linear(x, name):
        return np.einsum("...i,oi->...o", x, w[name + ".weight"], optimize=True) + w[name + ".bias"]

    def norm(x):
        return (x - x.mean(1)[:, None]) / np.sqrt(x.var(1)[:, None] + 1e-6)

    def silu(x):
        return x / (1 + np.exp(-x))

    tokens, places = np.empty((1024, 12)), np.empty((1024, 192))
    for y, x in itertools.product(range(32), range(32)):
        tokens[32 * y + x] = [image[c, 2 * y + dy, 2 * x + dx]
                              for c in range(3) for dy in range(2) for dx in range(2)]
        angles = [[axis * 10000 ** (-i / 48) for i in range(48)] for axis in (y, x)]
        places[32 * y + x] = [f(a) for axis in angles for f in (math.sin, math.cos) for a in axis]
    a = np.array([1000 * time * 10000 ** (-i / 96) for i in range(96)])
    c = linear(silu(linear(np.concatenate([np.cos(a), np.sin(a)]), "t1")), "t2")
    c = c + w["yc.weight"][9 if category is None else category]
    c = c + w["ys.weight"][3 if style is None else style]
    modulation = linear(silu(c), "tm").reshape(6, 192)
    h = linear(tokens, "emb") + places
    for n in range(10):
        m = w[f"blocks.{n}.tab"] + modulation
        qkv = linear(norm(h) * (1 + m[1]) + m[0], f"blocks.{n}.qkv").reshape(1024, 3, 3, 64)
        mixed = []
        for head in range(3):
            q, k, v = (qkv[:, tensor, head] for tensor in range(3))
            e = np.exp(q @ k.T / 8)
            mixed.append(e / e.sum(1)[:, None] @ v)
        h = h + m[2] * linear(np.concatenate(mixed, 1), f"blocks.{n}.o")
        u = linear(norm(h) * (1 + m[4]) + m[3], f"blocks.{n}.f1")
        u = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u ** 3)))
        h = h + m[5] * linear(u, f"blocks.{n}.f2")
    out = linear(norm(h) * (1 + w["ftab"][1] + c) + w["ftab"][0] + c, "out")
    velocity = np.empty((3, 64, 64))
    for token, (ch, dy, dx) in itertools.product(range(1024), itertools.product(
            range(3), range(2), range(2))):
        y, x = divmod(token, 32)
        velocity[ch, 2 * y + dy, 2 * x + dx] = out[token, 4 * ch + 2 * dy + dx]
    return velocity


@pytest.mark.parametrize("labels, time", [((2, 1), 0.75), ((None, None), 0.1)])
def test_forward_follows_the_card(model, labels, time):
    image = initial_noise(7)
    expected = float64_velocity(image, time, *labels)
    got = model.forward(image, time, *labels,
                        lambda q, k, v, layer: attention(q, k, v, step=0, layer=layer,
                                                         guided=True))
    assert got.dtype == np.float32 and got.shape == (3, 64, 64)
    assert np.abs(got - expected).max() < 1e-4 < np.abs(expected).max()


def test_one_step_of_the_sampler(model):
    image, seen = initial_noise(1), []

    def attn(q, k, v, *, step, layer, guided):
        assert q.shape == k.shape == v.shape == (HEADS, TOKENS, WIDTH // HEADS)
        seen.append((step, layer, guided))
        return attention(q, k, v, step=step, layer=layer, guided=guided)

    first = next(trajectory(model, image, category=8, style=0, attn=attn))
    assert sorted(seen) == sorted(itertools.product([0], range(DEPTH), [False, True]))

    def forward(*labels):
        return model.forward(image, 1.0, *labels,
                             lambda q, k, v, layer: attention(q, k, v, step=0, layer=layer,
                                                              guided=True))
    null, label = forward(None, None), forward(8, 0)
    expected = image - (null + GUIDANCE * (label - null)) / STEPS
    assert np.abs(first - expected).max() < 1e-4
    assert np.abs(first - image).max() > 0.01


def test_any_attention_can_be_plugged_in(model):
    def last_step(attn):
        return sample(model, initial_noise(0), category=0, style=0, steps=1, attn=attn)
    uniform = last_step(lambda q, k, v, **where: np.broadcast_to(v.mean(1, keepdims=True), v.shape))
    assert np.abs(uniform - last_step(attention)).max() > 0.05


def test_attention_survives_large_scores():
    q = np.full((1, 4, 64), 100, np.float32)
    v = np.arange(256, dtype=np.float32).reshape(1, 4, 64)
    mixed = attention(q, q, v, step=0, layer=0, guided=True)
    assert np.allclose(mixed, v.mean(1, keepdims=True))


def test_noise_labels_and_pixels():
    expected = np.random.default_rng(3).standard_normal((3, 64, 64), dtype=np.float32)
    assert np.array_equal(initial_noise(3), expected)
    categories, styles = label_names()
    assert len(categories) == 9 and categories[2] == "Animals & Nature" and categories[8] == "Flags"
    assert styles == ("google", "twitter", "fluent3d")
    image = np.zeros((3, 64, 64), np.float32)
    image[:, 0, 1], image[:, 1, 0] = [-2, 0, 2], [-1, 0.5, 1]
    pixels = to_uint8(image)
    assert pixels.shape == (64, 64, 3) and pixels.dtype == np.uint8
    assert pixels[0, 1].tolist() == [0, 128, 255] and pixels[1, 0].tolist() == [0, 191, 255]


def test_reproduces_the_reference_sample(model, reference):
    """The whole run, 56 forward passes: the slowest test outside `make test-full`."""
    steps = []
    image = sample(model, reference["noise"], category=int(reference["category"]),
                   style=int(reference["style"]), steps=int(reference["steps"]),
                   guidance=float(reference["cfg"]), on_step=steps.append)
    assert steps == list(range(1, STEPS + 1))
    error = image.clip(-1, 1) - reference["image"].clip(-1, 1)
    psnr = 10 * math.log10(4 / np.mean(np.square(error, dtype=np.float64)))
    assert psnr > 90
    levels = to_uint8(image).astype(int) - to_uint8(reference["image"])
    assert np.abs(levels).max() <= 1
