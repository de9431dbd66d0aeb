"""Beats of panels to words of the engine."""

from amaranth import *
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from golden.common.checks import ceil_div, ceil_log2
from rtl.common.gearbox import Gearbox

from .component import AptComponent
from .panel_port import (
    COUNT_BITS,
    LoadKind,
    k_address,
    kv_part_bits,
    kv_parts,
    kv_write,
    q_address,
    q_write,
    state_word,
    v_address,
)
from .row_words import row_word


__all__ = ["PanelReader", "loaded_ports", "tile_of_panel"]


def tile_of_panel():
    """A tile that comes: its kind, the buffer it goes to, and its sizes."""
    return data.StructLayout({"kind": LoadKind, "buffer": 1, "words": COUNT_BITS,
                              "beats": COUNT_BITS})


def loaded_ports(params):
    """Outputs of what has been loaded; see :class:`~rtl.apt.loader.Loader`."""
    return {
        "scale": Out(data.StructLayout({"valid": 1, "kind": LoadKind, "buffer": 1,
                                        "value": SCALE_BITS})),
        "q_write": Out(q_write(params)),
        "kv_write": Out(kv_write(params)),
        "code": Out(stream.Signature(2 * params.key_blocks)),
        "state": Out(stream.Signature(state_word(params))),
        "rows": Out(stream.Signature(row_word(params))),
        "done": Out(data.StructLayout({"valid": 1, "kind": LoadKind, "buffer": 1})),
    }


def _count_up(m, advance, clear, sizes):
    """Counters by name, the first one fastest, of so many values each."""
    counters, carry = {}, advance
    for name, size in sizes.items():
        if size == 1:
            counters[name] = Const(0, 0)
            continue
        counters[name] = counter = Signal(ceil_log2(size), name=name)
        wrap = Signal(name=f"{name}_wrap")
        m.d.comb += wrap.eq(counter == size - 1)
        with m.If(clear):
            m.d.sync += counter.eq(0)
        with m.Elif(carry):
            m.d.sync += counter.eq(Mux(wrap, 0, counter + 1))
        carry = carry & wrap
    return counters


