"""Everything of the engine behind the memory port: what an abort clears."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.quad_shape import OWNERS
from golden.common.checks import ceil_log2
from rtl.common.block_fifo import BlockFifo
from rtl.common.stream import connect_streams

from .block_sequencer import BlockSequencer
from .component import AptComponent
from .controller import Controller
from .counters import COUNTERS
from .dequantizer import Dequantizer
from .list_builder import ListBuilder
from .loader import Loader
from .logit_scale import SHIFT_BITS, factor_layout
from .o_update import OUpdate
from .panel_port import LoadKind, StoreKind, burst
from .pv_sequencer import PvSequencer
from .quad_array import QuadArray
from .row_work import RowWork
from .storer import Storer
from .tile_sums import TileSums
from .vpu import Vpu


__all__ = ["Datapath", "STAGES", "datapath_ports"]

#: What a bit of ``stages`` says the engine is doing.
STAGES = ("load", "qk", "softmax", "lists", "pv", "o_update", "o_output", "store")


def datapath_ports(params):
    """Ports of a dataflow's datapath; see :class:`Datapath`."""
    return {
        "restart": In(1),
        "job": In(stream.Signature(32)),
        "done": Out(stream.Signature(2)),
        "read_request": Out(stream.Signature(burst())),
        "read_data": In(stream.Signature(params.beat_bits)),
        "write_request": Out(stream.Signature(burst())),
        "write_data": Out(stream.Signature(params.beat_bits)),
        "count": Out(data.StructLayout({name: range(most + 1)
                                        for name, most in COUNTERS.items()})),
        "stages": Out(len(STAGES)),
    }


