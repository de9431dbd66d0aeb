"""Lane of the quad dataflow: against plain sums, all operations mixed, at the widths' limits."""

import dataclasses
import functools

import numpy as np
import pytest

from golden.apt.dp_mac import dot, split
from golden.apt.params import AptParams
from rtl.apt.quad_lane import QuadLane, lane_operation
from tests.sim import simulate


#: Off the default in all that shapes a lane: pairs (one, odd, many), channels, keys, styles.
MATRIX = [
    AptParams(multipliers=2, head_dim=20, tile_k=48, multiplier_style="packed"),
    AptParams(multipliers=4, head_dim=20, tile_k=48, multiplier_style="packed"),
    AptParams(multipliers=4, head_dim=72, segment_bits=4, multiplier_style="dsp"),
    AptParams(multipliers=6, head_dim=20, tile_k=48, segment_bits=8, multiplier_style="packed"),
    AptParams(multipliers=16, head_dim=72, multiplier_style="packed"),
    AptParams(multipliers=16, head_dim=20, tile_k=48, multiplier_style="lut"),
    AptParams(multipliers=18, head_dim=72, tile_k=48, multiplier_style="packed"),
]


def name(params):
    return (f"m{params.multipliers}-d{params.head_dim}-k{params.tile_k}-s{params.segment_bits}-"
            f"{params.multiplier_style}")


def segments_of(words, params):
    """``{"H": ..., "L": ...}`` of words."""
    return dict(zip("HL", split(np.asarray(words), params), strict=True))


def qk_cycles(query, keys, hp, params):
    """Cycles of one dot product with two keys, in the sequencer's order, and its two results."""
    pad = params.qk_chunks * params.qk_width - params.head_dim
    q = segments_of(np.pad(query, (0, pad)), params)
    k = segments_of(np.pad(keys, ((0, 0), (0, pad))), params)
    cycles = []
    for of_q, of_k in ("HH", "HL", "LH", "LL") if hp else ("HH",):
        for chunk in range(params.qk_chunks):
            columns = slice(chunk * params.qk_width, (chunk + 1) * params.qk_width)
            cycles.append({"qk": 1, "first": 0, "last": 0, "low": int(not hp),
                           "shift": int((of_q + of_k in ("HL", "LL")) and chunk == 0),
                           "b": q[of_q][columns].tolist(), "a": k[of_k][:, columns].tolist()})
    cycles[0]["first"] = cycles[-1]["last"] = 1
    return cycles, [int(dot(query, key, hp, params)) for key in keys]