class PanelReader(AptComponent):
    """Unpacks tiles of panels (:mod:`golden.apt.panels`), one after another.

    A beat is taken every cycle, or every cycle in which a word leaves if words are narrower;
    between tiles there is one cycle without a beat while a tile's last word goes. Kinds whose
    words are equally wide share a gearbox.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; the quad dataflow must support it.

    Members
    -------
    tile : :py:`In(stream.Signature(tile_of_panel()))`
        Tiles in the order in which their beats come.
    read : :py:`In(stream.Signature(params.beat_bits))`
        Beats.
    """

    __doc__ += "    others\n        See :class:`~rtl.apt.loader.Loader`.\n"

    def _ports(self, params):
        params.check_quad()
        return {
            "tile": In(stream.Signature(tile_of_panel())),
            "read": In(stream.Signature(params.beat_bits)),
            **loaded_ports(params),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a beat that completes a word to the word."""
        return 1

    @property
    def throughput(self):
        return "a beat or a word a cycle, whichever is narrower"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        addresses = {LoadKind.Q: q_address(params), LoadKind.K: k_address(params),
                     LoadKind.V: v_address(params)}
        streams = {LoadKind.CODE: self.code, LoadKind.STATE: self.state, LoadKind.ROWS: self.rows}
        widths = {LoadKind.Q: 8 * ceil_div(len(self.q_write.data.as_value()), 8),
                  LoadKind.K: kv_part_bits(params), LoadKind.V: kv_part_bits(params),
                  LoadKind.CODE: 2 * params.key_blocks, LoadKind.STATE: params.state_bits,
                  LoadKind.ROWS: 32}
        gearboxes = {}
        for width in widths.values():
            if width not in gearboxes:
                gearboxes[width] = Gearbox(params.beat_bits, width)
                m.submodules[f"gearbox_{width}"] = gearboxes[width]

        # The tile at hand. `head`: the scale word comes next; `feed`: which gearbox takes beats;
        # `live`: whose words come. A tile ends with the word that its last beat completes: in
        # tiles of narrow words at the end of a sequence that may be one of padding.
        busy, head = Signal(), Signal()
        kind = Signal(LoadKind, reset_less=True)
        buffer = Signal(reset_less=True)
        feed, live = Signal(len(gearboxes)), Signal(len(widths))
        beats, words = Signal(COUNT_BITS, reset_less=True), Signal(COUNT_BITS, reset_less=True)
        last_beat, last_word = Signal(reset_less=True), Signal(reset_less=True)
        take, moved, emit, finish = Signal(), Signal(), Signal(), Signal()
        word = Signal()  # the last part of one leaves; only words of K and V have more
        outputs = [gearbox.o for gearbox in gearboxes.values()]
        m.d.comb += [
            self.tile.ready.eq(~busy | finish),
            take.eq(self.tile.valid & self.tile.ready),
            self.read.ready.eq(head | (feed & Cat(gearbox.i.ready for gearbox
                                                  in gearboxes.values())).any()),
            moved.eq(self.read.valid & self.read.ready),
            emit.eq(Cat(o.valid & o.ready for o in outputs).any()),
            finish.eq(Cat(o.valid & o.ready & o.p.last for o in outputs).any()),
        ]
        next_beats, next_words = Signal(COUNT_BITS), Signal(COUNT_BITS)
        m.d.comb += [
            next_beats.eq(Mux(take, self.tile.p.beats, beats - moved)),
            next_words.eq(Mux(take, self.tile.p.words, words - word)),
        ]
        m.d.sync += [
            beats.eq(next_beats),
            words.eq(next_words),
            last_beat.eq(next_beats == 1),
            last_word.eq(next_words == 1),
            busy.eq(self.tile.valid | (busy & ~finish)),
        ]
        with m.If(take):
            m.d.sync += [kind.eq(self.tile.p.kind), buffer.eq(self.tile.p.buffer)]
        with m.Elif(word & last_word):
            m.d.sync += live.eq(0)

        def feed_of(which):
            return Cat(Cat(which == kind for kind, its in widths.items() if its == width).any()
                       for width in gearboxes)

        # The scale word's beats; there are two of them if a beat is a byte.
        scale_done = Signal()
        if params.scale_beats == 1:
            m.d.comb += scale_done.eq(head & self.read.valid)
            m.d.sync += self.scale.value.eq(self.read.payload)
        else:
            second = Signal()
            m.d.comb += scale_done.eq(head & second & self.read.valid)
            with m.If(head & self.read.valid):
                m.d.sync += [second.eq(~second),
                             self.scale.value.eq(Cat(self.scale.value[8:], self.read.payload))]
        with m.If(take):
            operand = Signal()
            m.d.comb += operand.eq(Cat(self.tile.p.kind == kind for kind in addresses).any())
            m.d.sync += [
                head.eq(operand),
                feed.eq(feed_of(self.tile.p.kind) & (~operand).replicate(len(feed))),
                live.eq(Cat(self.tile.p.kind == kind for kind in widths)),
            ]
        with m.Elif(scale_done):
            m.d.sync += [head.eq(0), feed.eq(feed_of(kind))]
        with m.Elif(moved & last_beat):
            m.d.sync += feed.eq(0)
        m.d.sync += [
            self.scale.valid.eq(scale_done),
            self.scale.kind.eq(kind),
            self.scale.buffer.eq(buffer),
            self.done.valid.eq(finish),
            self.done.kind.eq(kind),
            self.done.buffer.eq(buffer),
        ]

        p, parts = params, kv_parts(params)
        kinds = list(widths)
        of_kv = live[kinds.index(LoadKind.K)] | live[kinds.index(LoadKind.V)]
        part = _count_up(m, emit & of_kv, take, {"part": parts})["part"]
        m.d.comb += word.eq(emit & (~of_kv | (part == parts - 1)))

        # Words, and their places. Only streams can hold a gearbox up.
        counters = {
            LoadKind.Q: {"chunk": p.qk_chunks, "lsb": 2, "row_block": p.row_blocks},
            LoadKind.K: {"chunk": p.qk_chunks, "step": p.block_steps, "lsb": 2,
                         "key_block": p.key_blocks},
            LoadKind.V: {"pass_": p.column_passes, "lsb": 2, "key": p.tile_k},
            LoadKind.STATE: {"row": p.tile_q},
            LoadKind.ROWS: {"row": p.tile_q},
        }
        stalls = {width: [] for width in gearboxes}
        operand_addresses = {kind: Signal(layout, name=f"{kind.name.lower()}_address")
                             for kind, layout in addresses.items()}
        q_word, kv_word = (gearboxes[widths[kind]].o for kind in (LoadKind.Q, LoadKind.V))
        is_v = live[kinds.index(LoadKind.V)]
        m.d.comb += [
            self.q_write.valid.eq(q_word.valid & live[kinds.index(LoadKind.Q)]),
            self.q_write.data.eq(q_word.p.bits),
            self.q_write.address.eq(operand_addresses[LoadKind.Q]),
            self.kv_write.valid.eq(kv_word.valid & of_kv),
            self.kv_write.data.eq(kv_word.p.bits),
            self.kv_write.part.eq(part),
            self.kv_write.address.v.eq(is_v),
            self.kv_write.address.word.eq(Mux(is_v, operand_addresses[LoadKind.V].as_value(),
                                              operand_addresses[LoadKind.K].as_value())),
        ]
        for index, (its, width) in enumerate(widths.items()):
            o = gearboxes[width].o
            places = _count_up(m, word, take, counters.get(its, {}))
            if its in addresses:
                address = operand_addresses[its]
                m.d.comb += [
                    address.buffer.eq(buffer),
                    *(address[name].eq(place) for name, place in places.items()),
                ]
                continue
            port = streams[its]
            m.d.comb += port.valid.eq(o.valid & live[index])
            stalls[width].append(live[index] & ~port.ready)
            if its == LoadKind.CODE:
                m.d.comb += port.payload.eq(o.p.bits)
            else:
                m.d.comb += port.payload.as_value().eq(Cat(places["row"], o.p.bits))
        for width, gearbox in gearboxes.items():
            m.d.comb += [
                gearbox.i.valid.eq(self.read.valid & feed[list(gearboxes).index(width)]),
                gearbox.i.p.bits.eq(self.read.payload),
                gearbox.i.p.last.eq(last_beat),
                gearbox.o.ready.eq(~Cat(stalls[width]).any() if stalls[width] else 1),
            ]
        return m
