"""The array of the quad dataflow: Q memory, four owners, and the way of their marks."""

from amaranth import *
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out

from golden.apt.quad_shape import OWNERS
from rtl.common.stream import travel_along

from .component import AptComponent
from .panel_port import k_address, kv_address, kv_write, q_write, v_address
from .pv_sequencer import pv_element
from .pv_sequencer import v_address as v_place
from .pv_words import run_sums
from .qk_words import parked_sums, qk_issue, qk_mark
from .quad import Quad


__all__ = ["QuadArray"]

#: Registers of the owners' addresses here; each owner has another.
_ADDRESS_STAGES = 1


class QuadArray(AptComponent):
    """Reads K, Q and V where the sequencers say, and multiplies.

    In QK all owners read the same word of K, each from its own copy, and its row of the same word
    of Q. In PV each owner reads its own copy of V. Everything moves every cycle: sums and runs
    come out a constant time after their last addresses, with what belongs to them.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    q_write, kv_write : :py:`In(...)`
        Writes of loaded words; those of K and V go to all owners.
    k_buffer, q_buffer : :py:`In(1)`
        Which halves of the memories QK reads.
    qk : :py:`In(qk_issue(params))`
    mark : :py:`In(qk_mark(params))`
        From :class:`BlockSequencer`.
    v : 4 x :py:`In(pv_sequencer.v_address(params))`
    c : 4 x :py:`In(pv_element(params))`
        From the owners' :class:`PvSequencer`.
    sums : :py:`Out(parked_sums(params))`
    sums_mark : :py:`Out(qk_mark(params))`
        To :class:`Dequantizer`; ``sums_buffer`` tells their tile's parity.
    run : 4 x :py:`Out(run_sums(params))`
        To :class:`TileSums`.
    """

    def __init__(self, params):
        super().__init__(params)
        self._owners = [Quad(params) for _ in range(OWNERS)]

    def _ports(self, params):
        params.check_quad()
        return {
            "q_write": In(q_write(params)), "kv_write": In(kv_write(params)),
            "k_buffer": In(1), "q_buffer": In(1),
            "qk": In(qk_issue(params)), "mark": In(qk_mark(params)),
            "v": In(v_place(params)).array(OWNERS),
            "c": In(pv_element(params)).array(OWNERS),
            "sums": Out(parked_sums(params)), "sums_mark": Out(qk_mark(params)),
            "sums_buffer": Out(1),
            "run": Out(run_sums(params)).array(OWNERS),
        }

    @property
    def latency(self):
        """Cycles from a step's last address to its sums."""
        return _ADDRESS_STAGES + self._owners[0].sums_latency

    @property
    def throughput(self):
        return "a word of K and Q, or a word of V for each owner, a cycle"

    def _q_word(self, m):
        """The word of Q, two cycles behind its address."""
        layout, q = q_write(self._params), self.qk.q
        word = layout["data"].shape
        m.submodules.q = store = memory.Memory(
            shape=word, depth=1 << layout["address"].shape.size, init=[],
            attrs={"no_rw_check": 1})
        write, read = store.write_port(), store.read_port()
        data_out = Signal(word, name="q_word", reset_less=True)
        m.d.comb += [
            write.en.eq(self.q_write.valid), write.addr.eq(self.q_write.address),
            write.data.eq(self.q_write.data),
            read.addr.eq(Cat(q.chunk, q.lsb, q.row_block, self.q_buffer)),
        ]
        m.d.sync += data_out.eq(read.data)
        return data_out

    def elaborate(self, platform):
        m = Module()
        params = self._params

        k = Signal(k_address(params))
        m.d.comb += [k.buffer.eq(self.k_buffer),
                     *(k[name].eq(getattr(self.qk.k, name))
                       for name in ("chunk", "step", "lsb", "key_block"))]
        q_word = self._q_word(m)
        valid, first, shift, last, low = travel_along(
            m, 1, 2, self.qk.valid, first=self.qk.first, shift=self.qk.shift, last=self.qk.last,
            low=self.qk.low)

        for owner, quad in enumerate(self._owners):
            m.submodules[f"owner_{owner}"] = quad
            place, c = self.v[owner], self.c[owner]
            v = Signal(v_address(params), name=f"v_{owner}")
            address = Signal(kv_address(params), name=f"address_{owner}", reset_less=True)
            m.d.comb += [v.key.eq(place.key), v.lsb.eq(place.lsb), v.pass_.eq(place.pass_),
                         v.buffer.eq(c.tag.buffer)]
            m.d.sync += [
                address.v.eq(~self.qk.valid),
                address.word.eq(Mux(self.qk.valid, k.as_value(), v.as_value())),
            ]
            pv, p, run_first, run_last = travel_along(m, 1, 2, c.valid, **{
                f"{name}_{owner}": getattr(c, name) for name in ("p", "first", "last")})
            m.d.comb += [
                quad.address.eq(address),
                quad.q.eq(q_word[owner]),
                quad.qk.valid.eq(valid), quad.qk.first.eq(first), quad.qk.shift.eq(shift),
                quad.qk.last.eq(last), quad.qk.low.eq(low),
                quad.kv_write.eq(self.kv_write),
                quad.pv.valid.eq(pv), quad.pv.p.eq(p), quad.pv.first.eq(run_first),
                quad.pv.last.eq(run_last),
                self.sums[owner].eq(quad.sums),
                self.run[owner].soon.eq(quad.run_soon),
                self.run[owner].valid.eq(quad.run_valid),
                self.run[owner].sums.eq(quad.run),
            ]
            _, tag = travel_along(m, 1, _ADDRESS_STAGES + quad.run_latency, C(0, 1),
                                  **{f"tag_{owner}": c.tag.as_value()})
            m.d.comb += self.run[owner].tag.eq(tag)

        mark_valid, mark, buffer = travel_along(m, 1, self.latency, self.mark.valid,
                                                mark=self.mark.as_value(), buffer=self.k_buffer)
        m.d.comb += [self.sums_mark.eq(mark), self.sums_mark.valid.eq(mark_valid),
                     self.sums_buffer.eq(buffer)]

        return m
