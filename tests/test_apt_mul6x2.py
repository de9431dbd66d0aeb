"""Two products in one: against plain products, in every style."""

import itertools

import numpy as np
import pytest

from gen.area_targets import TARGETS
from gen.synthesis import run_yosys, synthesize
from gen.techmap import FILES, PACKED_PRODUCTS
from gen.toolchain import ToolError
from gen.verilog import verilog_text
from golden.apt.params import MULTIPLIER_STYLES, AptParams
from rtl.apt.mul6x2 import Mul6x2, PackedProduct
from tests.sim import simulate


def params_of(style, segment_bits):
    return AptParams(multiplier_style=style, segment_bits=segment_bits)


def run(params, operands):
    """Products ``(hi*b, lo*b)`` of ``(hi, lo, b)``, one a cycle; asserts the latency."""
    dut = Mul6x2(params)
    assert dut.latency == 3 and dut.throughput == "two products a cycle"
    products = []

    async def testbench(ctx):
        for cycle in range(len(operands) + dut.latency):
            if cycle >= dut.latency:
                hi_b, carry, lo_b = (ctx.get(port) for port in
                                     (dut.hi_b, dut.hi_carry, dut.lo_b))
                products.append((hi_b + carry, lo_b))
            for port, value in zip((dut.hi, dut.lo, dut.b),
                                   operands[min(cycle, len(operands) - 1)], strict=True):
                ctx.set(port, value)
            await ctx.tick()

    simulate(dut, testbench, cycles=len(operands) + 100)
    return products


def expected(operands):
    return [(hi * b, lo * b) for hi, lo, b in operands]


def segments(bits):
    return range(-(1 << (bits - 1)), 1 << (bits - 1))


@pytest.mark.parametrize("style", MULTIPLIER_STYLES)
@pytest.mark.parametrize("segment_bits", [3, 4])
def test_every_operand(style, segment_bits):
    operands = list(itertools.product(segments(segment_bits), repeat=3))
    assert run(params_of(style, segment_bits), operands) == expected(operands)


@pytest.mark.parametrize("style", MULTIPLIER_STYLES)
def test_corners_and_random_operands_of_the_default(style):
    rng = np.random.default_rng(1)
    corners = list(itertools.product((-32, -31, -1, 0, 1, 30, 31), repeat=3))
    operands = corners + [tuple(row) for row in rng.integers(-32, 32, (4000, 3)).tolist()]
    assert run(params_of(style, 6), operands) == expected(operands)


@pytest.mark.parametrize("segment_bits", [6, 8])
def test_packing_is_exact_for_every_pair_of_a_factor(segment_bits):
    # The formula over all operands, in NumPy; the component writes the same.
    hi, lo, b = np.meshgrid(*3 * [np.array(segments(segment_bits))], indexing="ij", sparse=True)
    base = 1 << segment_bits
    p = (hi * base * base + lo % base) * b
    lower, upper = p % (base * base), p >> 2 * segment_bits
    carry = lower >> (2 * segment_bits - 1)
    corrected = ((lower >> segment_bits) - np.where(lo < 0, b, 0)) % base
    lo_b = corrected * base + lower % base
    lo_b = np.where(lo_b >> (2 * segment_bits - 1), lo_b - base * base, lo_b)
    assert (upper + carry == hi * b).all() and (lo_b == lo * b).all()
    # Without its carry the upper half still fits the port.
    assert upper.min() >= -(1 << (2 * segment_bits - 1))


@pytest.mark.full
def test_every_operand_of_the_default():
    operands = list(itertools.product(segments(6), repeat=3))
    assert run(params_of("packed", 6), operands) == expected(operands)


def test_product_is_two_registers_behind():
    dut = PackedProduct(3)
    assert dut.latency == 2 and dut.throughput == "one product a cycle"

    async def testbench(ctx):
        pairs = [(-256, -4), (255, -4), (-256, 3), (17, 2), (0, 0), (0, 0)]
        for cycle, (a, b) in enumerate(pairs):
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            if cycle >= 2:
                assert ctx.get(dut.p) == pairs[cycle - 2][0] * pairs[cycle - 2][1]
            await ctx.tick()

    simulate(dut, testbench)


def vector(port, width):
    """A bus in Verilog out of pins that are numbered, as the cell has them."""
    return ", ".join(f"{port}{k}" for k in reversed(range(width)))


