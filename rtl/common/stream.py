"""Checked connection of streams."""

from amaranth import *
from amaranth.lib import wiring


__all__ = ["connect_streams", "travel_along"]


def connect_streams(m, **ends):
    """Connect two streams whose payload shapes must be equal, not just equally wide.

    :func:`amaranth.lib.wiring.connect` of Amaranth 0.5 compares widths alone, so a signed number
    meets an unsigned one, or a struct one with its fields in another order, without a word.

    Raises :class:`TypeError` where the shapes differ or there are not two ends.
    """
    if len(ends) != 2:
        raise TypeError(f"Streams must be two keyword arguments, not {len(ends)}")
    (name_a, a), (name_b, b) = ends.items()
    if a.payload.shape() != b.payload.shape():
        raise TypeError(f"Payload of {name_a!r} is {a.payload.shape()!r} but payload of "
                        f"{name_b!r} is {b.payload.shape()!r}")
    wiring.connect(m, **ends)


def travel_along(m, advance, stages, valid, **fields):
    """Delay what belongs to a value by the ``stages`` registers that the value goes through.

    All registers move when ``advance`` is high; ``valid`` alone is reset.

    Returns ``valid`` and the ``fields``, in the order given, behind the last register.
    """
    values = [valid, *fields.values()]
    for k in range(stages):
        staged = [Signal(len(value), name=f"{name}_{k}", reset_less=name != "valid")
                  for name, value in zip(("valid", *fields), values, strict=True)]
        with m.If(advance):
            m.d.sync += Cat(staged).eq(Cat(values))
        values = staged
    return values
