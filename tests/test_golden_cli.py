"""``python -m golden``: what it writes, and one line with status 2 for whatever it cannot do."""

import json
import re

import numpy as np
import pytest
from PIL import Image

import golden.cli.dit as dit_commands
from golden import __version__
from golden.__main__ import main
from golden.cli.entry import run_cli
from golden.dit.capture import Capture
from golden.dit.model import DEPTH, Dit, initial_noise, label_names, sample, to_uint8
from golden.dit.tiles import load_tiles


CLASSES = ("0 Smileys & Emotion, 1 People & Body, 2 Animals & Nature, 3 Food & Drink, "
           "4 Travel & Places, 5 Activities, 6 Objects, 7 Symbols, 8 Flags")


@pytest.fixture
def golden(capsys):
    """Run a command line; gives status, standard output and standard error."""
    def run(*args):
        with pytest.raises(SystemExit) as caught:
            run_cli(main, "golden", [str(arg) for arg in args])
        text = capsys.readouterr()
        return caught.value.code, text.out, text.err
    return run


@pytest.fixture
def small_capture(tmp_path):
    """Heads with some structure, made without the transformer."""
    rng = np.random.default_rng(5)
    place = np.arange(1024)[:, None] / 1024 * rng.uniform(1, 9, 64)
    q = np.cos(place + rng.uniform(0, 1, (1, 1, 3, 1, 64)), dtype=np.float32) * 2
    path = tmp_path / "heads.npz"
    noise = rng.standard_normal((3, *q.shape), dtype=np.float32)
    Capture(category=1, style=0, seed=0, steps=(3,), layers=(2,),
            q=q + noise[0] / 4, k=q + noise[1] / 4, v=noise[2]).save(path)
    return path


def test_version_and_help(golden):
    assert golden("--version") == (0, f"tilewright, version {__version__}\n", "")
    status, out, _ = golden("--help")
    assert status == 0
    for name in ("sample", "capture", "fixture", "codec-front", "utilisation"):
        assert re.search(rf"^  {name} ", out, re.MULTILINE)
        assert golden(name, "--help")[0] == 0


# Commands that sample

def test_sample_writes_the_image(golden, tmp_path):
    path = tmp_path / "new" / "cat.png"
    status, out, err = golden("sample", "--class", "animals", "--style", "TW", "--seed", 3,
                              "--steps", 1, "-o", path)
    assert status == 0 and out == f"{path}: Animals & Nature, twitter, seed 3, 1 steps, fp32\n"
    assert "sampling" in err
    expected = to_uint8(sample(Dit.load(), initial_noise(3), category=2, style=1, steps=1))
    with Image.open(path) as image:
        assert image.format == "PNG" and np.array_equal(np.asarray(image), expected)
    assert [entry.name for entry in path.parent.iterdir()] == ["cat.png"]


def test_capture_writes_what_was_asked_for(golden, tmp_path):
    path = tmp_path / "qkv.npz"
    status, out, _ = golden("capture", "--class", "8", "--style", "0", "--seed", 4, "--steps", 6,
                            "--steps-list", "1,0", "--layers", "3", "-o", path)
    assert status == 0 and out.startswith(f"{path}: q, k, v of shape (2, 1, 3, 1024, 64)")
    taken = Capture.load(path)
    assert (taken.category, taken.style, taken.seed) == (8, 0, 4)
    assert taken.steps == (0, 1) and taken.layers == (3,)


def test_fixture_writes_the_tiles(golden, tmp_path, monkeypatch):
    def tiles(on_step):
        on_step(25)
        return load_tiles()
    monkeypatch.setattr(dit_commands, "fixture_tiles", tiles)
    status, out, _ = golden("fixture", "-o", tmp_path / "tiles.npz")
    assert (status, out) == (0, f"{tmp_path / 'tiles.npz'}: 6 tiles\n")
    assert len(load_tiles(tmp_path / "tiles.npz")) == 6


