"""Packing and unpacking of payloads by the layouts in a manifest."""

__all__ = ["pack", "unpack"]


def pack(layout, value):
    """The bits of ``value`` (dict, sequence, enum member name or integer) as an int.

    Raises :class:`ValueError` where a value does not fit its field: a bench never wraps silently.
    """
    kind, width = layout["kind"], layout["width"]
    if kind == "struct":
        if set(value) != set(layout["fields"]):
            raise ValueError(f"Fields must be {sorted(layout['fields'])}, not {sorted(value)}")
        return sum(pack(field, value[name]) << field["offset"]
                   for name, field in layout["fields"].items())
    if kind == "array":
        element = layout["element"]
        if len(value) != layout["length"]:
            raise ValueError(f"Array must have {layout['length']} elements, not {len(value)}")
        return sum(pack(element, item) << (index * element["width"])
                   for index, item in enumerate(value))
    if kind == "enum" and isinstance(value, str):
        value = layout["values"][value]
    value = int(value)
    low, high = ((-(1 << (width - 1)), (1 << (width - 1)) - 1) if layout["signed"]
                 else (0, (1 << width) - 1))
    if not low <= value <= high:
        raise ValueError(f"Value must be in {low}..{high}, not {value}")
    return value & ((1 << width) - 1)


def unpack(layout, bits):
    """The inverse of :func:`pack`: dicts, lists and integers."""
    kind, width = layout["kind"], layout["width"]
    if kind == "struct":
        return {name: unpack(field, bits >> field["offset"] & ((1 << field["width"]) - 1))
                for name, field in layout["fields"].items()}
    if kind == "array":
        element = layout["element"]
        mask = (1 << element["width"]) - 1
        return [unpack(element, bits >> (index * element["width"]) & mask)
                for index in range(layout["length"])]
    if layout["signed"] and bits >> (width - 1):
        return bits - (1 << width)
    return bits
