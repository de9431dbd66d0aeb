"""Which phase the array is in: QK of the next tile, or PV of the tile before."""

from amaranth import *
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import In, Out

from .component import AptComponent
from .logit_scale import SHIFT_BITS as FACTOR_SHIFT_BITS
from .logit_scale import factor_layout
from .tile_walker import SHIFT_BITS, tile_layout


__all__ = ["Phases", "pv_tile", "qk_tile"]


def qk_tile(params):
    """A tile that begins QK, with the factor of its logits and its query tile's buffer."""
    return data.StructLayout({"tile": tile_layout(params),
                              "factor": factor_layout(FACTOR_SHIFT_BITS)})


def pv_tile(params):
    """A tile that begins PV."""
    return data.StructLayout({"rows": params.row_count_bits, "first": 1, "last": 1,
                              "shift": SHIFT_BITS})


class Phases(AptComponent):
    """Starts the phases of the array one by one: QK(0), QK(1), PV(0), QK(2), PV(1) and so on.

    QK of a tile needs its K; PV needs its V and its element lists. QK is at most two tiles ahead
    of PV. If QK cannot begin, since there is no tile or its K has not come, PV goes first as soon
    as it can.

    A phase begins four cycles after the last operand of the one before is asked for.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    tile : :py:`In(stream.Signature(qk_tile(params)))`
        Tiles in order.
    k_loaded, v_loaded, listed : :py:`In(1)`
        Pulses: the next tile's K is there, V is, element lists are.
    updated : :py:`In(1)`
        Pulse: O has all sums of the oldest tile. PV of a tile waits for that of the tile two
        before.
    qk : :py:`Out(stream.Signature(qk_tile(params)))`
        QK of a tile begins.
    pv : :py:`Out(stream.Signature(pv_tile(params)))`
        PV of a tile begins.
    idle : :py:`In(1)`
        All operands of the phase are asked for; low from the cycle after it has begun.
    pv_done : :py:`Out(1)`
        Pulse: PV of a tile has ended.
    in_qk, in_pv : :py:`Out(1)`
        What the array is doing.
    wait_k, wait_v, wait_lists : :py:`Out(1)`
        What it waits for, if it does nothing; ``wait_k`` also if there is no tile yet.
    """

    def _ports(self, params):
        return {
            "tile": In(stream.Signature(qk_tile(params))),
            "k_loaded": In(1), "v_loaded": In(1), "listed": In(1), "updated": In(1),
            "qk": Out(stream.Signature(qk_tile(params))),
            "pv": Out(stream.Signature(pv_tile(params))),
            "idle": In(1), "pv_done": Out(1),
            "in_qk": Out(1), "in_pv": Out(1),
            "wait_k": Out(1), "wait_v": Out(1), "wait_lists": Out(1),
        }

    @property
    def throughput(self):
        return "three cycles between phases"

    def _ahead(self, m, name, arrived, used, init=0):
        """Whether a tile has what the next phase needs; never more than two tiles have."""
        count = Signal(2, name=name, init=init)
        m.d.sync += count.eq(count + arrived - used)
        return count != 0

    def elaborate(self, platform):
        m = Module()
        params = self._params

        begin_qk, begin_pv = Signal(), Signal()
        k_there = self._ahead(m, "k_tiles", self.k_loaded, begin_qk)
        v_there = self._ahead(m, "v_tiles", self.v_loaded, begin_pv)
        lists_there = self._ahead(m, "list_tiles", self.listed, begin_pv)
        may_update = self._ahead(m, "o_tiles", self.updated, begin_pv, init=2)

        m.submodules.later = later = fifo.SyncFIFO(width=pv_tile(params).size, depth=2)
        tile = self.tile.p.tile
        m.d.comb += [
            self.qk.p.eq(self.tile.p),
            self.tile.ready.eq(begin_qk),
            later.w_data.eq(Cat(tile.rows, tile.first, tile.last, tile.shift)),
            later.w_en.eq(begin_qk),
            self.pv.p.eq(later.r_data),
            later.r_en.eq(begin_pv),
        ]
        with m.FSM():
            with m.State("CHOOSE"):
                qk_may = self.tile.valid & k_there & later.w_rdy
                pv_may = later.r_rdy & v_there & lists_there & may_update
                m.d.comb += [
                    self.wait_k.eq(~qk_may & later.w_rdy & ~pv_may),
                    self.wait_v.eq(~qk_may & later.r_rdy & ~v_there),
                    self.wait_lists.eq(~qk_may & later.r_rdy & v_there & ~lists_there),
                ]
                with m.If(qk_may):
                    m.next = "QK_BEGINS"
                with m.Elif(pv_may):
                    m.next = "PV_BEGINS"
            with m.State("QK_BEGINS"):
                m.d.comb += [self.qk.valid.eq(1), begin_qk.eq(self.qk.ready)]
                with m.If(begin_qk):
                    m.next = "QK_BEGUN"
            with m.State("QK_BEGUN"):
                m.d.comb += self.in_qk.eq(1)
                m.next = "QK"
            with m.State("QK"):
                m.d.comb += self.in_qk.eq(1)
                with m.If(self.idle):
                    m.next = "CHOOSE"
            with m.State("PV_BEGINS"):
                m.d.comb += [self.pv.valid.eq(1), begin_pv.eq(self.pv.ready)]
                with m.If(begin_pv):
                    m.next = "PV_BEGUN"
            with m.State("PV_BEGUN"):
                m.d.comb += self.in_pv.eq(1)
                m.next = "PV"
            with m.State("PV"):
                m.d.comb += self.in_pv.eq(1)
                with m.If(self.idle):
                    m.d.comb += self.pv_done.eq(1)
                    m.next = "CHOOSE"

        return m
