"""What the engine makes to panels in memory."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_div
from rtl.common.stream import connect_streams

from .component import AptComponent
from .panel_port import (
    BURST_BITS,
    LARGEST_BURST,
    StoreKind,
    burst,
    check_burst_beats,
    command,
    round_robin,
    state_word,
)
from .pv_words import o_word
from .row_words import row_word
from .store_lane import StoreLane, lane_beats


__all__ = ["Storer"]


class Storer(AptComponent):
    """Stores tiles of new masks, of TAFA state and of O (:mod:`golden.apt.panels`).

    Each kind has a lane of its own, with its commands (three are taken ahead), its packer and
    room for two bursts, so no kind waits for another one's data. Tiles of a kind are stored in
    the order of their commands; kinds take turns, burst by burst, as their beats are there. The
    words of ``code``, ``state`` and ``rows`` are counted and are taken once their command has
    been; those of ``o`` end with ``last``, whatever ``words`` is, and may come before.

    Each lane takes a word every cycle or fills a beat every cycle, whichever is narrower, and
    two cycles a tile where words are counted; a beat leaves every cycle, and a burst takes three
    cycles more.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; the quad dataflow must support it.
    burst_beats : :class:`int`
        Beats of a burst at most, a power of two from 2 on; no burst crosses a multiple of it.
        Lanes whose tiles are smaller have shorter ones.

    Members
    -------
    command : :py:`In(stream.Signature(command(StoreKind)))`
        ``{kind, address, words, beats}``; address in beats.
    o : :py:`In(stream.Signature(o_word(params)))`
        Rows of O, each ``ceil(head_dim / (multipliers / 2))`` words.
    code : :py:`In(stream.Signature(2 * params.key_blocks))`
        Flag pairs of block rows.
    state : :py:`In(stream.Signature(state_word(params)))`
        State of rows in a tile; rows must come in order.
    rows : :py:`In(stream.Signature(row_word(params)))`
        State of rows, likewise.
    request : :py:`Out(stream.Signature(burst()))`
        Bursts to write.
    write : :py:`Out(stream.Signature(params.beat_bits))`
        Their beats.
    done : ``{valid, kind}``
        The last beat of a tile has gone: for one cycle, the one after.
    """

    def __init__(self, params, *, burst_beats=LARGEST_BURST // 4):
        check_burst_beats(burst_beats)
        if burst_beats < 2:
            raise ValueError(f"Burst beats must be at least 2, not {burst_beats}")
        self._burst_beats = burst_beats
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "command": In(stream.Signature(command(StoreKind))),
            "o": In(stream.Signature(o_word(params))),
            "code": In(stream.Signature(2 * params.key_blocks)),
            "state": In(stream.Signature(state_word(params))),
            "rows": In(stream.Signature(row_word(params))),
            "request": Out(stream.Signature(burst())),
            "write": Out(stream.Signature(params.beat_bits)),
            "done": Out(data.StructLayout({"valid": 1, "kind": StoreKind})),
        }

    @property
    def latency(self):
        """Cycles from the transfer of the word that completes a burst to its request."""
        return 5

    @property
    def throughput(self):
        return "a word a cycle and kind, or a beat a cycle, whichever is narrower"

    def _lanes(self, m):
        """Lanes by kind, with their words connected."""
        p = self._params
        width = p.multipliers // 2
        tail = p.head_dim - (ceil_div(p.head_dim, width) - 1) * width
        lanes = {}
        for kind, bits, words in ((StoreKind.CODE, 2 * p.key_blocks, p.row_blocks),
                                  (StoreKind.STATE, p.state_bits, p.tile_q),
                                  (StoreKind.ROWS, 32, p.tile_q),
                                  (StoreKind.O, 16 * width, None)):
            beats = (self._burst_beats if words is None else
                     lane_beats(ceil_div(words * bits, p.beat_bits), self._burst_beats))
            lanes[kind] = lane = StoreLane(bits, p.beat_bits, beats,
                                           short=16 * tail if words is None else None)
            m.submodules[f"lane_{kind.name.lower()}"] = lane
        lane = lanes[StoreKind.O]
        m.d.comb += [
            lane.i.valid.eq(self.o.valid),
            lane.i.p.bits.eq(self.o.p["values"]),
            lane.i.p.last.eq(self.o.p.last),
            lane.i.p.short.eq(self.o.p.keep != width),
            self.o.ready.eq(lane.i.ready),
        ]
        connect_streams(m, code=wiring.flipped(self.code), lane=lanes[StoreKind.CODE].i)
        for kind, port, word in ((StoreKind.STATE, self.state, self.state.p.s),
                                 (StoreKind.ROWS, self.rows,
                                  Cat(self.rows.p.c, self.rows.p.reference))):
            lane = lanes[kind]
            m.d.comb += [lane.i.valid.eq(port.valid), lane.i.payload.eq(word),
                         port.ready.eq(lane.i.ready)]
        return [lanes[kind] for kind in StoreKind]

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes(m)

        # Commands.
        with m.Switch(self.command.p.kind):
            for kind, lane in zip(StoreKind, lanes, strict=True):
                m.d.comb += [lane.tile.p[name].eq(self.command.p[name])
                             for name in ("address", "words", "beats")]
                with m.Case(kind):
                    m.d.comb += [lane.tile.valid.eq(self.command.valid),
                                 self.command.ready.eq(lane.tile.ready)]

        # Turns, burst by burst: pick a lane that wants one, grant it, ask for it, pass its
        # beats on. A lane that wants a burst does so until it is granted.
        chosen = Signal(range(len(lanes)))
        picked, some = Signal.like(chosen, reset_less=True), Signal()
        left = Signal(BURST_BITS)
        ends = Signal(reset_less=True)
        free, granted, moved = Signal(), Signal(), Signal()
        wanted = Cat(lane.request.valid for lane in lanes)
        m.d.comb += [
            free.eq((left == 0) & ~self.request.valid),
            granted.eq(free & some),
        ]
        m.d.sync += [picked.eq(round_robin(m, wanted, chosen)), some.eq(wanted.any() & ~granted)]
        with m.Switch(picked):
            for index, lane in enumerate(lanes):
                with m.Case(index):
                    m.d.comb += lane.request.ready.eq(granted)
                    with m.If(granted):
                        m.d.sync += [
                            self.request.p.address.eq(lane.request.p.address),
                            self.request.p.beats.eq(lane.request.p.beats),
                            left.eq(lane.request.p.beats),
                            ends.eq(lane.request.p.last),
                        ]
        with m.If(granted):
            m.d.sync += [self.request.valid.eq(1), chosen.eq(picked)]
        with m.Elif(self.request.ready):
            m.d.sync += self.request.valid.eq(0)

        advance = Signal()
        m.d.comb += advance.eq(~self.write.valid | self.write.ready)
        offered = Signal()
        with m.Switch(chosen):
            for index, lane in enumerate(lanes):
                with m.Case(index):
                    m.d.comb += [
                        offered.eq(lane.o.valid & (left != 0)),
                        lane.o.ready.eq(advance & (left != 0)),
                    ]
                    with m.If(advance):
                        m.d.sync += self.write.payload.eq(lane.o.payload)
        final = Signal()
        final_kind = Signal(StoreKind, reset_less=True)
        m.d.comb += moved.eq(offered & advance)
        with m.If(advance):
            m.d.sync += [
                self.write.valid.eq(offered),
                final.eq(offered & ends & (left == 1)),
                final_kind.eq(chosen),
            ]
        with m.If(moved):
            m.d.sync += left.eq(left - 1)
        m.d.sync += [
            self.done.valid.eq(final & self.write.valid & self.write.ready),
            self.done.kind.eq(final_kind),
        ]
        return m