@pytest.mark.full
def test_fixture_is_reproducible(golden, tmp_path):
    for name in ("a.npz", "b.npz"):
        assert golden("fixture", "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    for tile, stored in zip(load_tiles(tmp_path / "a.npz"), load_tiles(), strict=True):
        assert np.abs(tile.p.astype(int) - stored.p).max() <= 64
        assert np.abs(tile.q.astype(int) - stored.q).max() <= 64


def test_stopping_leaves_nothing_behind(golden, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt
    monkeypatch.setattr(dit_commands, "sample", interrupted)
    status, out, err = golden("sample", "-o", tmp_path / "cat.png")
    assert (status, out) == (130, "") and err.endswith("golden: error: stopped\n")
    assert not list(tmp_path.iterdir())


# Labels

@pytest.mark.parametrize("text, number", [
    ("2", 2), ("animals", 2), ("ANI", 2), ("Animals & Nature", 2), ("fl", 8), (" Sy ", 7)])
def test_class_by_number_or_prefix(golden, tmp_path, monkeypatch, text, number):
    seen = []

    def fake(model, noise, **options):
        seen.append((options["category"], options["style"]))
        return noise
    monkeypatch.setattr(dit_commands, "sample", fake)
    assert golden("sample", "--class", text, "-o", tmp_path / "x.png")[0] == 0
    assert seen == [(number, 0)]  # google is the default style


def one_line(result, message):
    status, out, err = result
    assert (status, out) == (2, "")
    assert err == f"golden: error: {message}\n"


@pytest.mark.parametrize("text", ["f", "s", "", "dog", "9", "-1", "2.0"])
def test_unknown_or_ambiguous_class(golden, text):
    one_line(golden("sample", "--class", text),
             "Invalid value for '--class': must be a number or the beginning of one name of: "
             f"{CLASSES}; not {text!r}")


def test_unknown_style(golden):
    one_line(golden("sample", "--style", "apple"),
             "Invalid value for '--style': must be a number or the beginning of one name of: "
             "0 google, 1 twitter, 2 fluent3d; not 'apple'")
    assert label_names()[1] == ("google", "twitter", "fluent3d")


# Other mistakes

LIST = "with commas between them, not"


@pytest.mark.parametrize("line, option, message", [
    ("sample --steps 0", "--steps", "0 is not in the range 1<=x<=1000."),
    ("sample --seed -1", "--seed", f"-1 is not in the range 0<=x<={2 ** 63 - 1}."),
    ("sample --numerics int3", "--numerics", "'int3' is not 'fp32'."),
    ("capture --layers 0,10", "--layers", f"must be numbers in 0..{DEPTH - 1} {LIST} '0,10'"),
    ("capture --steps-list x", "--steps-list", f"must be numbers in 0..999 {LIST} 'x'"),
    ("capture --steps-list 3,28", "--steps-list", "must be below --steps (28), not 28"),
    ("codec-front --block 4", "--block",
     "must be shapes such as 4x8 (rows x keys, 1 to 64), not '4'"),
    ("codec-front --max-lost nan", "--max-lost", f"must be numbers in 0.0001..1 {LIST} 'nan'"),
    ("utilisation --windows 0", "--windows", f"must be integers in 1..256 {LIST} '0'"),
])
def test_bad_values(golden, line, option, message):
    one_line(golden(*line.split()), f"Invalid value for '{option}': {message}")


@pytest.mark.parametrize("line, message", [
    ("paint", "No such command 'paint'."),
    ("codec-front --tile-k 100", "--tile-k must divide the 1024 tokens of a head, not 100"),
    ("utilisation --tile-q 48", "--tile-q must divide the 1024 tokens of a head, not 48"),
])
def test_other_mistakes(golden, line, message):
    one_line(golden(*line.split()), message)


def test_unusable_files(golden, tmp_path):
    one_line(golden("sample", "-o", tmp_path), f"cannot use {tmp_path}: Is a directory")
    (tmp_path / "file").write_text("")
    status, _, err = golden("sample", "-o", tmp_path / "file" / "cat.png")
    assert status == 2 and re.fullmatch(r"golden: error: cannot use .*file: .*\n", err)
    status, _, err = golden("codec-front", "--qkv", tmp_path / "file")
    assert status == 2 and re.fullmatch(
        r"golden: error: .*file must be a file that `golden capture` wrote: .*\n", err)


# Studies

def test_codec_front_command(golden, small_capture, tmp_path):
    outputs = {name: tmp_path / f"front.{name}" for name in ("json", "csv", "png")}
    status, out, _ = golden(
        "codec-front", "--qkv", small_capture, "--tile-q", 16, "--tile-k", "16", "--block",
        "4x8,3x5", "--rows", 3, "--json", outputs["json"], "--csv", outputs["csv"],
        "--plot", outputs["png"])
    assert status == 0
    document = json.loads(outputs["json"].read_text())
    assert document["run"]["steps"] == [3] and document["pruned_share"] == 0.573
    assert [codec["codec"] for codec in document["codecs"]] == [
        "rowcol", "rowcol and", "block 4x8", "block 3x5"]
    assert [codec["settings"] for codec in document["codecs"]] == [17 ** 4, 17 ** 4, 33 ** 2,
                                                                   16 ** 2]
    assert len(document["against_rowcol"]) == 2 * 2
    for line in document["against_rowcol"]:
        assert line["reduction"] == pytest.approx(1 - line["figure"] / line["rowcol_figure"])
        assert f"{line['figure']:.4f}, rowcol {line['rowcol_figure']:.4f}" in out
    for codec in document["codecs"]:
        for best in codec["best"]:
            assert best["lost"] <= best["lost_limit"]
            assert best["figure"] == pytest.approx(best["cost"] + 0.3 * best["demoted"])
    rows = outputs["csv"].read_text().splitlines()
    assert rows[0] == "codec,tile_q,tile_k,cost,lost,demoted,flag_set_above"
    assert len(rows) == 1 + sum(codec["front_points"] for codec in document["codecs"])
    with Image.open(outputs["png"]) as image:
        assert image.size[0] > 500


def test_utilisation_command(golden, small_capture, tmp_path):
    path = tmp_path / "usage.json"
    status, out, _ = golden("utilisation", "--qkv", small_capture, "--tile-k", 64, "--windows",
                            "2,99", "--json", path, "--csv", tmp_path / "usage.csv", "--plot",
                            tmp_path / "usage.png")
    assert status == 0 and "window 2" in out and "whole tile" in out
    document = json.loads(path.read_text())
    assert {(row["placement"], row["window"]) for row in document["utilisation"]} == {
        (placement, window) for placement in ("modulo", "balanced", "correlated")
        for window in (2, 64, "bound")}
    assert len(document["heads"]) == 3 * 3
    for row in document["utilisation"]:
        shares = [head[str(row["window"])] for head in document["heads"]
                  if head["placement"] == row["placement"]]
        assert row["mean_of_heads"] == pytest.approx(np.mean(shares), abs=1e-5)
        assert min(shares) - 1e-5 <= row["pooled"] <= max(shares) + 1e-5
        assert f"{row['pooled']:.3f}" in out
    assert len((tmp_path / "usage.csv").read_text().splitlines()) == 10
    assert (tmp_path / "usage.png").stat().st_size > 1000
