"""Data aligner: images against bit strings, RTL against the model, latencies, rates, errors."""

import time

import numpy as np
import pytest

from golden.apt.data_aligner import pack_plane, pack_tile, unpack_plane, unpack_tile
from golden.apt.dp_mac import split
from golden.apt.params import AptParams
from rtl.apt.data_aligner import DataAligner
from rtl.apt.data_packer import DataPacker
from rtl.apt.data_unpacker import DataUnpacker
from tests.sim import FLOWS, run_streams
from verif.apt.tensors import row_words


SHAPES = [
    AptParams(vpu_lanes=4, head_dim=16, beat_bytes=4),                       # 24 into 32 bits
    AptParams(vpu_lanes=5, head_dim=7, segment_bits=3, beat_bytes=3),        # tails of 1 element
    AptParams(vpu_lanes=2, head_dim=16, segment_bits=3, beat_bytes=1),       # scale of two beats
    AptParams(vpu_lanes=4, head_dim=18, segment_bits=5, beat_bytes=14, split="truncate"),
    AptParams(vpu_lanes=10, head_dim=35, segment_bits=7, beat_bytes=5),      # words above beats
    AptParams(vpu_lanes=20, head_dim=11, segment_bits=8, beat_bytes=8),      # words above rows
]


def ids(params):
    return f"{params.vpu_lanes}x{params.segment_bits}of{params.head_dim}in{params.beat_bytes}"


def bit_string_image(words, scale, params):
    """The image as the specification tells it, in Python integers and strings."""
    def beats(bits):
        bits += "0" * (-len(bits) % (8 * params.beat_bytes))
        return b"".join(int(bits[k:k + 8][::-1], 2).to_bytes(1, "little")
                        for k in range(0, len(bits), 8))

    def field(value, width):
        return format(value % (1 << width), f"0{width}b")[::-1]

    size = 1 << params.segment_bits
    planes = ["", ""]
    for row in words.tolist():
        row = row + [0] * (-len(row) % 16)
        for word in row:
            bias = 0 if params.split == "truncate" else size // 2
            msb = (word + bias) // size
            planes[0] += field(msb, params.segment_bits)
            planes[1] += field(word - msb * size, params.segment_bits)
    return beats(field(scale, 16)) + beats(planes[0]) + beats(planes[1])


def tiles(params, rows, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.integers(-params.qmax, params.qmax + 1, (count, params.head_dim)),
             int(rng.integers(1 << 16))) for count in rows]


@pytest.mark.parametrize("params", [*SHAPES, AptParams(head_dim=72), AptParams(head_dim=1)],
                         ids=ids)
def test_images_are_the_bit_strings(params):
    for words, scale in tiles(params, [1, 3, 8]):
        image = pack_tile(words, scale, params)
        assert image.tobytes() == bit_string_image(words, scale, params)
        assert len(image) == params.image_bytes(len(words))
        back, its_scale = unpack_tile(image, len(words), params)
        assert np.array_equal(back, words) and its_scale == scale


def test_sizes():
    params = AptParams(head_dim=72)
    assert (params.image_dim, params.image_words, params.dim_words) == (80, 5, 5)
    assert params.plane_beats(64) == 64 * 80 * 6 // 128
    assert params.image_bytes(64) == 16 + 2 * 64 * 60
    assert params.image_bytes(1) == 16 + 2 * 64
    narrow = AptParams(beat_bytes=1, vpu_lanes=24, head_dim=30)
    assert narrow.scale_beats == 2 and narrow.image_bytes(1) == 2 + 2 * 24
    assert (narrow.image_chunk, narrow.image_tail, narrow.dim_tail) == (24, 8, 6)
    # A row of head_dim 72 ends in 8 fields of zeros.
    plane = pack_plane(np.full((2, 72), -1), params)
    assert plane.tolist() == ([255] * 54 + [0] * 6) * 2 + [0] * 8


