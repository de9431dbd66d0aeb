"""Assembler of the serial dataflow's processor: encodings, and a line for every error."""

import re

import pytest

from gen.presets import APT_PRESETS
from rtl.apt.serial.assembler import AssemblyError, assemble
from rtl.apt.serial.isa import Op, encode
from rtl.apt.serial.program import program


def test_fields_labels_and_constants():
    image = assemble("""
        first:  add   x, y, =SIZE+1     ; a comment
                add   x, x, #-1
        here: there:
                blt   x, =0, @first
                ld    z, x, #-128
                st    x, #FOUR, z
                mac   x, y, first shift last
                loop  x, @there
                li    z, #-2
                tab   z, x, log
                mula  z, #3, y, round
        """, {"SIZE": 1000, "FOUR": 4})
    x, y, size, z, one = (image.names[name] for name in ("x", "y", "=1001", "z", "=1"))
    assert image.labels == {"first": 0, "here": 2, "there": 2}
    assert image.registers[size] == 1001 and image.registers[one] == 1 and image.registers[x] == 0
    assert image.words == [
        encode(Op.ADD, d=x, a=y, b=size), encode(Op.ADD, d=x, a=x, b=255, h=1),
        encode(Op.BLT, a=x), encode(Op.LD, d=z, a=x, b=128), encode(Op.ST, d=4, a=x, b=z),
        encode(Op.MAC, d=19, a=x, b=y), encode(Op.LOOP, d=2, a=x, b=one),
        encode(Op.LI, d=z, a=255, b=254), encode(Op.TAB, d=z, a=x, h=1),
        encode(Op.MULA, d=z, a=3, b=y)]
    assert assemble("jmp @far\n" + "nop\n" * 700 + "far: nop", {}).words[0] == encode(
        Op.JMP, d=701 & 255, h=701 >> 8)


@pytest.mark.parametrize("source, message", [
    ("frob x", "line 1: there is no operation 'frob'"),
    ("nop\nadd x, y", "line 2: add has 3 operands, not 2"),
    ("add x, y, #128", "line 1: #128 is 128, which is not in -128..127"),
    ("li x, #40000", "line 1: #40000 is 40000, which is not in -32768..32767"),
    ("sh #256", "line 1: #256 is 256, which is not in 0..255"),
    ("in x, #4", "line 1: #4 is 4, which is not in 0..3"),
    ("add x, y, =SIZE", "line 1: 'SIZE' is neither a number nor a constant"),
    ("add x, y, 5", "line 1: '5' is not a register"),
    ("sh x", "line 1: 'x' is not an immediate"),
    ("jmp @far", "line 1: '@far' is not a label"),
    ("mul x, y, z, up", "line 1: 'up' must be one of round, q15, trunc, none"),
    ("x: nop\nx: nop", "line 2: label 'x' is there twice"),
    ("nop\n" * 1025, "the program has 1025 instructions, more than 1024"),
    ("\n".join(f"setn r{k}" for k in range(256)), "line 256: there are not so many registers"),
])
def test_errors_name_the_line(source, message):
    with pytest.raises(AssemblyError, match=f"^{re.escape(message)}$"):
        assemble(source, {})


def test_fields_are_checked():
    with pytest.raises(ValueError, match=r"^Field d of ADD must be in 0\.\.255, not 256$"):
        encode(Op.ADD, d=256)


def test_the_program_fits():
    image = program(APT_PRESETS["icebreaker"])
    assert len(image.words) <= 1024 and len(image.names) <= 256
    assert image.registers[0] == 0 and len(image.registers) == 256
