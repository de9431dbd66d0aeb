import numpy as np
import pytest

from golden.apt.params import AptParams
from golden.apt.vpu import LogitScale as Scale
from golden.apt.vpu import logit_scale, tile_scale
from rtl.apt.logit_scale import LogitScale
from tests.sim import run_streams


@pytest.mark.parametrize("flow", ["full_speed", "both"])
def test_factors_equal_the_model(flow):
    params = AptParams()
    rng = np.random.default_rng(1)
    cases = [(logit_scale(64, 12, 11, params), 32767, 32767), (Scale(1 << 15, 31), 1, 1),
             (Scale(0xffff, 31), 32767, 32767), (Scale(0xffff, 127), 32767, 1),
             (Scale(40000, 60), 0, 5), (Scale(40000, 60), 5, 0), (Scale(40000, 93), 1, 1)]
    cases += [(Scale(int(rng.integers(1 << 15, 1 << 16)), int(rng.integers(31, 128))),
               *(int(x) for x in rng.integers(0, 1 << rng.integers(1, 16, 2))))
              for _ in range(40)]
    dut = LogitScale(params)
    received, times = run_streams(
        dut, {"i": [{"scale": {"mantissa": scale.mantissa, "shift": scale.shift},
                     "a_q": a_q, "a_k": a_k} for scale, a_q, a_k in cases]},
        {"o": len(cases)}, flow=flow)
    expected = [tuple(int(x) for x in tile_scale(scale, a_q, a_k)) for scale, a_q, a_k in cases]
    assert [(word & 0xffff, word >> 16) for word in received["o"]] == expected
    if flow == "full_speed":
        waits = np.subtract(times["o"], times["i"])
        assert waits.max() <= dut.latency
        assert np.diff(times["i"]).max() <= dut.latency + 1


def test_the_model_is_near_the_real_number():
    params = AptParams(head_dim=72)
    scale = logit_scale(72, 10, 13, params)
    real = 256 * np.log2(np.e) / np.sqrt(72) / params.qmax ** 2 * 2.0 ** -23
    assert scale.mantissa * 2.0 ** -scale.shift == pytest.approx(real, rel=2 ** -16)
    mantissa, shift = tile_scale(scale, 20000, 31000)
    assert mantissa * 2.0 ** -shift == pytest.approx(real * 20000 * 31000, rel=2 ** -14)
    with pytest.raises(ValueError, match="must be at least"):
        logit_scale(64, 0, -8, params)
