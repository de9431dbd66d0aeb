"""Runs jobs on the engine: walks their tiles, starts phases, says when a job is done."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from golden.common.checks import ceil_log2
from rtl.common.stream import connect_streams

from .component import AptComponent
from .log2_fine import Log2Fine
from .logit_scale import LogitScale
from .panel_port import LoadKind, StoreKind, command
from .phases import Phases, pv_tile, qk_tile
from .tile_walker import TILES_BITS, TileWalker, tile_layout


__all__ = ["Controller", "Status", "loaded_scale"]

#: Jobs that may be under way at once: one that is stored, one that is computed and one that is
#: loaded, of short ones.
_JOBS = 4


class Status:
    """How a job ended."""

    DONE, REFUSED, ABORTED = range(3)


def loaded_scale():
    """The scale word of a tile that is being loaded."""
    return data.StructLayout({"kind": LoadKind, "scale": SCALE_BITS})


class Controller(AptComponent):
    """Takes jobs and makes them loads, stores and phases of the array.

    :class:`TileWalker` orders loads and stores and gives tiles; here each tile waits for the scale
    words of its Q and K, which make the factor of its logits (:class:`LogitScale`), and goes on to
    :class:`Phases`. Scale words of V become their logarithms, units of O.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    job : :py:`In(stream.Signature(32))`
        Words of jobs, see :mod:`golden.apt.job`.
    done : :py:`Out(stream.Signature(2))`
        How each job ended, in order: 0 done, 1 refused.
    load, store : :py:`Out(...)`
        Commands to :class:`Loader` and :class:`Storer`.
    scale : :py:`In(stream.Signature(loaded_scale()))`
        Scale words in the order of loads.
    k_loaded, v_loaded, o_stored, listed, updated : :py:`In(1)`
        Pulses: a tile's K is loaded, its V is, the O of a query tile is stored, a tile is listed,
        O has all sums of a tile.
    unit_v : :py:`Out(stream.Signature(16))`
        ``log2`` of scale words of V, twelve fraction bits.
    qk, pv, idle : :py:`Out, Out, In(...)`
        Phases of the array, see :class:`Phases`.
    in_qk, in_pv, wait_k, wait_v, wait_lists : :py:`Out(1)`
        What the array does or waits for.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "job": In(stream.Signature(32)),
            "done": Out(stream.Signature(2)),
            "load": Out(stream.Signature(command(LoadKind))),
            "store": Out(stream.Signature(command(StoreKind))),
            "scale": In(stream.Signature(loaded_scale())),
            "k_loaded": In(1), "v_loaded": In(1), "o_stored": In(1), "listed": In(1),
            "updated": In(1),
            "unit_v": Out(stream.Signature(16)),
            "qk": Out(stream.Signature(qk_tile(params))),
            "pv": Out(stream.Signature(pv_tile(params))),
            "idle": In(1),
            "in_qk": Out(1), "in_pv": Out(1),
            "wait_k": Out(1), "wait_v": Out(1), "wait_lists": Out(1),
        }

    @property
    def throughput(self):
        return "a tile in 100 cycles, without waiting"

    def elaborate(self, platform):
        m = Module()

        m.submodules.walker = walker = TileWalker(self._params)
        m.submodules.phases = phases = Phases(self._params)
        for name in ("job", "load", "store"):
            connect_streams(m, outer=wiring.flipped(getattr(self, name)),
                            inner=getattr(walker, name))
        for name in ("qk", "pv"):
            connect_streams(m, outer=wiring.flipped(getattr(self, name)),
                            inner=getattr(phases, name))
        m.d.comb += [
            walker.listed.eq(self.listed),
            walker.pv_done.eq(phases.pv_done),
            phases.k_loaded.eq(self.k_loaded),
            phases.v_loaded.eq(self.v_loaded),
            phases.listed.eq(self.listed),
            phases.updated.eq(self.updated),
            phases.idle.eq(self.idle),
            *(getattr(self, name).eq(getattr(phases, name))
              for name in ("in_qk", "in_pv", "wait_k", "wait_v", "wait_lists")),
        ]
        qk_scale, v_scale = self._split_scales(m)
        self._tiles(m, walker, phases, qk_scale)
        self._units(m, v_scale)
        self._done(m, walker)
        return m

    def _split_scales(self, m):
        """Queues of the scale words of Q and K, and of V: the two are used at different times."""
        queues = []
        for name, depth in (("qk_scales", 4), ("v_scales", 2)):
            m.submodules[name] = queue = fifo.SyncFIFO(width=loaded_scale().size, depth=depth)
            m.d.comb += queue.w_data.eq(self.scale.p)
            queues.append(queue)
        is_v = self.scale.p.kind == LoadKind.V
        m.d.comb += [
            queues[0].w_en.eq(self.scale.valid & ~is_v),
            queues[1].w_en.eq(self.scale.valid & is_v),
            self.scale.ready.eq(Mux(is_v, queues[1].w_rdy, queues[0].w_rdy)),
        ]
        return queues

    def _tiles(self, m, walker, phases, scales):
        """Tiles with the factor of their logits."""
        m.submodules.factor = factor = LogitScale(self._params)
        layout = tile_layout(self._params)
        # Two wait for scales and phases at most: the walker has two credits.
        m.submodules.tiles = tiles = fifo.SyncFIFO(width=layout.size, depth=2)
        m.submodules.asked = asked = fifo.SyncFIFO(width=layout.size, depth=2)
        scale = Signal(loaded_scale())
        tile = Signal(layout)
        a_q = Signal(SCALE_BITS - 1, reset_less=True)
        is_q = Signal()
        m.d.comb += [
            tiles.w_data.eq(walker.tile.p), tiles.w_en.eq(walker.tile.valid),
            walker.tile.ready.eq(tiles.w_rdy),
            scale.eq(scales.r_data), tile.eq(tiles.r_data),
            is_q.eq(scale.kind == LoadKind.Q),
            factor.i.p.scale.eq(tile.scale),
            factor.i.p.a_q.eq(a_q),
            factor.i.p.a_k.eq(scale.scale),
            factor.i.valid.eq(tiles.r_rdy & scales.r_rdy & ~is_q & asked.w_rdy),
            scales.r_en.eq(scales.r_rdy & (is_q | (factor.i.valid & factor.i.ready))),
            tiles.r_en.eq(factor.i.valid & factor.i.ready),
            asked.w_data.eq(tile), asked.w_en.eq(tiles.r_en),
            phases.tile.p.tile.eq(asked.r_data),
            phases.tile.p.factor.eq(factor.o.p),
            phases.tile.valid.eq(factor.o.valid),
            factor.o.ready.eq(phases.tile.ready),
            asked.r_en.eq(phases.tile.valid & phases.tile.ready),
        ]
        # A word of Q is for its query tile, and those behind it.
        with m.If(scales.r_en & is_q):
            m.d.sync += a_q.eq(scale.scale)

    def _units(self, m, scales):
        """Logarithms of scale words of V; of 0, whose tile is all zeros, that of 1."""
        m.submodules.log2 = log2 = Log2Fine(self._params)
        busy = Signal()
        scale = Signal(loaded_scale())
        m.d.comb += [
            scale.eq(scales.r_data),
            log2.value.eq(scale.scale),
            log2.start.eq(scales.r_rdy & ~busy & ~self.unit_v.valid),
            scales.r_en.eq(log2.start),
            self.unit_v.p.eq(log2.log2),
        ]
        with m.If(log2.start):
            m.d.sync += busy.eq(1)
        with m.If(log2.done):
            m.d.sync += [busy.eq(0), self.unit_v.valid.eq(1)]
        with m.If(self.unit_v.valid & self.unit_v.ready):
            m.d.sync += self.unit_v.valid.eq(0)

    def _done(self, m, walker):
        """A job is done when the O of its last query tile is stored: that is stored last.

        While an end is not taken, those of further jobs may come: query tiles are counted on.
        """
        m.submodules.jobs = jobs = fifo.SyncFIFO(width=TILES_BITS + 1, depth=_JOBS)
        m.d.comb += [
            jobs.w_data.eq(walker.accepted.p),
            jobs.w_en.eq(walker.accepted.valid),
            walker.accepted.ready.eq(jobs.w_rdy),
        ]
        stored = Signal(TILES_BITS + ceil_log2(_JOBS))  # of jobs that have not ended
        refused, tiles = jobs.r_data[-1], jobs.r_data[:TILES_BITS]
        end = Signal()
        m.d.comb += [
            end.eq(jobs.r_rdy & ~self.done.valid
                   & (refused | (stored >= tiles))),
            jobs.r_en.eq(end),
        ]
        m.d.sync += stored.eq(stored + self.o_stored - Mux(end & ~refused, tiles, 0))
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(end):
            m.d.sync += [self.done.valid.eq(1),
                         self.done.p.eq(Mux(refused, Status.REFUSED, Status.DONE))]
