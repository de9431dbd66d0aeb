"""Assembler of the serial dataflow's processor.

A line is ``label:``, ``operation operands`` or both, with a comment behind ``;``. An operand is a
register's name (registers are given numbers as their names come up), ``=value`` (a register that
holds this constant), ``#value`` (an immediate), ``@label``, or a word of the operation. A value is
a number, or a constant's name, or a sum of such.
"""

import re
from typing import NamedTuple

from .isa import PROGRAM_BITS, REGISTER_BITS, MacFlags, Op, ShiftMode, Table, encode


__all__ = ["AssemblyError", "Image", "assemble"]

_ALU = ("add", "sub", "and", "or", "xor", "max", "min")
_SHIFTS = {"round": ShiftMode.ROUND, "q15": ShiftMode.Q15, "trunc": ShiftMode.TRUNC,
           "none": ShiftMode.NONE}
#: Operands of the operations that need no more than their fields filled in. Upper case: where the
#: operand goes; ``i`` and ``u``: a signed and an unsigned immediate in that field.
_FORMS = {
    "nop": "", "ld": "D A iB", "st": "A iD B", "stp": "A B", "sh": "uB",
    "shr": "A", "shx": "A", "ashl": "", "setn": "A", "setr": "A", "inj": "D", "done": "A",
    "in": "D uH", "ins": "A B", "out": "A uH", "phase": "uB", "evb": "uH", "eve": "A B",
    "req": "A B uH", "mul": "D A B S", "mulu": "D A B S", "muls": "D A B S",
    "mula": "D uA B S", "beq": "A B T", "bne": "A B T", "blt": "A B T",
    "bge": "A B T", "jmp": "T", "call": "A T", "jr": "A", "tab": "D A P", "exp": "D A B",
    "list": "D A B uH", "sett": "A", "rdt": "D", "thr": "A B", "setl": "A B", "rdl": "D uH",
    "oup": "A B", "deq": "A B uD", "mac": "A B F",
}


class AssemblyError(ValueError):
    """A line is wrong; the message says which and why."""


class Image(NamedTuple):
    """An assembled program."""

    words: list      #: instructions
    registers: list  #: contents of all registers at the beginning, 32 bits unsigned
    labels: dict     #: address of each label
    names: dict      #: number of each register


class _Assembler:
    def __init__(self, constants):
        self.constants, self.registers = constants, {"=0": 0}
        self.contents = {0: 0}

    def value(self, text):
        total = 0
        for sign, term in re.findall(r"([+-]?)\s*(\w+)", text):
            if term in self.constants:
                number = self.constants[term]
            elif re.fullmatch(r"\d+|0x[0-9a-f]+", term):
                number = int(term, 0)
            else:
                raise AssemblyError(f"{term!r} is neither a number nor a constant")
            total += -number if sign == "-" else number
        return total

    def register(self, text):
        if text.startswith("="):
            value = self.value(text[1:]) & 0xffff_ffff
            text = f"={value}"
        elif not re.fullmatch(r"[a-z]\w*", text):
            raise AssemblyError(f"{text!r} is not a register")
        if text not in self.registers:
            number = len(self.registers)
            if number >= 1 << REGISTER_BITS:
                raise AssemblyError("there are not so many registers")
            self.registers[text] = number
            if text.startswith("="):
                self.contents[number] = value
        return self.registers[text]

    def immediate(self, text, low, high):
        if not text.startswith("#"):
            raise AssemblyError(f"{text!r} is not an immediate")
        value = self.value(text[1:])
        if not low <= value <= high:
            raise AssemblyError(f"{text} is {value}, which is not in {low}..{high}")
        return value & 0xffff if high > 255 else value & 0xff

    def encode(self, name, operands, labels):
        fields = {}
        if name in _ALU:
            form = "D A B"
            if len(operands) == 3 and operands[2].startswith("#"):
                form, fields["h"] = "D A iB", 1
        elif name == "li":
            form = "D I"
        elif name == "mov":
            name, form, operands = "add", "D A iB", [*operands, "#0"]
            fields["h"] = 1
        elif name == "loop":
            form, operands = "A B T", [operands[0], "=1", *operands[1:]]
        elif name in _FORMS:
            form = _FORMS[name]
        else:
            raise AssemblyError(f"there is no operation {name!r}")
        form = form.split()
        if len(operands) != len(form):
            raise AssemblyError(f"{name} has {len(form)} operands, not {len(operands)}")
        for kind, text in zip(form, operands, strict=True):
            self._operand(fields, kind, text, labels)
        return encode(Op[name.upper()], **fields)

    def _operand(self, fields, kind, text, labels):
        field = kind[-1].lower()
        if kind in "DAB":
            fields[field] = self.register(text)
        elif kind == "I":
            value = self.immediate(text, -(1 << 15), (1 << 15) - 1)
            fields["a"], fields["b"] = value >> 8, value & 0xff
        elif kind[0] == "i":
            fields[field] = self.immediate(text, -128, 127)
        elif kind[0] == "u":
            fields[field] = self.immediate(text, 0, 3 if field == "h" else 255)
        elif kind == "T":
            if not text.startswith("@") or text[1:] not in labels:
                raise AssemblyError(f"{text!r} is not a label")
            fields["h"], fields["d"] = divmod(labels[text[1:]], 256)
        elif kind == "S":
            fields["h"] = self._word(text, _SHIFTS)
        elif kind == "P":
            fields["h"] = self._word(text, {one.name.lower(): one for one in Table})
        else:
            words = {one.name.lower(): one for one in MacFlags} | {"add": 0}
            fields["d"] = sum(self._word(word, words) for word in text.split())

    @staticmethod
    def _word(text, words):
        if text not in words:
            raise AssemblyError(f"{text!r} must be one of {', '.join(words)}")
        return int(words[text])


def assemble(source, constants):
    """The :class:`Image` of a program with named constants; :class:`AssemblyError`."""
    lines, labels = [], {}
    for number, line in enumerate(source.splitlines(), 1):
        line = line.partition(";")[0].strip()
        while match := re.match(r"(\w+):\s*", line):
            if match[1] in labels:
                raise AssemblyError(f"line {number}: label {match[1]!r} is there twice")
            labels[match[1]] = len(lines)
            line = line[match.end():]
        if line:
            lines.append((number, *re.match(r"(\S+)\s*(.*)", line).groups()))
    if len(lines) > 1 << PROGRAM_BITS:
        raise AssemblyError(f"the program has {len(lines)} instructions, "
                            f"more than {1 << PROGRAM_BITS}")
    assembler, words = _Assembler(constants), []
    for number, name, operands in lines:
        try:
            operands = [one.strip() for one in operands.split(",")] if operands else []
            words.append(assembler.encode(name, operands, labels))
        except ValueError as error:
            raise AssemblyError(f"line {number}: {error}") from None
    contents = [assembler.contents.get(number, 0) for number in range(1 << REGISTER_BITS)]
    return Image(words, contents, labels, assembler.registers)
