"""Checked connection of streams."""

from amaranth.lib import wiring


__all__ = ["connect_streams"]


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