def test_batches_of_tiles():
    params = AptParams(head_dim=20, segment_bits=5)
    rng = np.random.default_rng(1)
    words = rng.integers(-params.qmax, params.qmax + 1, (2, 3, 5, 20))
    scales = rng.integers(0, 1 << 15, (2, 3))
    images = pack_tile(words, scales, params)
    for index in np.ndindex(2, 3):
        assert np.array_equal(images[index], pack_tile(words[index], scales[index], params))
    back, its_scales = unpack_tile(images, 5, params)
    assert np.array_equal(back, words) and np.array_equal(its_scales, scales)


def test_model_speed():
    params = AptParams()
    words, scale = tiles(params, [64])[0]
    image = pack_tile(words, scale, params)

    def run(function, *arguments):
        start = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - start

    assert min(run(pack_tile, words, scale, params) for _ in range(20)) < 1e-3
    assert min(run(unpack_tile, image, 64, params) for _ in range(20)) < 1e-3


def test_model_errors():
    params = AptParams(head_dim=3)
    words = np.zeros((2, 3), int)
    with pytest.raises(TypeError, match=r"^Value must have an integer dtype, not float64$"):
        pack_tile(words * 1.0, 0, params)
    with pytest.raises(ValueError, match=r"^Words must be in -2015\.\.2015, not 2016$"):
        pack_tile(words + 2016, 0, params)
    with pytest.raises(ValueError, match=r"^Scales must be in 0\.\.65535, not 65536$"):
        pack_tile(words, 65536, params)
    with pytest.raises(ValueError, match=r"^Scales must have the shape \(\), not \(2,\)$"):
        pack_tile(words, [0, 0], params)
    with pytest.raises(ValueError, match=r"^Segments must have the shape \(\.\.\., rows, 3\), "
                                         r"not \(3, 2\)$"):
        pack_plane(words.T, params)
    with pytest.raises(TypeError, match=r"^Image must have the dtype uint8, not int64$"):
        unpack_tile(np.zeros(80, int), 2, params)
    with pytest.raises(ValueError, match=r"^Image must have 80 bytes, not 79$"):
        unpack_tile(np.zeros(79, np.uint8), 2, params)
    with pytest.raises(TypeError, match=r"^Plane must have the dtype uint8, not int64$"):
        unpack_plane(np.zeros(32, int), 2, params, signed=True)
    with pytest.raises(ValueError, match=r"^Plane must have 32 bytes, not 31$"):
        unpack_plane(np.zeros(31, np.uint8), 2, params, signed=True)


def flat_words(words, params):
    """Words of a plane as integers, the last one marked."""
    bits = params.segment_bits
    values = [sum(segment << (index * bits) for index, segment in enumerate(word))
              for word in words]
    values[-1] |= 1 << (bits * params.vpu_lanes)
    return values


def case(params, rows, seed=0):
    """Inputs and expected outputs of both directions."""
    rng = np.random.default_rng(seed)
    size = 1 << params.segment_bits
    rest = params.dim_words * params.vpu_lanes - params.head_dim
    packed, beats, payloads, words = [], [], [], []
    chosen = tiles(params, rows, seed)
    for tensor, scale in chosen:
        image = pack_tile(tensor, scale, params).reshape(-1, params.beat_bytes)
        beats += image.tolist()
        packed += [int.from_bytes(beat.tobytes(), "little") for beat in image]
        packed[-1] |= 1 << params.beat_bits
        for segments in split(tensor, params):
            segments = segments % size
            words += flat_words(row_words(segments, params.vpu_lanes), params)
            # What pads a row's last word is not to be looked at.
            junk = rng.integers(0, size, len(tensor) * rest)
            plane = row_words(segments, params.vpu_lanes, fill=junk)
            payloads += [{"segments": word, "last": int(index == len(plane) - 1)}
                         for index, word in enumerate(plane)]
    scales = [scale for _, scale in chosen]
    return {"pack_scale": scales, "pack_i": payloads, "unpack_tile": list(rows),
            "unpack_i": beats}, {"pack_o": packed, "unpack_scale": scales, "unpack_o": words}


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_rtl_matches_the_model(params, flow):
    inputs, outputs = case(params, [3, 1, 4, 2], seed=sum(map(ord, flow)))
    received, _ = run_streams(DataAligner(params), inputs,
                              {name: len(values) for name, values in outputs.items()}, flow=flow)
    assert received == outputs
    assert len(set(outputs["pack_o"])) > 5 and len(set(outputs["unpack_o"])) > 5


