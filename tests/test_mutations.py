"""One-line faults in the RTL and in the models: the unit tests of the block must catch each."""

import pathlib
import shutil
import subprocess
import sys

import pytest


ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOORS = ("golden", "rtl", "gen", "verif", "tests")

#: File, text that occurs once in it, what takes its place.
MUTANTS = {
    "test_common_arith.py": [
        ("rtl/common/arith.py", "floor + (half & (sticky | floor[0]))", "floor + half"),
        ("rtl/common/arith.py", "limit = Cat((~sign)", "limit = Cat((sign)"),
        ("golden/common/arith.py", "(value + (1 << (shift - 1))) >> shift", "value >> shift"),
    ],
    "test_bank_memory.py": [
        ("rtl/common/bank_memory.py", "advance.eq(~self.o.valid | self.o.ready)", "advance.eq(1)"),
        ("rtl/common/bank_memory.py", "Mux(read_enable[number], chosen, 0)", "chosen"),
    ],
    "test_apt_dp_mac.py": [
        ("rtl/apt/dp_mac.py", "acc & ~first.replicate(params.acc_bits)", "acc"),
        ("rtl/apt/dp_mac.py", "self.o.valid.eq(valid & last)", "self.o.valid.eq(last)"),
        ("rtl/apt/dp_mac.py", "~pass_[1], ~pass_[0])", "~pass_[1], 1)"),
        ("rtl/apt/product_sum.py", "-params.multipliers * complemented", "params.multipliers"),
        ("golden/apt/dp_mac.py", "bias = 0 if", "bias = 1 if"),
    ],
    "test_apt_quantizer.py": [
        ("rtl/apt/quantizer.py", "(given | self.scale.ready) & (divided | reciprocal.i.ready)",
         "self.scale.ready & reciprocal.i.ready"),
        ("rtl/apt/quantizer.py", "take.eq(advance & (~loaded | (entered & entered_last)))",
         "take.eq(advance & (~loaded | entered))"),
    ],
    "test_apt_data_aligner.py": [
        ("rtl/apt/data_packer.py", "room & in_plane & ~position.pad", "room & in_plane"),
        ("rtl/apt/data_unpacker.py", "pop & in_plane & ~position.pad", "pop & in_plane"),
        ("rtl/apt/tile_image.py", "| ~place.any()", ""),
    ],
    "test_apt_mask_generator.py": [
        ("rtl/apt/mask_generator.py", ">= prune[:16]", "> prune[:16]"),
        ("rtl/apt/mask_generator.py", "prun_bits & quant_bits & inside", "quant_bits & inside"),
    ],
    "test_apt_mask_encoder.py": [
        ("rtl/apt/flag_grid.py", "(row_in_block == height - 1) | last_row",
         "(row_in_block == height - 1)"),
    ],
    "test_apt_mask_decoder.py": [
        ("rtl/apt/mask_decoder.py", "(row < tile_rows) & (keys >= 0)", "(keys >= 0)"),
        ("rtl/apt/mask_decoder.py", "grid_flag | buffer.row_pair[plane]", "grid_flag"),
    ],
    "test_apt_address_translator.py": [
        ("rtl/apt/address_translator.py", "Mux(last, (1 << tail) - 1, (1 << p.lanes) - 1)",
         "(1 << p.lanes) - 1"),
        ("rtl/apt/address_translator.py", "advance.eq(~self.o.valid | self.o.ready)",
         "advance.eq(1)"),
        ("rtl/apt/mask_gather.py", "bit & ~pick_end if bank >= tail else bit", "bit"),
    ],
    "test_apt_mul6x2.py": [
        ("rtl/apt/mul6x2.py", "corrected.eq(middle - less)", "corrected.eq(middle)"),
        ("rtl/apt/mul6x2.py", "if k < bits - 1 else -rows[k]", "if k < bits else -rows[k]"),
    ],
    "test_apt_quad_lane.py": [
        ("rtl/apt/quad_lane.py", "columns += [(hi, carry) for", "columns += [(hi, None) for"),
        ("rtl/apt/quad_lane.py", "clear.eq(valid & last)", "clear.eq(last)"),
        ("rtl/apt/quad_lane.py", "Mux(times, acc << params.word_bits, acc)", "acc"),
    ],
    "test_apt_tafa.py": [
        ("rtl/apt/tafa.py", "Mux(~tile.has_state, 1, Mux(never[1], _NEVER, theta))",
         "Mux(never[1], _NEVER, theta)"),
        ("rtl/apt/tafa.py", "unknown | empty | (tile.c == _NONE)", "unknown | empty"),
    ],
    "test_apt_rescale.py": [
        ("rtl/apt/rescale.py", "Mux(larger, tile.maximum, old.maximum)",
         "Mux(fresh, tile.maximum, old.maximum)"),
        ("rtl/apt/rescale.py", "~new.begun | (new.total == 0)", "new.total == 0"),
    ],
    "test_apt_list_builder.py": [
        ("rtl/apt/list_row.py", "listed.eq(inside & (self.dense | prun_bit))",
         "listed.eq(inside & prun_bit)"),
        ("rtl/apt/list_builder.py", "codes.payload.row_block == params.row_blocks - 1",
         "codes.payload.row_block == tile.last_block"),
    ],
    "test_apt_block_sequencer.py": [
        ("rtl/apt/block_sequencer.py", "self.slot_free - (take & entry.begin)",
         "self.slot_free - take"),
        ("rtl/apt/block_sequencer.py", "pass_done & (~block.hp | lsb.all())",
         "pass_done & (~block.hp | lsb[1])"),
    ],
    "test_apt_pv_sequencer.py": [
        ("rtl/apt/pv_sequencer.py", "Mux(then.p_low, entry.low, entry.high)", "entry.high"),
        ("rtl/apt/pv_sequencer.py", "~Cat(valids[1:]).any() & ~element.valid", "~element.valid"),
    ],
    "test_apt_tile_sums.py": [
        ("rtl/apt/flush_bus.py", "(~next_full | (next_turn[owner] & next_last))", "1"),
        ("rtl/apt/flush_lane.py", "m.d.sync += leaving.eq(0)", "m.d.sync += []"),
        ("rtl/apt/sum_columns.py", "Mux(step.first, 0, stored)", "stored"),
    ],
    "test_apt_o_update.py": [
        ("rtl/apt/o_lane.py", "far | (dropped.any() & ~dropped.all())", "far"),
    ],
    "test_apt_phases.py": [
        ("rtl/apt/phases.py", "self.tile.valid & k_there & later.w_rdy",
         "self.tile.valid & later.w_rdy"),
        ("rtl/apt/phases.py", "v_there & lists_there & may_update", "v_there & lists_there"),
    ],
    "test_apt_counters.py": [
        ("rtl/apt/counters.py", "m.d.sync += count.eq(0)", "m.d.sync += []"),
    ],
    "test_apt_controller.py": [
        ("rtl/apt/controller.py", "Mux(end & ~refused, tiles, 0)", "Mux(end, tiles, 0)"),
        ("rtl/apt/controller.py", "(stored >= tiles)", "(stored == tiles)"),
        ("rtl/apt/controller.py", "Mux(refused, Status.REFUSED, Status.DONE)", "Status.DONE"),
    ],
    "test_apt_row_work.py": [
        ("rtl/apt/row_work.py", "query_buffer ^ (tile.first & tile.has_state)",
         "query_buffer ^ tile.first"),
        ("rtl/apt/row_work.py", "waiting.r_en.eq(self.header.ready & ~empty)",
         "waiting.r_en.eq(self.header.ready)"),
        ("rtl/apt/row_work.py", "_AHEAD = 8", "_AHEAD = 4"),
    ],
    "test_apt_tile_walker.py": [
        ("rtl/apt/tile_walker.py", "credits + self.listed - take", "credits + self.listed"),
        ("rtl/apt/tile_walker.py", "Mux(tail, read.data[16:], full_beats)", "full_beats"),
    ],
    "test_apt_serial_core.py": [
        ("rtl/apt/serial/multiplier.py", "upper[16:] - excess", "upper[16:]"),
        ("rtl/apt/serial/registers.py", "Mux(forward, last, read.data)", "read.data"),
        ("rtl/apt/serial/mac.py", "shift | self.shift_now", "self.shift_now"),
        ("rtl/apt/serial/list_unit.py", "to_high.eq(high | self.dense)", "to_high.eq(high)"),
        ("rtl/apt/serial/power_unit.py", "& (~zero).replicate(16)", ""),
        ("rtl/apt/serial/fetch.py", "read_valid & ~self.branch", "read_valid"),
    ],
    "test_apt_serial.py": [
        ("rtl/apt/serial/source_row.py", "beq   left_keys, =2, @qk_tail_2", "nop"),
        ("rtl/apt/serial/source_row.py", "bge   =0, difference, @pv", "jmp   @pv"),
        ("rtl/apt/serial/source_tile.py", "or    w, w, refresh", "nop"),
        ("rtl/apt/serial/source_finish.py", "add   u, u, =LOG_QMAX2", "nop"),
    ],
}

CASES = [(test, *mutant) for test, mutants in MUTANTS.items() for mutant in mutants]


def run(folder, test):
    return subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist",
                           f"tests/{test}"], cwd=folder, text=True, capture_output=True)


@pytest.fixture
def copy(tmp_path):
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, tmp_path / floor,
                        ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_fault_has_its_place():
    for _, path, old, _ in CASES:
        count = (ROOT / path).read_text().count(old)
        assert count == 1, f"{old!r} occurs {count} times in {path}"


@pytest.mark.full
@pytest.mark.parametrize("test", MUTANTS)
def test_the_copy_itself_passes(test, copy):
    done = run(copy, test)
    assert done.returncode == 0, done.stdout


@pytest.mark.full
@pytest.mark.parametrize("test, path, old, new", CASES,
                         ids=[f"{path}-{number}" for number, (_, path, *_) in enumerate(CASES)])
def test_the_fault_is_caught(test, path, old, new, copy):
    (copy / path).write_text((copy / path).read_text().replace(old, new))
    done = run(copy, test)
    assert done.returncode == 1, done.stdout  # 1: tests ran, and some failed
