"""Cycle model of PV and of the O update behind it."""

from golden.common.checks import ceil_div

from .quad_shape import OWNERS


__all__ = ["OutputCycles", "pv_end"]

#: From a phase's begin to its first element of PV.
_START = 8
#: From a run's last element to the credit for another, all idle; and to its row's offer.
_FLUSH, _ROW_DONE = 14, 19
#: Runs that an owner may have under way, and rows.
_RUNS, _RING = 2, 2
#: From an offer to a row's first word, from the last one to where the tile is done, and from
#: there to the first word of the output.
_OFFER, _WRITTEN, _READ = 2, 5, 3


class OutputCycles:
    """The O update: rows one after another, and query tiles out in the cycles between.

    Parameters
    ----------
    params : :class:`~golden.apt.params.AptParams`
        Shape of the engine.
    beats_a_cycle : :class:`float`
        What memory takes.
    """

    def __init__(self, params, beats_a_cycle):
        self._row = ceil_div(params.head_dim, params.multipliers // 2)
        beats = 16 * params.head_dim / params.beat_bits
        self._row_out = max(self._row, beats / beats_a_cycle)
        self._free = 0
        self._left = 0  # when row 0 of a query tile on its way out has left
        self._rows = 0  # of that

    def row(self, number, offered):
        """When the sums of row ``number`` have been read."""
        if number < self._rows:  # it must have left
            offered = max(offered, self._left + number * self._row_out)
        start = max(offered + _OFFER, self._free)
        self._free = start + self._row
        if start < self.out:
            self._left += self._row
        return self._free

    def done(self, begin):
        """When a tile whose PV began in cycle ``begin`` is done, after all of its rows."""
        return max(self._free + _WRITTEN, begin + _WRITTEN)

    def finish(self, done, rows):
        """A query tile is done and goes out."""
        self._left, self._rows = max(done + _READ, self.out) + self._row_out, rows

    @property
    def out(self):
        """When the last query tile is out."""
        return self._left + max(0, self._rows - 1) * self._row_out


def _owner_runs(work, owner, params):
    """Runs of an owner in a tile: ``(elements, row, first of its row, last of its row)``."""
    runs = []
    for row in range(owner, work.rows, OWNERS):
        valid, hp = int(work.valid[row]), int(work.hp[row])
        if not valid:
            continue
        for number in range(params.column_passes):
            legs = [valid, 2 * hp, hp] if hp else [valid]
            runs += [(n, row, not number and not k, number == params.column_passes - 1
                      and k == len(legs) - 1) for k, n in enumerate(legs)]
    return runs


def pv_end(work, start, output, params):
    """When PV of a tile ends: owners go through their runs, the flush bus takes turns."""
    begin = start + _START
    lanes = params.owner_lanes
    runs = [_owner_runs(work, owner, params) for owner in range(OWNERS)]
    at = [0] * OWNERS                  # next run of each
    now = [begin] * OWNERS             # when its next element may be issued
    credits = [[] for _ in range(OWNERS)]  # of each run: when its flush had begun
    room = [[] for _ in range(OWNERS)]     # of each row: when its slot was read
    rows = [0] * OWNERS
    bus, turn = begin, 0
    while any(at[o] < len(runs[o]) for o in range(OWNERS)):
        offers = []
        for owner in range(OWNERS):
            if at[owner] == len(runs[owner]):
                continue
            elements, _, first, _ = runs[owner][at[owner]]
            end = now[owner] + elements
            if at[owner] >= _RUNS:
                end = max(end, credits[owner][at[owner] - _RUNS] + 1)
            if first and rows[owner] >= _RING:
                end = max(end, room[owner][rows[owner] - _RING] + 1)
            offers.append((end, (owner - turn) % OWNERS, owner))
        # The bus takes what is there when it is free; of several the next in turn.
        soonest = min(offers)
        moment = max(bus, soonest[0] + _FLUSH - 1)
        ready = [offer for offer in offers if offer[0] + _FLUSH - 1 <= moment]
        end, _, owner = min(ready, key=lambda offer: offer[1])
        _, row, first, last = runs[owner][at[owner]]
        credits[owner].append(moment)
        bus, turn = moment + lanes, (owner + 1) % OWNERS
        now[owner] = end
        at[owner] += 1
        rows[owner] += first
        if last:
            room[owner].append(output.row(row, moment + lanes + _ROW_DONE - _FLUSH))
    return max([*now, begin])