class Datapath(AptComponent):
    """The seven stages of APT 4.1 and what walks, loads and stores their tiles.

    ``QuadArray`` computes QK of a tile block by block, in the order of ``BlockSequencer``. Logits
    (``Dequantizer``) become P' and row sums (``Vpu``), these thresholds (``RowWork``), with which
    ``ListBuilder`` makes element lists, new masks and their code. ``PvSequencer`` goes through the
    lists, one for each owner; ``TileSums`` adds up what the array makes of them, and ``OUpdate``
    keeps O. ``Controller`` starts phases, ``Loader`` and ``Storer`` move tiles.

    Members
    -------
    restart : :py:`In(1)`
        Clears everything one cycle later, when each part's own register has it: one signal for
        all of them would cross the device, and be late.
    job, done
        See :class:`Controller`.
    read_request, read_data, write_request, write_data
        See :class:`~rtl.apt.memory_port.MemoryPort`.
    count : :py:`Out(...)`
        Events of a cycle, see :class:`~rtl.apt.counters.Counters`; traffic and ``cycles`` are 0.
    stages : :py:`Out(8)`
        What is going on, see :data:`STAGES`.
    """

    def _ports(self, params):
        params.check_quad()
        return datapath_ports(params)

    @property
    def throughput(self):
        return (f"{self._params.lanes} lanes of {self._params.multipliers} segment products a "
                "cycle")

    def elaborate(self, platform):
        m = Module()
        params = self._params

        def part(name, component):
            restart = Signal(name=f"restart_{name}")
            m.submodules[f"restart_{name}"] = own = Module()
            own.d.sync += restart.eq(self.restart)
            m.submodules[name] = ResetInserter(restart)(component)
            return component

        controller = part("controller", Controller(params))
        loader = part("loader", Loader(params))
        storer = part("storer", Storer(params))
        array = part("array", QuadArray(params))
        sequencer = part("sequencer", BlockSequencer(params))
        dequantizer = part("dequantizer", Dequantizer(params))
        vpu = part("vpu", Vpu(params))
        lists = part("lists", ListBuilder(params))
        rows = part("rows", RowWork(params))
        sums = part("sums", TileSums(params))
        output = part("output", OUpdate(params))
        pv = [part(f"pv_{owner}", PvSequencer(params)) for owner in range(OWNERS)]

        ways = part("ways", Module())
        self._memory(ways, controller, loader, storer)
        self._loaded(ways, controller, loader, array, rows)
        self._begin_qk(ways, controller, array, sequencer, dequantizer, loader, vpu, lists, rows)
        self._softmax(ways, array, sequencer, dequantizer, vpu, lists, rows)
        self._lists(ways, lists, rows, pv, storer)
        self._pv(ways, controller, array, sequencer, pv, sums, output, rows)
        self._stored(ways, controller, rows, storer, output)
        self._counts(ways, controller, sequencer, pv, vpu, lists, output, storer)
        return m

    def _memory(self, m, controller, loader, storer):
        for name, inner in (("job", controller.job), ("done", controller.done),
                            ("read_request", loader.request), ("read_data", loader.read),
                            ("write_request", storer.request), ("write_data", storer.write)):
            connect_streams(m, outer=wiring.flipped(getattr(self, name)), inner=inner)
        connect_streams(m, walker=controller.load, loader=loader.command)
        connect_streams(m, walker=controller.store, storer=storer.command)

    def _loaded(self, m, controller, loader, array, rows):
        """What the loader brings, to its place."""
        done = loader.done
        m.d.comb += [
            array.q_write.eq(loader.q_write),
            array.kv_write.eq(loader.kv_write),
            controller.scale.valid.eq(loader.scale.valid),
            controller.scale.p.kind.eq(loader.scale.kind),
            controller.scale.p.scale.eq(loader.scale.value),
            controller.k_loaded.eq(done.valid & (done.kind == LoadKind.K)),
            controller.v_loaded.eq(done.valid & (done.kind == LoadKind.V)),
            rows.old_state.valid.eq(loader.state.valid),
            rows.old_state.row.eq(loader.state.p.row),
            rows.old_state.s.eq(loader.state.p.s),
            rows.old_rows.valid.eq(loader.rows.valid),
            rows.old_rows.row.eq(loader.rows.p.row),
            rows.old_rows.c.eq(loader.rows.p.c),
            rows.old_rows.reference.eq(loader.rows.p.reference),
            loader.state.ready.eq(1),
            loader.rows.ready.eq(1),
        ]
        connect_streams(m, units=controller.unit_v, rows=rows.unit_v)
        # Buffers of state take turns by what is loaded: not every tile has state.
        for kind, port in ((LoadKind.STATE, rows.old_state), (LoadKind.ROWS, rows.old_rows)):
            buffer = Signal(name=f"{kind.name.lower()}_buffer")
            m.d.comb += port.buffer.eq(buffer)
            with m.If(done.valid & (done.kind == kind)):
                m.d.sync += buffer.eq(~buffer)

    def _begin_qk(self, m, controller, array, sequencer, dequantizer, loader, vpu, lists, rows):
        """A tile begins QK: every stage is told at once what it must know of it."""
        params = self._params
        begin, tile = controller.qk, controller.qk.p.tile
        words = {
            "vpu": (vpu.tile, ("rows", "keys")),
            "lists": (lists.tile, ("rows", "keys", "dense", "k_hp", "k_v")),
            "rows": (rows.tile, ("rows", "first", "last", "has_state", "code_prune",
                                 "code_quant", "shift")),
        }
        rooms = [sequencer.tile.ready]
        go = Signal()
        for name, (sink, fields) in words.items():
            m.submodules[f"{name}_tiles"] = queue = fifo.SyncFIFO(
                width=sink.p.shape().size, depth=2)
            word = Signal.like(sink.p, name=f"{name}_tile")
            m.d.comb += [getattr(word, field).eq(getattr(tile, field)) for field in fields]
            m.d.comb += [
                queue.w_data.eq(word), queue.w_en.eq(go),
                sink.p.eq(queue.r_data), sink.valid.eq(queue.r_rdy), queue.r_en.eq(sink.ready),
            ]
            rooms.append(queue.w_rdy)
        m.d.comb += [
            begin.ready.eq(Cat(rooms).all()),
            go.eq(begin.valid & begin.ready),
            sequencer.tile.valid.eq(go),
            *(getattr(sequencer.tile.p, field).eq(getattr(tile, field))
              for field in ("rows", "keys", "dense", "refresh")),
        ]

        # Buffers, and the factor that the tile's sums will meet when they come out of the array.
        k_buffer, q_buffer = Signal(init=1), Signal(init=1)
        factors = [Signal(factor_layout(SHIFT_BITS), name=f"factor_{k}") for k in range(2)]
        with m.If(go):
            m.d.sync += [k_buffer.eq(~k_buffer), q_buffer.eq(q_buffer ^ tile.first)]
            for number, factor in enumerate(factors):
                with m.If(k_buffer != number):
                    m.d.sync += factor.eq(begin.p.factor)
        factor = Mux(array.sums_buffer, factors[1], factors[0])
        m.d.comb += [
            array.k_buffer.eq(k_buffer), array.q_buffer.eq(q_buffer),
            Cat(dequantizer.mantissa, dequantizer.shift).eq(factor),
        ]

        # Old masks. A dense tile's were not loaded; the sequencer takes zeros for them.
        dense = Signal()
        with m.If(go):
            m.d.sync += dense.eq(tile.dense)
        m.submodules.code_words = code = BlockFifo(
            2 * params.key_blocks, max(2, 2 << ceil_log2(params.row_blocks)))
        connect_streams(m, loader=loader.code, queue=code.i)
        m.d.comb += [
            sequencer.code.p.eq(Mux(dense, 0, code.o.p)),
            sequencer.code.valid.eq(dense | code.o.valid),
            code.o.ready.eq(sequencer.code.ready & ~dense),
        ]

    def _softmax(self, m, array, sequencer, dequantizer, vpu, lists, rows):
        """QK to logits to P' to thresholds."""
        z = dequantizer.o
        m.d.comb += [
            array.qk.eq(sequencer.o),
            array.mark.eq(sequencer.mark),
            sequencer.slot_free.eq(vpu.slot_free),
            dequantizer.mark.eq(array.sums_mark),
            dequantizer.sums.eq(array.sums),
            vpu.z.valid.eq(z.valid),
            *(getattr(vpu.z.p, field).eq(getattr(z, field))
              for field in ("row_block", "key", "z", "end", "none")),
        ]
        connect_streams(m, vpu=vpu.rows, rows=rows.sums)
        connect_streams(m, vpu=vpu.p, lists=lists.p)
        m.d.comb += [
            lists.thresholds.valid.eq(rows.thresholds.valid),
            rows.thresholds.ready.eq(lists.thresholds.ready),
            Value.cast(lists.thresholds.p).eq(Value.cast(rows.thresholds.p)),
        ]

    def _lists(self, m, lists, rows, pv, storer):
        """Element lists and their headers to the owners, new masks to the storer."""
        params = self._params
        header = lists.header
        # Parity of the tile that entries are of, and of the one that headers are.
        entry_buffer, header_buffer = Signal(init=1), Signal()
        with m.If(lists.tile.valid & lists.tile.ready):
            m.d.sync += entry_buffer.eq(~entry_buffer)
        with m.If(header.valid & header.ready & (header.p.row_block == params.row_blocks - 1)):
            m.d.sync += header_buffer.eq(~header_buffer)
        m.d.comb += [
            rows.header.valid.eq(header.valid),
            header.ready.eq(rows.header.ready),
            *(Value.cast(getattr(rows.header.p, field)).eq(Value.cast(getattr(header.p, field)))
              for field in ("row_block", "n_valid", "n_hp")),
        ]
        for owner, one in enumerate(pv):
            entry = lists.entry.rows[owner]
            m.d.comb += [
                one.entry.valid.eq(entry.valid),
                one.entry.buffer.eq(entry_buffer),
                one.entry.row_block.eq(lists.entry.row_block),
                *(getattr(one.entry, field).eq(getattr(entry, field))
                  for field in ("position", "key", "high", "low")),
                one.header.valid.eq(header.valid & header.ready),
                one.header.buffer.eq(header_buffer),
                one.header.row_block.eq(header.p.row_block),
                one.header.n_valid.eq(header.p.n_valid[owner]),
                one.header.n_hp.eq(header.p.n_hp[owner]),
            ]
        m.d.comb += [
            storer.code.p.eq(lists.code.p.pairs), storer.code.valid.eq(lists.code.valid),
            lists.code.ready.eq(storer.code.ready),
        ]

    def _pv(self, m, controller, array, sequencer, pv, sums, output, rows):
        """PV of a tile: owners, their sums, and O."""
        begin = controller.pv
        buffer = Signal()
        m.submodules.o_tiles = o_tiles = fifo.SyncFIFO(width=output.tile.p.shape().size, depth=2)
        o_tile = Signal.like(output.tile.p)
        go = Signal()
        m.d.comb += [
            begin.ready.eq(Cat(one.tile.ready for one in pv).all() & o_tiles.w_rdy),
            go.eq(begin.valid & begin.ready),
            *(getattr(o_tile, field).eq(getattr(begin.p, field))
              for field in ("rows", "last", "shift")),
            o_tiles.w_data.eq(o_tile), o_tiles.w_en.eq(go),
            output.tile.p.eq(o_tiles.r_data), output.tile.valid.eq(o_tiles.r_rdy),
            o_tiles.r_en.eq(output.tile.ready),
            controller.idle.eq(sequencer.idle & Cat(one.idle for one in pv).all()),
            controller.updated.eq(output.tile_done),
            controller.listed.eq(rows.listed),
        ]
        with m.If(go):
            m.d.sync += buffer.eq(~buffer)
        for owner, one in enumerate(pv):
            m.d.comb += [
                one.tile.valid.eq(go),
                one.tile.p.buffer.eq(buffer),
                one.tile.p.blocks.eq((begin.p.rows + (OWNERS - 1)) >> ceil_log2(OWNERS)),
                array.v[owner].eq(one.v),
                array.c[owner].eq(one.c),
                sums.run[owner].eq(array.run[owner]),
                one.flush_done.eq(sums.flush_done[owner]),
                one.row_room.eq(output.row_room[owner]),
            ]
            connect_streams(m, sums=sums.row[owner], output=output.row[owner])
        m.d.comb += [sums.read.eq(output.read), output.sums.eq(sums.sums)]
        for name in ("factor", "final"):
            connect_streams(m, rows=getattr(rows, name), output=getattr(output, name))

    def _stored(self, m, controller, rows, storer, output):
        """New state and O to the storer."""
        connect_streams(m, rows=rows.state, storer=storer.state)
        connect_streams(m, rows=rows.rows, storer=storer.rows)
        connect_streams(m, output=output.o, storer=storer.o)
        m.d.comb += controller.o_stored.eq(storer.done.valid & (storer.done.kind == StoreKind.O))

    def _counts(self, m, controller, sequencer, pv, vpu, lists, output, storer):
        count = self.count

        def number(values):
            return sum(values[1:], values[0])
        header, listed = lists.header.p, lists.header.valid & lists.header.ready
        m.d.comb += [
            count.qk.eq(controller.in_qk), count.pv.eq(controller.in_pv),
            count.busy.eq(controller.in_qk | controller.in_pv),
            count.wait_k.eq(controller.wait_k), count.wait_v.eq(controller.wait_v),
            count.wait_lists.eq(controller.wait_lists),
            count.lp_blocks.eq(sequencer.lp_block), count.hp_blocks.eq(sequencer.hp_block),
            *(getattr(count, name).eq(Mux(listed, number(list(counts)), 0))
              for name, counts in (("elements", header.n_valid), ("hp_elements", header.n_hp))),
            count.pv_passes.eq(number([one.issued for one in pv])),
            count.pv_wait_flush.eq(number([one.wait_flush for one in pv])),
            count.pv_wait_row.eq(number([one.wait_row for one in pv])),
            count.pv_imbalance.eq(Mux(controller.in_pv, number([one.idle for one in pv]), 0)),
        ]
        m.d.comb += self.stages.eq(Cat(
            self.read_data.valid & self.read_data.ready, controller.in_qk, vpu.p.valid,
            lists.header.valid, controller.in_pv, output.updating, output.o.valid,
            self.write_data.valid & self.write_data.ready))