#: The multiplier of an ECP5 as far as it is used, which Yosys has no model of.
MULT18X18D = f"""
module MULT18X18D (input {vector("A", 18)}, {vector("B", 18)}, input SIGNEDA, SIGNEDB, SOURCEA,
                   SOURCEB, CLK0, CE0, RST0, output {vector("P", 36)});
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "", REG_INPUTA_RST = "";
  parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "", REG_INPUTB_RST = "";
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "", REG_OUTPUT_RST = "", GSR = "ENABLED";
  wire [17:0] a = {{{vector("A", 18)}}}, b = {{{vector("B", 18)}}};
  reg [17:0] a_reg, b_reg;
  reg [35:0] p_reg;
  wire signed [18:0] a_in = {{SIGNEDA & a_now[17], a_now}}, b_in = {{SIGNEDB & b_now[17], b_now}};
  wire [17:0] a_now = REG_INPUTA_CLK == "CLK0" ? a_reg : a;
  wire [17:0] b_now = REG_INPUTB_CLK == "CLK0" ? b_reg : b;
  wire signed [35:0] p = a_in * b_in;
  assign {{{vector("P", 36)}}} = REG_OUTPUT_CLK == "CLK0" ? p_reg : p;
  always @(posedge CLK0) if (RST0) a_reg <= 0; else if (CE0) a_reg <= a;
  always @(posedge CLK0) if (RST0) b_reg <= 0; else if (CE0) b_reg <= b;
  always @(posedge CLK0) if (RST0) p_reg <= 0; else if (CE0) p_reg <= p;
endmodule
"""


def prove_ecp5(folder, **files):
    """Proves, with any operands, that the block gives what the component gives: after as many
    cycles as there are registers no state is left of before."""
    params = params_of("packed", 3)
    texts = {**FILES, "mul6x2.v": verilog_text(Mul6x2(params), "mul6x2"), "block.v": MULT18X18D}
    for name, text in {**texts, **files}.items():
        (folder / name).write_text(text)
    run_yosys(folder, [
        "read_verilog mul6x2.v", "hierarchy -check -top mul6x2", "proc", "design -save checked",
        *PACKED_PRODUCTS, "flatten", "select -assert-count 1 t:MULT18X18D",
        "select -assert-none t:$mul", "read_verilog block.v", "hierarchy -check -top mul6x2",
        "proc", "flatten", "rename mul6x2 gate", "design -stash gate",
        "design -load checked", "flatten", "rename mul6x2 gold",
        "design -copy-from gate -as gate gate",
        "miter -equiv -flatten -make_outputs gold gate miter", "hierarchy -top miter", "proc",
        "opt -full", "sat -verify -seq 5 -prove-skip 4 -prove trigger 0 -set-def-inputs miter"])


def test_ecp5_block_has_the_registers(tmp_path):
    prove_ecp5(tmp_path)
    # The proof would see a register less, and an operand taken as unsigned.
    for right, wrong in (('.REG_OUTPUT_CLK("CLK0")', '.REG_OUTPUT_CLK("NONE")'),
                         (".SIGNEDB(1'b1)", ".SIGNEDB(1'b0)")):
        assert right in FILES["ecp5_mul.v"]
        with pytest.raises(ToolError, match="proof did fail"):
            prove_ecp5(tmp_path, **{"ecp5_mul.v": FILES["ecp5_mul.v"].replace(right, wrong)})


@pytest.mark.parametrize("segment_bits", [3, 6, 8])
def test_ecp5_blocks_and_flip_flops(segment_bits):
    verilog = verilog_text(Mul6x2(params_of("packed", segment_bits)), "mul6x2")
    numbers = synthesize(verilog, "mul6x2", TARGETS["ecp5"], "packed")["numbers"]
    # Outside of the block: b and the sign of lo once more, the correction, the results.
    outside = segment_bits + 1 + segment_bits + 4 * segment_bits + 1
    if segment_bits <= 6:
        assert (numbers["DSP"], numbers["FF"]) == (1, outside)
    else:  # 24 bits do not fit a block; synthesis makes do with two
        assert numbers["DSP"] == 2 and numbers["FF"] > outside


def test_params_are_required_and_checked():
    with pytest.raises(TypeError, match=r"^Params must be an AptParams, not 6$"):
        Mul6x2(6)
    with pytest.raises(ValueError, match=r"split"):
        Mul6x2(AptParams(split="truncate"))
