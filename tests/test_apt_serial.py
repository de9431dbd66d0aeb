"""The serial dataflow: its parameters, and its program on the model of the processor."""

import dataclasses
import re
from collections import deque

import numpy as np
import pytest

from gen.designs import DESIGNS
from gen.presets import APT_PRESETS
from golden.apt.cycles import predict, work_of
from golden.apt.params import AptParams
from rtl.apt.sd_mpu import SdMpu
from rtl.apt.serial.program import program, tables
from tests.serial_machine import Machine
from verif.apt.heads import drifting_heads, hard_steps
from verif.engine.plan import Plan


PRESET = APT_PRESETS["icebreaker"]
SMALL = dataclasses.replace(PRESET, tile_q=8, tile_k=16, head_dim=6)
SHAPES = [SMALL, dataclasses.replace(SMALL, tile_q=12, tile_k=40, head_dim=13, state_bits=8,
                                     exp2="table")]


def plan_of(params, seed=1, sizes=((8, 16, 4), (9, 45, 7), (1, 1, 2), (12, 2, 2), (3, 90, 3))):
    rng = np.random.default_rng(seed)
    plan = Plan(params)
    for queries, keys, steps in sizes:
        for head, step in zip(drifting_heads(queries, keys, steps, params, rng),
                              hard_steps(keys), strict=False):
            plan.add(f"{queries}x{keys}", head, step)
    return plan


@pytest.mark.parametrize("changes, message", [
    ({"lanes": 4}, "AptParams.lanes must be 8, not 4"),
    ({"multipliers": 4}, "AptParams.multipliers must be 2, not 4"),
    ({"segment_bits": 5}, "AptParams.segment_bits must be 6, not 5"),
    ({"beat_bytes": 2}, "AptParams.beat_bytes must be 1, not 2"),
    ({"vpu_lanes": 8}, "AptParams.vpu_lanes must be 4, not 8"),
    ({"codec": "rowcol"}, "AptParams.codec must be block, not 'rowcol'"),
    ({"tile_q": 30}, "AptParams.tile_q must be a multiple of 4, not 30"),
    ({"tile_k": 512}, ("AptParams.tile_q and AptParams.tile_k must leave K and V at most 16384 "
                       "words, not 32768")),
    ({"tile_q": 256}, ("AptParams.tile_q and AptParams.tile_k must leave Q and O at most 16384 "
                       "words, not ")),
])
def test_what_it_cannot_do_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        SdMpu(dataclasses.replace(PRESET, **changes))


def test_a_dataflow_has_a_name():
    with pytest.raises(ValueError, match=r"^AptParams\.dataflow must be quad or serial, not 'x'$"):
        AptParams(dataflow="x")
    with pytest.raises(ValueError, match=r"^AptParams\.dataflow must be quad, not 'serial'$"):
        PRESET.check_quad()
    with pytest.raises(ValueError, match=r"^AptParams\.dataflow must be serial, not 'quad'$"):
        APT_PRESETS["tiny"].check_serial()
    assert DESIGNS["sd_mpu"].fits(PRESET) and not DESIGNS["vpu"].fits(PRESET)
    assert PRESET.products == 4 and APT_PRESETS["tiny"].products == 16


@pytest.mark.parametrize("params", SHAPES, ids=["narrow", "odd"])
def test_the_program_computes_what_the_model_does(params):
    """Heads over steps on the model of the processor: words, counts, and work that masks save."""
    plan = plan_of(params)
    memory, reads, writes = plan.memory(), deque(), deque()

    def request(address, beats, write):
        (writes if write else reads).extend(range(address, address + beats))
    machine = Machine(program(params), tables(params), words=plan.words,
                      read=lambda: int(memory[reads.popleft()]), request=request,
                      write=lambda byte: memory.__setitem__(writes.popleft(), byte),
                      v_key=2 * params.column_passes)
    cycles = []
    for number, job in enumerate(plan.jobs):
        before = machine.cycles
        machine.blocks, machine.elements, machine.pv_passes = [0, 0], [0, 0], 0
        machine.run_jobs(number + 1)
        assert machine.done[-1] == 0 and not reads and not writes
        assert plan.check(number, memory)
        works = [work for row in work_of(job.expected.tiles, job.layout, dense=job.step.dense)
                 for work in row]
        assert machine.blocks == [sum(int(w.lp_blocks.sum()) for w in works),
                                  sum(int(w.hp_blocks.sum()) for w in works)]
        elements, high = (sum(int(getattr(w, name).sum()) for w in works)
                          for name in ("valid", "hp"))
        assert machine.elements == [elements, high]
        assert machine.pv_passes == params.column_passes * (elements + 3 * high)
        cycles.append(machine.cycles - before)
    plan.check_rest(memory)
    assert all(later < cycles[0] for later in cycles[1:4])


def test_bad_jobs_are_refused():
    plan = plan_of(SMALL, sizes=((3, 5, 1),))
    bad = []
    for word, value in ((0, 0), (1, 1), (1, 1 << 16), (2, 5 << 16), (2, 3), (2, 9 | 5 << 16),
                        (2, 3 | 17 << 16), (4, 0x7fff | 40 << 16), (4, 0x8000 | 30 << 16)):
        words = list(plan.words)
        words[word] = value
        bad += words
    machine = Machine(program(SMALL), tables(SMALL), words=bad)
    machine.run_jobs(9)
    assert machine.done == [1] * 9


def test_the_cycle_model_does_not_know_it():
    plan = plan_of(SMALL, sizes=((3, 5, 1),))
    job = plan.jobs[0]
    works = work_of(job.expected.tiles, job.layout, dense=True)
    with pytest.raises(ValueError, match=r"^AptParams\.dataflow must be quad, not 'serial'$"):
        predict(works, job.layout, dense=True, has_state=False)