@pytest.mark.parametrize("params", [SHAPES[1], *SHAPES[3:]], ids=ids)
def test_padding_in_the_image_is_dropped(params):
    # Ones in place of all padding: fields beyond head_dim, and what fills a plane's last beat.
    rows = 3
    inputs, outputs = case(params, [rows])
    fields = (np.arange(params.image_dim) >= params.head_dim).repeat(params.segment_bits)
    plane = np.ones(params.plane_beats(rows) * params.beat_bits, dtype=bool)
    plane[:rows * len(fields)] = np.tile(fields, rows)
    header = np.arange(params.scale_beats * params.beat_bits) >= 16
    ones = np.packbits(np.concatenate([header, plane, plane]), bitorder="little")
    assert ones.any()
    beats = np.array(inputs["unpack_i"], dtype=np.uint8) | ones.reshape(-1, params.beat_bytes)
    received, _ = run_streams(
        DataUnpacker(params), {"tile": [rows], "i": beats.tolist()},
        {"scale": 1, "o": len(outputs["unpack_o"])})
    assert received == {"scale": outputs["unpack_scale"], "o": outputs["unpack_o"]}


@pytest.mark.parametrize("params", SHAPES, ids=ids)
def test_latencies_and_rates(params):
    rows = [4, 4]
    inputs, outputs = case(params, rows)
    dut = DataAligner(params)
    received, times = run_streams(dut, inputs,
                                  {name: len(values) for name, values in outputs.items()})
    assert received == outputs
    # Cycles of a tile, all words or all beats of it, whichever are more: the narrower side has
    # no gap, and neither has the end of a plane, but for one beat more or less.
    words = 1 + 2 * rows[0] * params.image_words
    beats = params.image_bytes(rows[0]) // params.beat_bytes
    cycles = max(words, beats)
    for name in ("pack_o", "unpack_o"):
        span = times[name][-1] - times[name][len(outputs[name]) // 2 - 1]
        assert cycles <= span <= cycles + 4, name
    wide = params.image_chunk * params.segment_bits > params.beat_bits
    unit = f"{params.beat_bytes} bytes" if wide else f"{params.image_chunk} segments"
    assert dut.throughput == f"{unit} a cycle each way"
    assert DataPacker(params).throughput == DataUnpacker(params).throughput == f"{unit} a cycle"
    # The scale's beat follows its transfer, the first word the beat that completes it.
    assert times["pack_o"][0] - times["pack_scale"][0] == dut.latency == 1
    first = -(-params.image_chunk * params.segment_bits // params.beat_bits)
    completed = times["unpack_i"][params.scale_beats + first - 1]
    assert times["unpack_o"][0] - completed == dut.unpack_latency == 2
    assert DataPacker(params).latency == 1 and DataUnpacker(params).latency == 2


def test_full_rate_at_four_words_to_three_beats():
    params = SHAPES[0]
    inputs, outputs = case(params, [6, 6])
    _, times = run_streams(DataAligner(params), inputs,
                           {name: len(values) for name, values in outputs.items()})
    # One cycle a word and one for the scale word, planes and tiles without a gap.
    assert set(np.diff(times["pack_i"]).tolist()) == {1, 2}
    assert times["pack_i"][-1] - times["pack_i"][0] == len(times["pack_i"])
    assert times["unpack_o"][-1] - times["unpack_o"][0] == len(times["unpack_o"])


def test_params_are_required():
    for block in (DataAligner, DataPacker, DataUnpacker):
        with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 8$"):
            block(8)
        assert block(SHAPES[0]).params is SHAPES[0]
