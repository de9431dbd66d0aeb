"""The float model of attention against plain formulas, and integers and study against it."""

import dataclasses

import numpy as np
import pytest

from golden.apt import mask_decoder, tafa
from golden.apt.attend import Step, attend
from golden.apt.attend_float import FloatState, FloatStep, Masks, attend_float
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds, RowColThresholds
from golden.studies.attention import HeadChain, MaskCollector, exact, masked_attention

from .attention_heads import DENSE, SMALL, codes_of, head_of, operands, qsnr, real_heads


def drifted(real, amount, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(x + amount * x.std() * rng.standard_normal(x.shape) for x in real)


def test_float_model_is_attention_with_masks():
    rng = np.random.default_rng(8)
    real = operands(50, 20)
    p, reference = exact(*real)
    dense = attend_float(*real, FloatStep(dense=True), None, SMALL)
    assert qsnr(dense.o, reference) > 250
    bounds = np.arange(0, 50, 16)
    assert np.allclose(dense.state.rho, np.add.reduceat(p, bounds, axis=1), rtol=1e-12)
    qk, pv = rng.random((2, 50, 50)) < 0.6
    qk[7] = False
    qk[:12, 16:32] = False
    masks = Masks(qk, ~qk & False, qk & pv, qk & False)
    result = attend_float(*real, FloatStep(), None, SMALL, masks=masks)
    e = np.where(qk, np.exp(real[0] @ real[1].T / np.sqrt(20)), 0)
    expected = np.where(pv, e, 0) @ real[2] / np.maximum(e.sum(1, keepdims=True), 1e-300)
    assert np.allclose(result.o, expected, atol=1e-12) and not result.o[7].any()
    assert np.array_equal(result.masks.qk_hp, qk) and np.array_equal(result.masks.pv_hp, qk & pv)


@pytest.mark.parametrize("params", [SMALL, dataclasses.replace(SMALL, codec="rowcol")],
                         ids=["block", "rowcol"])
def test_prediction_from_the_same_step_is_exact(params):
    """With the state of the same Q and K, theta' says of P' what theta says of P."""
    real = operands(50, 20)
    p, _ = exact(*real)
    counts = RowColThresholds() if params.codec == "rowcol" else BlockThresholds()
    step = FloatStep(thetas=(0.01, 0.06), dense=True, counts=counts)
    first = attend_float(*real, step, None, params)
    second = attend_float(*real, step, first.state, params)
    for theta in step.thetas:  # no probability is that near to a threshold
        assert np.abs(p / theta - 1).min() > 1e-9
    assert np.array_equal(second.new_hp, p >= 0.06)
    assert np.array_equal(second.new_lp, (p >= 0.01) & (p < 0.06))
    third = attend_float(*real, step._replace(dense=False), second.state, params)
    code = second.state.code[1, 2]
    hp, lp = mask_decoder.decode(code, False, 12, 16, params)
    assert np.array_equal(third.masks.qk_hp[12:24, 32:48], hp)
    assert np.array_equal(third.masks.qk_lp[12:24, 32:48], lp)

    # The integers say the same but for probabilities next to a threshold.
    head, _ = head_of(real, params)
    codes = tuple(tafa.threshold_code(step.thetas).tolist())
    dense = Step(codes=codes, dense=True, counts=counts)
    state = attend(head, dense, None, params).state
    collected = MaskCollector(50, 50, params, dense=False)
    attend(head, dense, state, params, on_tile=collected)
    for mask, theta in ((collected.masks.pv_hp, 0.06),
                        (collected.masks.pv_hp | collected.masks.pv_lp, 0.01)):
        far = np.abs(np.log2(p / theta)) > 0.03
        assert far.mean() > 0.97 and np.array_equal(mask[far], (p >= theta)[far])


@pytest.mark.parametrize("fields", [
    {}, {"split": "truncate"}, {"codec": "rowcol"}, {"state_bits": 8}, {"exp2": "table"},
], ids=lambda fields: " ".join(fields.values()) if "state_bits" not in fields else "state 8")
def test_integers_follow_the_float_model(fields):
    """Three steps with drift: the same masks and words of the same width give nearly the same."""
    params = AptParams(**fields)
    real = tuple(x[:300] for x in real_heads()[1])
    counts = RowColThresholds(4, 40, 2, 30) if params.codec == "rowcol" else BlockThresholds(4, 4)
    p, _ = exact(*real)
    thetas = tuple(np.quantile(p, [0.55, 0.9]).tolist())
    step = Step(tuple(tafa.threshold_code(thetas).tolist()), counts=counts)
    float_step = FloatStep(thetas, counts=counts)
    state = float_state = None
    for number in range(3):
        dense = number == 0
        head, unit = head_of(real, params)
        collected = MaskCollector(300, 300, params, dense=dense)
        result = attend(head, step._replace(dense=dense), state, params, on_tile=collected)
        same = attend_float(*real, float_step, None, params, masks=collected.masks, words=True)
        assert qsnr(result.o * unit, same.o) > 48
        own = attend_float(*real, float_step._replace(dense=dense), float_state, params)
        assert isinstance(own.state, FloatState)
        agreed = np.mean(own.masks.pv_hp == collected.masks.pv_hp)
        assert agreed == 1 if dense else agreed > 0.97
        if not dense:
            assert 0.1 < (collected.masks.pv_hp | collected.masks.pv_lp).mean() < 0.7
        state, float_state, real = result.state, own.state, drifted(real, 0.02, number)


def test_high_precision_on_given_masks():
    """The study's attention on masks is the engine's where the masks are those of the engine."""
    params = AptParams()
    real = tuple(x[:200] for x in real_heads()[0])
    head, _ = head_of(real, params)
    dense = MaskCollector(200, 200, params, dense=True)
    first = attend(head, DENSE, None, params, on_tile=dense)
    assert np.array_equal(masked_attention(head, dense.masks, params), first.o)
    # All that is left is in high precision: quant threshold 0.
    collected = MaskCollector(200, 200, params, dense=False)
    code = int(tafa.threshold_code(0.004))
    second = attend(head, Step(codes=(code, 0xffff)), first.state, params, on_tile=collected)
    assert 0.05 < collected.masks.pv_hp.mean() < 0.9 and not collected.masks.pv_lp.any()
    assert np.array_equal(masked_attention(head, collected.masks, params), second.o)


def test_chain_of_a_head():
    params = AptParams()
    real = tuple(x[:256] for x in real_heads()[2])
    chain = HeadChain(params)
    p, _ = exact(*real)
    step = Step(tuple(tafa.threshold_code(np.quantile(p, [0.5, 0.9])).tolist()),
                counts=BlockThresholds(4, 4))
    for number in range(3):
        codes, exponents = codes_of(real)
        record = chain.step(real, codes, exponents, step)
        if number == 0:
            assert record is None
            continue
        levels = {name: energy.qsnr for name, energy in record.energy.items()}
        assert levels["int12"] > 58
        assert levels["apt"] <= levels["int12 masks"] + 0.2 <= levels["float masks"] + 0.5
        assert levels["truncate"] < levels["apt"] < levels["unpruned"]
        assert record.gap == levels["int12 masks"] - levels["apt"]
        assert 0 < record.unpruned_lost + 1e-9 < record.lost < 0.5
        assert 0.05 < record.high < 0.2 and record.computed > record.high + record.low