def pv_cycles(p, v):
    """Cycles of a run of segments ``p [n]`` with ``v [n, multipliers]``, and its sums."""
    cycles = [{"qk": 0, "first": int(k == 0), "last": int(k == len(p) - 1),
               "b": [int(one)] * (len(row) // 2), "a": row.reshape(2, -1).tolist()}
              for k, (one, row) in enumerate(zip(p, v, strict=True))]
    return cycles, (p @ v).tolist()


def random_operations(params, count, seed):
    """``(cycles, result)`` of QK in both precisions and of PV."""
    rng = np.random.default_rng(seed)
    half = 1 << (params.segment_bits - 1)
    for number in range(count):
        if number % 2:
            n = int(rng.integers(1, 12))
            yield pv_cycles(rng.integers(-half, half, n),
                            rng.integers(-half, half, (n, params.multipliers)))
        else:
            query = rng.integers(-params.qmax, params.qmax + 1, params.head_dim)
            keys = rng.integers(-params.qmax, params.qmax + 1, (2, params.head_dim))
            yield qk_cycles(query, keys, bool(rng.integers(2)), params)


class Driver:
    """Drives a lane: operands a cycle after what is to be done with them, so a cycle's numbers are
    those of its operation, and the lane is a cycle later than it says."""

    def __init__(self, ctx, dut):
        self._ctx, self._dut, self._operands = ctx, dut, {}

    async def cycle(self, **step):
        operation = {name: step.pop(name) for name in list(step)
                     if name in lane_operation().members}
        self._ctx.set(self._dut.operation, {"valid": 0, **operation})
        self._ctx.set(self._dut.i, self._operands)
        self._operands = step
        await self._ctx.tick()


def run(params, cycles):
    """Drives ``cycles`` (``None`` is an idle one) and returns ``{cycle: values}`` of both outputs,
    the cycle that of the ``last`` that the latency gives."""
    dut = QuadLane(params)
    seen = {"sums": {}, "run": {}}
    rng = np.random.default_rng(9)
    half = 1 << (params.segment_bits - 1)
    # Garbage on every operand that a cycle does not use, and while idle.
    noise = functools.partial(rng.integers, -half, half)
    delay = max(dut.sums_latency, dut.run_latency) + 1

    async def testbench(ctx):
        held, driver = {}, Driver(ctx, dut)
        for cycle in range(len(cycles) + delay + 2):
            for port, latency in (("sums", dut.sums_latency), ("run", dut.run_latency)):
                values = [ctx.get(value) for value in getattr(dut, port)]
                if ctx.get(getattr(dut, f"{port}_valid")):
                    seen[port][cycle - latency - 1] = held[port] = values
                elif port in held:
                    assert values == held[port], "a result did not stay"
            payload = {"valid": 0, "qk": int(rng.integers(2)), "first": int(rng.integers(2)),
                       "shift": int(rng.integers(2)), "last": int(rng.integers(2)),
                       "low": int(rng.integers(2)),
                       "a": noise((2, params.qk_width)).tolist(),
                       "b": noise(params.qk_width).tolist()}
            if cycle < len(cycles) and cycles[cycle] is not None:
                payload.update(valid=1, **cycles[cycle])
            await driver.cycle(**payload)

    simulate(dut, testbench)
    return seen


def expect(operations):
    """All cycles in a row and what must be seen, as :func:`run` returns it."""
    cycles, wanted = [], {"sums": {}, "run": {}}
    for steps, result in operations:
        cycles += steps
        wanted["sums" if steps[0]["qk"] else "run"][len(cycles) - 1] = result
    return cycles, wanted


@pytest.mark.parametrize("params", MATRIX, ids=name)
def test_operations_without_a_bubble(params):
    cycles, wanted = expect(random_operations(params, 14, 1))
    assert len({tuple(sums) for sums in wanted["sums"].values()}) == 7
    assert run(params, cycles) == wanted


@pytest.mark.parametrize("params", MATRIX[:2], ids=name)
def test_interleaved_and_idle_cycles(params):
    # QK and PV take turns in mid-operation, with idle cycles between.
    rng = np.random.default_rng(2)
    queues = [[step for operation in random_operations(params, 40, 3) for step in operation[0]
               if step["qk"] == kind] for kind in (0, 1)]
    results = [[operation[1] for operation in random_operations(params, 40, 3)
                if operation[0][0]["qk"] == kind] for kind in (0, 1)]
    cycles = []
    while any(queues):
        queue = queues[int(rng.integers(2))]
        cycles.append(queue.pop(0) if queue and rng.random() < 0.8 else None)
    seen = run(params, cycles)
    for kind, port in ((0, "run"), (1, "sums")):
        lasts = [number for number, step in enumerate(cycles)
                 if step and step["qk"] == kind and step["last"]]
        assert list(seen[port].items()) == list(zip(lasts, results[kind], strict=True))


@pytest.mark.parametrize("params", [MATRIX[0], MATRIX[4], MATRIX[5], MATRIX[6]], ids=name)
def test_widest_sums(params):
    d, m, n = params.head_dim, params.multipliers, params.tile_k
    low, high = params.msb_range
    top = high << params.segment_bits
    operations = []
    for x, y in ((params.qmax, params.qmax), (-params.qmax, params.qmax), (top, top)):
        query, keys = np.full(d, x), np.stack([np.full(d, y), np.full(d, -y)])
        operations += [qk_cycles(query, keys, hp, params) for hp in (True, False)]
    # MID: two products of a whole tile of P_H with V_L.
    for p, v in ((high, params.lsb_range[0]), (low, params.lsb_range[0])):
        operations.append(pv_cycles(np.full(2 * n, p), np.full((2 * n, m), v)))
    cycles, wanted = expect(operations)
    assert run(params, cycles) == wanted
    # The widths are used: a bit less would not do.
    largest = {port: max(abs(value) for values in wanted[port].values() for value in values)
               for port in wanted}
    assert largest["sums"].bit_length() == params.logit_acc_bits - 1
    assert largest["run"].bit_length() == params.run_bits - 1


def test_reset_clears_a_run():
    from amaranth import Signal
    from amaranth.hdl import ResetInserter

    params = MATRIX[1]
    reset = Signal()
    dut = QuadLane(params)
    cycles, result = pv_cycles(np.array([3, -5, 7]), np.arange(12).reshape(3, 4))

    async def testbench(ctx):
        driver = Driver(ctx, dut)
        for stop in (1, 2, 3):
            for step in cycles[:stop]:
                await driver.cycle(**{**step, "valid": 1, "last": 0})
            ctx.set(reset, 1)
            await driver.cycle()
            ctx.set(reset, 0)
            for step in cycles:
                await driver.cycle(valid=1, **step)
                assert not ctx.get(dut.run_valid) and not ctx.get(dut.sums_valid)
            await driver.cycle()
            run, = await ctx.tick().sample(dut.run).until(dut.run_valid)
            assert list(run) == result

    simulate(ResetInserter(reset)(dut), testbench)


def test_latencies():
    for multipliers, levels in ((2, 0), (4, 1), (16, 3), (18, 4)):
        dut = QuadLane(dataclasses.replace(MATRIX[4], multipliers=multipliers))
        assert (dut.run_latency, dut.sums_latency) == (5, 6 + levels)
        assert dut.latency == dut.sums_latency
        assert dut.throughput == f"{multipliers} products a cycle"


def test_params_are_required_and_checked():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 6$"):
        QuadLane(6)
    with pytest.raises(ValueError, match=r"multipliers"):
        QuadLane(AptParams(multipliers=3))
