"""The array of the quad dataflow: K and Q memories, four owners, and the way of their marks."""

from amaranth import *
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out

from golden.apt.quad_shape import OWNERS
from rtl.common.stream import travel_along

from .component import AptComponent
from .panel_port import k_write, q_write, v_write
from .pv_sequencer import pv_element, v_address
from .pv_words import run_sums
from .qk_words import parked_sums, qk_issue, qk_mark
from .quad import Quad


__all__ = ["QuadArray"]


class QuadArray(AptComponent):
    """Reads K, Q and V where the sequencers say, and multiplies.

    In QK all owners read the same word of K, and each its row of the same word of Q. In PV each
    owner reads its own copy of V. Everything moves every cycle: sums and runs come out a constant
    time after their last addresses, with what belongs to them.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    k_write, q_write, v_write : :py:`In(...)`
        Writes of loaded words; those of V go to all owners.
    k_buffer, q_buffer : :py:`In(1)`
        Which halves of the memories QK reads.
    qk : :py:`In(qk_issue(params))`
    mark : :py:`In(qk_mark(params))`
        From :class:`BlockSequencer`.
    v : 4 x :py:`In(v_address(params))`
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
            "k_write": In(k_write(params)), "q_write": In(q_write(params)),
            "v_write": In(v_write(params)),
            "k_buffer": In(1), "q_buffer": In(1),
            "qk": In(qk_issue(params)), "mark": In(qk_mark(params)),
            "v": In(v_address(params)).array(OWNERS),
            "c": In(pv_element(params)).array(OWNERS),
            "sums": Out(parked_sums(params)), "sums_mark": Out(qk_mark(params)),
            "sums_buffer": Out(1),
            "run": Out(run_sums(params)).array(OWNERS),
        }

    @property
    def latency(self):
        """Cycles from a step's last address to its sums."""
        return self._owners[0].sums_latency

    @property
    def throughput(self):
        return "a word of K and Q, or a word of V for each owner, a cycle"

    def _memory(self, m, name, port, address):
        """Words of a buffer, two cycles behind their address."""
        layout = port.shape()
        word = layout["data"].shape
        m.submodules[name] = store = memory.Memory(
            shape=word, depth=1 << layout["address"].shape.size, init=[],
            attrs={"no_rw_check": 1})
        write, read = store.write_port(), store.read_port()
        data_out = Signal(word, name=f"{name}_word", reset_less=True)
        m.d.comb += [
            write.en.eq(port.valid), write.addr.eq(port.address), write.data.eq(port.data),
            read.addr.eq(address),
        ]
        m.d.sync += data_out.eq(read.data)
        return data_out

    def elaborate(self, platform):
        m = Module()

        k, q = self.qk.k, self.qk.q
        k_word = self._memory(m, "k", self.k_write,
                              Cat(k.chunk, k.step, k.lsb, k.key_block, self.k_buffer))
        q_word = self._memory(m, "q", self.q_write,
                              Cat(q.chunk, q.lsb, q.row_block, self.q_buffer))
        valid, first, shift, last, low = travel_along(
            m, 1, 2, self.qk.valid, first=self.qk.first, shift=self.qk.shift, last=self.qk.last,
            low=self.qk.low)

        for owner, quad in enumerate(self._owners):
            m.submodules[f"owner_{owner}"] = quad
            v, c = self.v[owner], self.c[owner]
            m.d.comb += [
                quad.k.eq(k_word), quad.q.eq(q_word[owner]),
                quad.qk.valid.eq(valid), quad.qk.first.eq(first), quad.qk.shift.eq(shift),
                quad.qk.last.eq(last), quad.qk.low.eq(low),
                quad.v_write.eq(self.v_write),
                quad.pv.valid.eq(c.valid),
                quad.pv.address.key.eq(v.key), quad.pv.address.lsb.eq(v.lsb),
                quad.pv.address.pass_.eq(v.pass_), quad.pv.address.buffer.eq(c.tag.buffer),
                quad.pv.p.eq(c.p), quad.pv.first.eq(c.first), quad.pv.last.eq(c.last),
                self.sums[owner].eq(quad.sums),
                self.run[owner].valid.eq(quad.run_valid),
                self.run[owner].sums.eq(quad.run),
            ]
            _, tag = travel_along(m, 1, quad.run_latency, C(0, 1),
                                  **{f"tag_{owner}": c.tag.as_value()})
            m.d.comb += self.run[owner].tag.eq(tag)

        mark_valid, mark, buffer = travel_along(m, 1, self.latency, self.mark.valid,
                                                mark=self.mark.as_value(), buffer=self.k_buffer)
        m.d.comb += [self.sums_mark.eq(mark), self.sums_mark.valid.eq(mark_valid),
                     self.sums_buffer.eq(buffer)]

        return m
