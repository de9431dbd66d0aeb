"""Element lists of one owner and the order in which PV goes through them (quad dataflow)."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from rtl.common.stream import connect_streams

from .component import AptComponent
from .pv_headers import HEADERS_LATENCY, PvHeaders, header_write, pv_tile
from .pv_walk import PvWalk
from .pv_words import list_entry, row_block_bits, run_tag


__all__ = ["PvSequencer", "pv_element", "v_address"]


def v_address(params):
    """What is read of V: a segment of ``pv_width`` columns of a key."""
    return data.StructLayout({"valid": 1, "key": params.key_bits, "lsb": 1,
                              "pass_": run_tag(params)["pass_"].shape})


def pv_element(params):
    """What the lanes do with it; ``first`` and ``last`` are of the run."""
    return data.StructLayout({"valid": 1, "p": signed(params.segment_bits), "first": 1, "last": 1,
                              "tag": run_tag(params)})


class PvSequencer(AptComponent):
    """Walks through the rows of a tile that one owner has, one element a cycle.

    A row with elements is gone through once a column pass. A pass is up to three runs: HH over
    its high-precision elements (from position 0 up) and its low-precision ones (from
    ``tile_k - 1`` down), MID over the high-precision elements twice (``P_H * V_L``, then
    ``P_L * V_H``), LL over them. Runs, passes and rows follow without an idle cycle, and rows
    without elements take one cycle of reading ahead, none where the row before is long enough.
    :attr:`latency` cycles after a tile's transfer its first element comes out.

    The last element of a run waits until fewer than ``RUNS_AHEAD`` runs are between it and
    ``flush_done``; of the first run of a row also until one of ``RING_SLOTS`` slots for tile sums
    is free, which is taken then and comes back by ``row_room``. Nothing else stalls.

    Members
    -------
    entry : :py:`In({valid, buffer, row_block, position, key, high, low})`
    header : :py:`In({valid, buffer, row_block, n_valid, n_hp})`
        Writes; not to a buffer that is gone through.
    tile : :py:`In(stream.Signature(pv_tile(params)))`
        A tile to go through; taken when the headers of the one before have been read.
    v : :py:`Out(v_address(params))`
    c : :py:`Out(pv_element(params))`
        In the same cycle: where to read V and what to do with it.
    flush_done : :py:`In(1)`
        The sums of the owner's oldest run are on their way out.
    row_room : :py:`In(1)`
        A slot for tile sums of the owner is free again.
    idle : :py:`Out(1)`
        Nothing is left to do: the last element has been on ``c``.
    issued, wait_flush, wait_row : :py:`Out(1)`
        For counters: an element is issued, or waits for either credit.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "entry": In(data.StructLayout({
                "valid": 1, "buffer": 1, "row_block": row_block_bits(params),
                "position": params.key_bits, "key": params.key_bits,
                "high": params.segment_bits - 1, "low": signed(params.segment_bits)})),
            "header": In(header_write(params)),
            "tile": In(stream.Signature(pv_tile(params))),
            "v": Out(v_address(params)),
            "c": Out(pv_element(params)),
            "flush_done": In(1),
            "row_room": In(1),
            "idle": Out(1),
            "issued": Out(1),
            "wait_flush": Out(1),
            "wait_row": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of ``tile`` to its first element: headers, taking the row, and
        :attr:`issue_latency`."""
        return HEADERS_LATENCY + 1 + self.issue_latency

    @property
    def issue_latency(self):
        """Cycles from issue to ``v`` and ``c``: list memory, its output register, this one's."""
        return 3

    @property
    def throughput(self):
        return "one element a cycle"

    def elaborate(self, platform):
        m = Module()
        p = self._params

        m.submodules.headers = headers = PvHeaders(p)
        m.d.comb += headers.header.eq(self.header)
        connect_streams(m, outer=flipped(self.tile), inner=headers.tile)

        m.submodules.walk = walk = PvWalk(p)
        connect_streams(m, source=headers.o, sink=walk.row)
        m.d.comb += [
            walk.flush_done.eq(self.flush_done),
            walk.row_room.eq(self.row_room),
            self.issued.eq(walk.o.valid),
            self.wait_flush.eq(walk.wait_flush),
            self.wait_row.eq(walk.wait_row),
        ]

        # List memory with its output register; what belongs to the element travels beside it.
        m.submodules.memory = memory = Memory(
            shape=list_entry(p), depth=1 << (1 + row_block_bits(p) + p.key_bits), init=[])
        write, read = memory.write_port(), memory.read_port()
        entry = Signal(list_entry(p), reset_less=True)
        m.d.comb += [
            write.en.eq(self.entry.valid),
            write.addr.eq(Cat(self.entry.position, self.entry.row_block, self.entry.buffer)),
            write.data.key.eq(self.entry.key),
            write.data.high.eq(self.entry.high),
            write.data.low.eq(self.entry.low),
            read.en.eq(walk.o.valid),
            read.addr.eq(Cat(walk.o.position, walk.o.row_block, walk.o.buffer)),
        ]
        m.d.sync += entry.eq(read.data)

        valids, then = [walk.o.valid], walk.o
        for stage in range(self.issue_latency - 1):
            valid = Signal(name=f"valid_{stage}")
            staged = Signal(walk.o.shape(), name=f"element_{stage}", reset_less=True)
            m.d.sync += [valid.eq(valids[-1]), staged.eq(then)]
            valids.append(valid)
            then = staged
        address, element = (Signal(port.shape(), name=name)
                            for port, name in ((self.v, "address"), (self.c, "element")))
        m.d.sync += [
            address.valid.eq(valids[-1]),
            address.key.eq(entry.key),
            address.lsb.eq(then.v_low),
            address.pass_.eq(then.tag.pass_),
            element.valid.eq(valids[-1]),
            element.p.eq(Mux(then.p_low, entry.low, entry.high)),
            element.first.eq(then.first),
            element.last.eq(then.last),
            element.tag.eq(then.tag),
        ]
        m.d.comb += [
            self.v.eq(address),
            self.c.eq(element),
            self.idle.eq(headers.idle & ~walk.active & ~Cat(valids[1:]).any() & ~element.valid),
        ]
        return m
