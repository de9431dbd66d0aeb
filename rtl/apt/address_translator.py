"""From mask rows to the address translation table (APT 4.4)."""

import itertools

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.block_fifo import BlockFifo
from rtl.common.stream import connect_streams

from .component import AptComponent
from .mask_gather import MaskGather, table_beat


__all__ = ["AddressTranslator", "att_line"]


def att_line(params):
    """A line of the table: what each bank does in an issue slot.

    ``base`` is the oldest row that has elements in this line or later ones; a valid bank's row is
    in ``base .. base + window - 1``. ``last`` marks the last line of a tile. ``row`` and ``slot``
    are 0 in a bank that is not valid.
    """
    return data.StructLayout({
        "banks": data.ArrayLayout(data.StructLayout({
            "valid": 1, "row": params.row_bits, "slot": params.slot_bits,
        }), params.lanes),
        "base": params.row_bits,
        "last": 1,
    })


class AddressTranslator(AptComponent):
    """Scans the mask of a tile and emits lines with at most one element of each bank.

    Every valid element leaves exactly once. Position ``p = lanes * slot + bank`` of a row is key
    ``p`` (``placement = modulo``) or the tile's key ``table[p]``; elements of a bank leave row by
    row, and by slot within a row. The line of an element is

        line = max(free[bank], start[row]);  free[bank] = line + 1
        start[row] = max(end[row - window], end[row - 1] - skew)

    with ``end[row]`` the first line behind all elements of rows up to ``row``: an element waits
    until rows ``window`` and more before its own have left, and the banks drift apart by at most
    ``params.att_skew(window)`` lines. The number of the line is found as the element is scanned,
    and is stored beside it, so lines do not depend on when words come or lines go. Rows without
    elements cost no line; a tile without any has one line in which no bank is valid.

    ``lanes`` mask bits are scanned and one line is emitted a cycle. :attr:`latency` cycles after
    the last word of a tile its last line is offered, if no other line is waiting. The scanner
    runs ahead, into the next tiles too, by ``params.att_lines`` complete lines. A stalled line is
    held; nothing is lost.

    Per bank there is a FIFO of ``params.att_depth(window)`` entries: the slot, the low bits of
    the row (as many as tell the rows of a window apart) and of the line's number.

    Parameters
    ----------
    params : :class:`AptParams`
        ``lanes``, ``tile_q``, ``tile_k`` and ``placement`` matter.
    window : :class:`int`
        Rows that may be open at once, 1 to ``tile_q``; ``params.window_qk`` if not given.

    Members
    -------
    i : :py:`In(stream.Signature(params.lanes))`
        Mask words in key order, ``params.slots`` a row, ``tile_q`` rows a tile. Bits beyond
        ``tile_k`` in the last word of a row are ignored.
    table : :py:`In(stream.Signature(table_beat(params)))`
        One placement table a tile, slot by slot; not there if ``placement`` is ``modulo``.
    o : :py:`Out(stream.Signature(att_line(params)))`
        Lines.
    """

    def __init__(self, params, window=None):
        super().__init__(params)
        self._window = params.att_window(window)
        self._placed = params.placement != "modulo"

    def _ports(self, params):
        members = {
            "i": In(stream.Signature(params.lanes)),
            "table": In(stream.Signature(table_beat(params))),
            "o": Out(stream.Signature(att_line(params))),
        }
        if params.placement == "modulo":
            del members["table"]
        return members

    @property
    def window(self):
        return self._window

    @property
    def latency(self):
        """Cycles from the last word of a tile to its last line: scan, push, pop, line store (two),
        fetch and output; a placement adds the gathering of the last row."""
        return self._params.slots + 7 if self._placed else 6

    @property
    def throughput(self):
        return f"{self._params.lanes} elements and one line a cycle"

    def elaborate(self, platform):
        m = Module()
        p, window = self._params, self._window
        depth, skew = p.att_depth(window), p.att_skew(window)
        tag_bits = ceil_log2(depth)

        # Mask words by slot, out of a register.
        words = stream.Signature(p.lanes).create()
        if self._placed:
            m.submodules.gather = gather = MaskGather(p)
            connect_streams(m, outer=wiring.flipped(self.i), inner=gather.i)
            connect_streams(m, outer=wiring.flipped(self.table), inner=gather.table)
            connect_streams(m, source=gather.o, sink=wiring.flipped(words))
        else:
            self._scan_register(m, words)

        # Where the scanner is. Whether a word ends its row is known in a register, since most
        # of the state waits for it.
        push = Signal()
        slot, row = Signal(p.slot_bits), Signal(p.row_bits)
        row_end, last_row, tile_end = Signal(init=p.slots == 1), Signal(), Signal()
        m.d.comb += tile_end.eq(row_end & last_row)
        with m.If(push):
            m.d.sync += slot.eq(Mux(row_end, 0, slot + 1))
            if p.slots > 1:
                m.d.sync += row_end.eq(~row_end & (slot == p.slots - 2))
            with m.If(row_end):
                m.d.sync += [row.eq(Mux(last_row, 0, row + 1)),
                             last_row.eq(~last_row & (row == p.tile_q - 2))]

        # Lines, counted modulo `depth`: `newest` is the first that is not begun, `oldest` the
        # first not popped, `waiting` their distance. An element enters line `newest - behind`.
        newest, oldest = Signal(tag_bits), Signal(tag_bits)
        waiting = Signal(range(depth + 1))
        begin, pop, room = Signal(), Signal(), Signal()
        m.d.comb += [
            room.eq(~waiting[-1]),  # `depth` is a power of two
            push.eq(words.valid & room),
            words.ready.eq(room),
        ]
        with m.If(push & begin & ~pop):
            m.d.sync += waiting.eq(waiting + 1)
        with m.Elif(pop & ~(push & begin)):
            m.d.sync += waiting.eq(waiting - 1)
        with m.If(push & begin):
            m.d.sync += newest.eq(newest + 1)

        # `span` lines are open to the row, the others are complete. The newest line of a tile
        # that has not ended is kept as well (`busy`): it may turn out to be the last.
        span = Signal(range(skew + p.slots + 1))
        busy, complete, closed = Signal(), Signal(), Signal(init=1)
        keep = Cat(span[0] | (busy & closed), span[1:])
        m.d.comb += complete.eq(waiting > keep)
        spans, after = self._next_spans(m, span, push=push, begin=begin, row_end=row_end,
                                        tile_end=tile_end)
        # `span == 0` of the next word, without the way through its value.
        ends_closed = tile_end | (row_end if skew == 0 else 0)
        none_after = Mux(row_end, after == 0, closed)
        with m.If(push):
            m.d.sync += [
                busy.eq(~tile_end & (busy | begin)),
                span.eq(Mux(begin, *spans)),
                closed.eq(ends_closed | (~begin & none_after)),
            ]

        # Scan: an element goes to the bank's line `free`, which is `lag` before `newest`, or to the
        # first that is open to the row. A line is begun by an element that goes to `newest`, or
        # by the end of an empty tile. Most states wait for `begin`: what follows from either
        # value is computed beside it.
        start, start_next = Signal(tag_bits), Signal(tag_bits)
        m.d.comb += [start.eq(newest - span), start_next.eq(start + 1)]
        front = Signal(p.lanes, init=-1)  # lag == 0
        m.d.comb += begin.eq((words.payload & (front | closed.replicate(p.lanes))).any()
                             | (tile_end & ~busy))
        targets = []
        for bank in range(p.lanes):
            lag = Signal(span.shape(), name=f"lag_{bank}")
            behind = Signal(span.shape(), name=f"behind_{bank}")
            free, target = (Signal(tag_bits, name=f"{name}_{bank}") for name in ("free", "target"))
            is_open = Signal(name=f"open_{bank}")
            put = words.payload[bank]
            m.d.comb += [
                is_open.eq(lag < span),
                behind.eq(Mux(is_open, lag, span)),
                target.eq(Mux(is_open, free, start)),
            ]
            targets.append(target)
            with m.If(push & put):
                m.d.sync += free.eq(Mux(is_open, free + 1, start_next))
            with m.If(push):
                m.d.sync += [
                    lag.eq(Mux(begin, Mux(put, behind, lag + ~lag.all()),
                               Mux(put, behind - 1, lag))),
                    front[bank].eq(Mux(begin, put & (front[bank] | closed),
                                       Mux(put, behind == 1, front[bank]))),
                ]

        # What is known of a line as a whole: its oldest row, which begins it, and if it is last.
        m.submodules.line_memory = line_memory = Memory(
            shape=data.StructLayout({"base": p.row_bits, "last": 1}), depth=depth, init=[])
        line_write, line_read = line_memory.write_port(), line_memory.read_port(domain="comb")
        newest_base = Signal(p.row_bits, reset_less=True)
        with m.If(push & begin):
            m.d.sync += newest_base.eq(row)
        m.d.comb += [
            line_write.addr.eq(Mux(begin, newest, newest - 1)),
            line_write.data.base.eq(Mux(begin, row, newest_base)),
            line_write.data.last.eq(tile_end),
            line_write.en.eq(push & (begin | tile_end)),
            line_read.addr.eq(oldest),
        ]

        # Pop: the complete line with the lowest number goes to the line store.
        low_bits = min(p.row_bits, ceil_log2(window))
        entry = {"slot": p.slot_bits, "low": low_bits}
        if low_bits == 0:
            del entry["low"]
        stored = data.StructLayout({
            "banks": data.ArrayLayout(data.StructLayout({"valid": 1, **entry}), p.lanes),
            "base": p.row_bits,
            "last": 1,
        })
        m.submodules.store = store = BlockFifo(stored, p.att_lines)
        line = Signal(stored)
        m.d.comb += [
            pop.eq(complete & store.i.ready),
            store.i.valid.eq(complete),
            store.i.payload.eq(line),
            line.base.eq(line_read.data.base),
            line.last.eq(line_read.data.last),
        ]
        with m.If(pop):
            m.d.sync += oldest.eq(oldest + 1)

        # Banks: FIFO of {slot, low bits of the row, line}.
        entry = data.StructLayout({**entry, "line": tag_bits})
        for bank, target in enumerate(targets):
            put = Signal(name=f"put_{bank}")
            m.d.comb += put.eq(push & words.payload[bank])

            memory = Memory(shape=entry, depth=depth, init=[])
            m.submodules[f"fifo_{bank}"] = memory
            write, read = memory.write_port(), memory.read_port(domain="comb")
            produce = Signal(tag_bits + 1, name=f"produce_{bank}")
            consume = Signal(tag_bits + 1, name=f"consume_{bank}")
            m.d.comb += [
                write.addr.eq(produce[:-1]),
                write.data.slot.eq(slot),
                write.data.line.eq(target),
                write.en.eq(put),
                read.addr.eq(consume[:-1]),
                line.banks[bank].valid.eq((produce != consume) & (read.data.line == oldest)),
                line.banks[bank].slot.eq(read.data.slot),
            ]
            if low_bits:
                m.d.comb += [
                    write.data.low.eq(row[:low_bits]),
                    line.banks[bank].low.eq(read.data.low),
                ]
            with m.If(put):
                m.d.sync += produce.eq(produce + 1)
            with m.If(pop & line.banks[bank].valid):
                m.d.sync += consume.eq(consume + 1)

        # A register behind the store: block memory is slow to give its data.
        advance, fetch = Signal(), Signal()
        fetched, fetched_valid = Signal(stored, reset_less=True), Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            fetch.eq(~fetched_valid | advance),
            store.o.ready.eq(fetch),
        ]
        with m.If(fetch):
            m.d.sync += [fetched_valid.eq(store.o.valid), fetched.eq(store.o.payload)]

        # Output register: rows in full again.
        with m.If(advance):
            m.d.sync += self.o.valid.eq(fetched_valid)
            with m.If(fetched_valid):
                m.d.sync += [self.o.p.base.eq(fetched.base), self.o.p.last.eq(fetched.last)]
                for bank, (target, source) in enumerate(zip(self.o.p.banks, fetched.banks,
                                                            strict=True)):
                    ahead = Signal(max(1, low_bits), name=f"ahead_{bank}")
                    if low_bits:
                        m.d.comb += ahead.eq(source.low - fetched.base[:low_bits])
                    m.d.sync += [
                        target.valid.eq(source.valid),
                        target.row.eq(Mux(source.valid, fetched.base + ahead, 0)),
                        target.slot.eq(Mux(source.valid, source.slot, 0)),
                    ]

        return m

    def _scan_register(self, m, words):
        """Register ``i`` into ``words``, without the bits beyond ``tile_k``."""
        p = self._params
        slot, last = Signal(p.slot_bits, name="scan_slot"), Signal(name="scan_row_end")
        tail = p.tile_k - (p.slots - 1) * p.lanes
        kept = Signal(p.lanes, name="scan_kept")
        m.d.comb += [
            self.i.ready.eq(~words.valid | words.ready),
            last.eq(slot == p.slots - 1),
            kept.eq(Mux(last, (1 << tail) - 1, (1 << p.lanes) - 1)),
        ]
        with m.If(self.i.ready):
            m.d.sync += words.valid.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += [
                    words.payload.eq(self.i.payload & kept),
                    slot.eq(Mux(last, 0, slot + 1)),
                ]

    def _next_spans(self, m, span, *, push, begin, row_end, tile_end):
        """``span`` after the scanned word, if it begins a line and if not; and what would be left
        of it after the row.

        ``span`` is the number of lines between the first that is open to the scanned row and
        ``newest``. It grows with each line begun. At the end of a row it loses the lines of the
        row that leaves the window, and what exceeds the skew; at the end of a tile it is 0.
        """
        p, window = self._params, self._window
        skew = p.att_skew(window)
        if window == 1:
            after = Const(0)
        elif window >= p.tile_q:
            after = span
        else:
            # Lines that are still open after the row, without the word that is scanned: those of
            # the row and of the `window - 2` rows before it.
            after = Signal(range(window * p.slots + 1), name="open_after_row")
            count = range(p.slots + 1)
            mine, total = Signal(count, name="row_lines"), Signal(count, name="row_lines_total")
            older = [Signal(count, name=f"row_lines_{age}") for age in range(1, window - 1)]
            m.d.comb += total.eq(Mux(begin, mine + 1, mine))
            with m.If(push & tile_end):
                m.d.sync += [signal.eq(0) for signal in (mine, after, *older)]
            with m.Elif(push & row_end):
                m.d.sync += mine.eq(0)
                if older:
                    left = Signal.like(after, name="open_without_oldest")
                    m.d.comb += left.eq(after - older[-1])
                    m.d.sync += [after.eq(Mux(begin, left + 1, left)), older[0].eq(total)]
                    m.d.sync += [new.eq(old) for old, new in itertools.pairwise(older)]
                else:
                    m.d.sync += after.eq(0)
            with m.Elif(push):
                m.d.sync += [mine.eq(total), after.eq(Mux(begin, after + 1, after))]

        spans = []
        for begun in (1, 0):
            following = Signal.like(span, name=f"span_{'with' if begun else 'without'}_line")
            ending = after + begun if window > 1 else Const(0)
            with m.If(tile_end):
                m.d.comb += following.eq(0)
            with m.Elif(row_end):
                m.d.comb += following.eq(Mux(ending > skew, skew, ending))
            with m.Else():
                m.d.comb += following.eq(span + begun)
            spans.append(following)
        return spans, after
