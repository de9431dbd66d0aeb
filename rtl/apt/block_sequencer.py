"""Issues the cycles of QK: blocks of a tile in lock step over all lanes."""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_scan import BlockScan
from .component import AptComponent
from .qk_words import SLOTS, qk_issue, qk_mark, qk_tile


__all__ = ["BlockSequencer"]


class BlockSequencer(AptComponent):
    """Addresses of K and Q and control of the lanes for the blocks of a tile that are computed.

    A block is 4 rows by 8 keys. It has high precision if its HP flag is set or the tile is
    ``dense``, otherwise low precision if its V flag is set or the tile is a ``refresh``, otherwise
    no cycle at all. Block rows come in order, in each its blocks in order, in each block its
    ``params.block_steps`` steps of ``params.step_keys`` keys. A step has one pass over the
    channels, ``params.qk_chunks`` cycles, in low precision, and four in high precision: HH, HL
    (Q high, K low), LH, LL. Between the last cycles of two steps there are never fewer than
    ``step_keys`` cycles, in which sums are read out; short steps wait in front.

    ``mark`` comes with the last cycle of each step; for a block row without blocks it comes alone
    and takes a cycle. A block row is begun when there is a slot: there are four at reset, a block
    row takes one, with or without blocks, and ``slot_free`` gives one back. But for that there is
    no idle cycle from a tile's first to its last (bubbles of short steps aside).

    The next tile is taken when all of a tile is issued and its code has come; all
    ``params.row_blocks`` words are taken, for a dense tile too. A tile without keys has empty
    block rows; one without rows takes its code and gives nothing.

    Parameters
    ----------
    params : :class:`AptParams`
        Tile, ``lanes``, ``multipliers`` and ``head_dim`` matter.

    Members
    -------
    tile : :py:`In(stream.Signature(qk_tile(params)))`
        Tiles: rows, keys, dense, refresh.
    code : :py:`In(stream.Signature(2 * params.key_blocks))`
        A tile's code, a block row a word: flag pair ``k`` (HP, and above it V) of key block ``k``.
        Taken only within a tile.
    slot_free : :py:`In(1)`
        Pulse: one slot more.
    o : :py:`Out(qk_issue(params))`
        A cycle of the lanes; cannot be stalled.
    mark : :py:`Out(qk_mark(params))`
        What the sums of ``o.last`` belong to, in the same cycle; or a block row without blocks.
    idle : :py:`Out(1)`
        No tile is under way. High from the cycle after a tile's last ``mark`` on.
    lp_block, hp_block : :py:`Out(1)`
        Pulses for counters: a block of low, of high precision has been issued.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(qk_tile(params))),
            "code": In(stream.Signature(2 * params.key_blocks)),
            "slot_free": In(1),
            "o": Out(qk_issue(params)),
            "mark": Out(qk_mark(params)),
            "idle": Out(1, init=1),
            "lp_block": Out(1),
            "hp_block": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a tile to its first cycle on ``o`` or ``mark``, its code at
        hand; a first step that is short comes later by its bubble."""
        return BlockScan(self._params).latency + 3

    @property
    def throughput(self):
        params = self._params
        low, high = (max(passes * params.qk_chunks, params.step_keys) * params.block_steps
                     for passes in (1, 4))
        return f"{low} cycles a block of low precision, {high} of high, 1 an empty block row"

    def elaborate(self, platform):
        m = Module()
        params = self._params

        m.submodules.scan = scan = BlockScan(params)
        wiring.connect(m, wiring.flipped(self.code), scan.code)
        m.d.comb += [
            self.tile.ready.eq(self.idle),
            scan.start.eq(self.tile.valid & self.idle),
            scan.tile.eq(self.tile.p),
        ]

        # The next block, apart from the scan: when it is taken is the end of a long path, and how
        # the scan goes on is the begin of another.
        entry = Signal(scan.o.payload.shape())
        m.submodules.found = found = fifo.SyncFIFO(width=len(entry.as_value()), depth=2)
        m.d.comb += [
            found.w_data.eq(scan.o.p), found.w_en.eq(scan.o.valid), scan.o.ready.eq(found.w_rdy),
            entry.eq(found.r_data),
        ]

        # The block at hand.
        busy = Signal()
        block = Signal.like(entry, reset_less=True)
        with m.If(scan.start):
            m.d.sync += self.idle.eq(0)
        with m.Else():
            m.d.sync += self.idle.eq(~(scan.busy | found.r_rdy | busy))

        # Where in it: step, segments of Q and K, chunk. The two bits of the segments count passes.
        chunk = Signal(len(self.o.k.chunk), reset_less=True)
        lsb = Signal(2, reset_less=True)
        step = Signal(len(self.o.k.step), reset_less=True)
        running = Signal()
        pass_done, step_done, block_done = Signal(), Signal(), Signal()
        m.d.comb += [
            pass_done.eq(running & (chunk == params.qk_chunks - 1)),
            step_done.eq(pass_done & (~block.hp | lsb.all())),
            block_done.eq(step_done & (step == params.block_steps - 1)),
        ]
        with m.If(running):
            m.d.sync += chunk.eq(chunk + 1)
        with m.If(pass_done):
            m.d.sync += [chunk.eq(0), lsb.eq(lsb + 1)]
        with m.If(step_done):
            m.d.sync += [lsb.eq(0), step.eq(step + 1)]

        # The next one. A block row needs a slot.
        slots = Signal(range(SLOTS + 1), init=SLOTS)
        free, take = Signal(), Signal()
        m.d.comb += [
            free.eq(~busy | block.none | block_done),
            found.r_en.eq(free & (~entry.begin | slots.any())),
            take.eq(found.r_rdy & found.r_en),
        ]
        m.d.sync += slots.eq(slots + self.slot_free - (take & entry.begin))
        with m.If(free):
            m.d.sync += busy.eq(take)
        with m.If(take):
            m.d.sync += [block.eq(entry), chunk.eq(0), lsb.eq(0), step.eq(0)]

        # The bubble in front of a step that is shorter than reading its sums.
        bubbles = [max(params.step_keys - passes * params.qk_chunks, 0) for passes in (1, 4)]
        wait = Signal(range(max(bubbles[0], 1) + 1), reset_less=True)
        m.d.comb += running.eq(busy & ~block.none & ~wait.any())
        with m.If(take):
            m.d.sync += wait.eq(Mux(entry.hp, bubbles[1], bubbles[0]))
        with m.Elif(step_done):
            m.d.sync += wait.eq(Mux(block.hp, bubbles[1], bubbles[0]))
        with m.Elif(wait.any()):
            m.d.sync += wait.eq(wait - 1)

        # Output registers.
        o = Signal(qk_issue(params), reset_less=True)
        mark = Signal(qk_mark(params), reset_less=True)
        o_valid, mark_valid = Signal(), Signal()
        m.d.comb += [
            self.o.eq(o), self.o.valid.eq(o_valid),
            self.mark.eq(mark), self.mark.valid.eq(mark_valid),
        ]
        m.d.sync += [
            o_valid.eq(running),
            o.k.key_block.eq(block.key_block), o.k.lsb.eq(lsb[0]),
            o.k.step.eq(step), o.k.chunk.eq(chunk),
            o.q.row_block.eq(block.row_block), o.q.lsb.eq(lsb[1]), o.q.chunk.eq(chunk),
            o.first.eq(~chunk.any() & ~lsb.any()),
            o.shift.eq(~chunk.any() & lsb[0]),
            o.last.eq(step_done),
            o.low.eq(~block.hp),
            mark_valid.eq(step_done | (busy & block.none)),
            mark.row_block.eq(block.row_block), mark.key_block.eq(block.key_block),
            mark.step.eq(step),
            mark.end.eq(block.end & (block.none | (step == params.block_steps - 1))),
            mark.none.eq(block.none),
            self.lp_block.eq(block_done & ~block.hp),
            self.hp_block.eq(block_done & block.hp),
        ]
        return m
