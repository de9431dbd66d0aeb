"""Streams of different shapes are never joined, however wide they are."""

import pytest
from amaranth import Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.stream import connect_streams


class _End(wiring.Component):
    def __init__(self, shape, flow):
        super().__init__({"s": flow(stream.Signature(shape))})

    def elaborate(self, platform):
        return Module()


STRUCT = data.StructLayout({"a": 4, "b": 4})
SWAPPED = data.StructLayout({"b": 4, "a": 4})


@pytest.mark.parametrize("shape", [8, signed(8), STRUCT, data.ArrayLayout(4, 2)], ids=str)
def test_equal_shapes_connect(shape):
    source, sink = _End(shape, Out), _End(shape, In)
    m = Module()
    m.submodules.source, m.submodules.sink = source, sink
    connect_streams(m, source=source.s, sink=sink.s)


@pytest.mark.parametrize("a, b", [(8, signed(8)), (STRUCT, SWAPPED), (STRUCT, 8),
                                  (STRUCT, data.ArrayLayout(4, 2)), (8, 9)], ids=str)
def test_other_shapes_do_not(a, b):
    with pytest.raises(TypeError, match=r"^Payload of 'source' is .* but payload of 'sink' is "):
        connect_streams(Module(), source=_End(a, Out).s, sink=_End(b, In).s)


def test_two_ends_are_needed():
    with pytest.raises(TypeError, match=r"^Streams must be two keyword arguments, not 1$"):
        connect_streams(Module(), source=_End(8, Out).s)
