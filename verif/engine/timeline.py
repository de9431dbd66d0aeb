"""What the stages of the engine did, as text."""

from rtl.apt.datapath import STAGES


__all__ = ["timeline"]

_SHADES = " .:+#"


def timeline(changes, cycles, width=100):
    """Lines of a chart: a row a stage, ``width`` columns from the first cycle to the last.

    ``changes`` are pairs of a cycle and the stages from it on, a bit each. A column is darker the
    larger the share of its cycles in which the stage did something.
    """
    busy = [[0.0] * width for _ in STAGES]
    ends = [cycle for cycle, _ in changes[1:]] + [cycles]
    for (start, stages), end in zip(changes, ends, strict=True):
        column = start * width // cycles
        while start < end:
            edge = min(end, -(-(column + 1) * cycles // width))
            for stage in range(len(STAGES)):
                if stages >> stage & 1:
                    busy[stage][min(column, width - 1)] += edge - start
            start, column = edge, column + 1
    per_column = cycles / width
    lines = [f"{'cycles':>9}  0{cycles:>{width - 1},}"]
    for name, row in zip(STAGES, busy, strict=True):
        shades = (min(4, -(-4 * share // 1)) for share in (cycles_in / per_column
                                                            for cycles_in in row))
        lines.append(f"{name:>9}  " + "".join(_SHADES[int(shade)] for shade in shades))
    return "\n".join(lines) + "\n"
