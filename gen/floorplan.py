"""Places of an engine's multipliers on a device.

nextpnr's placers take a lane's multipliers apart: these lie in few rows of the device, far from
each other, and all logic follows them.
"""

import json
import re


__all__ = ["Floorplan", "LFE5U_85F"]


class Floorplan:
    """Multipliers by the names of their cells.

    Parameters
    ----------
    groups : :class:`dict`
        For each pattern of a cell's name below the design its places, in the order in which the
        netlist has the cells; patterns must not overlap.
    """

    #: The cell that has a place.
    CELL = "MULT18X18D"

    def __init__(self, groups):
        self.groups = dict(groups)

    def places(self, names):
        """Places of cells by name; none at all if one of them has none: a shape that this plan is
        not made for."""
        left = {pattern: list(places) for pattern, places in self.groups.items()}
        result = {}
        for name in names:
            pattern = next((one for one in left if re.search(one, name)), None)
            if pattern is None or not left[pattern]:
                return {}
            result[name] = left[pattern].pop(0)
        return result

    def pin(self, path, top):
        """Pin the multipliers of a netlist, as Yosys writes it in JSON; returns how many."""
        document = json.loads(path.read_text())
        cells = document["modules"][top]["cells"]
        places = self.places([name for name, cell in cells.items() if cell["type"] == self.CELL])
        for name, place in places.items():
            cells[name].setdefault("attributes", {})["BEL"] = place
        path.write_text(json.dumps(document))
        return len(places)


#: Columns of the DSP blocks of an ECP5-85F, of four multipliers each, and their rows.
_COLUMNS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
_ROWS = (10, 34, 58)


def _blocks(row, first, count=1):
    return [f"X{column + k}/Y{_ROWS[row]}/MULT18_{k}"
            for column in _COLUMNS[first:first + count] for k in (0, 1, 4, 5)]


def _lfe5u_85f():
    """16 lanes of eight packed products: owners 0, 2 and 3 one row each, owner 1 to the right of
    two of them, the output next to it; the rest at the edge."""
    firsts = {0: [(0, 0), (0, 2), (0, 4), (0, 6)], 1: [(0, 8), (0, 10), (1, 8), (1, 10)],
              2: [(1, 0), (1, 2), (1, 4), (1, 6)], 3: [(2, 0), (2, 2), (2, 4), (2, 6)]}
    groups = {rf"\.array\.owner_{owner}\.lane_{lane}\.": _blocks(row, first, 2)
              for owner, lanes in firsts.items() for lane, (row, first) in enumerate(lanes)}
    output, edge = _blocks(2, 8, 4), _blocks(0, 12) + _blocks(1, 12)
    for lane in range(8):
        groups[rf"\.output\.lane_{lane}\."] = output[2 * lane:2 * lane + 2]
    for lane in range(4):
        groups[rf"\.dequantizer\.lane_{lane}\."] = edge[2 * lane:2 * lane + 2]
    groups[r"\.rows\.rescale\."] = _blocks(2, 12)[:2]
    groups[r"\.controller\."] = _blocks(2, 12)[2:3]
    return Floorplan(groups)


#: For ``sd_mpu`` of 16 lanes with 16 multipliers.
LFE5U_85F = _lfe5u_85f()
