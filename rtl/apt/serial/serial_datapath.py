"""Everything of the serial engine behind the memory port: what an abort clears."""

from amaranth import *
from amaranth.lib import wiring

from rtl.common.stream import connect_streams

from ..burst_splitter import BurstSplitter
from ..component import AptComponent
from ..datapath import STAGES, datapath_ports
from ..panel_port import LARGEST_BURST
from .core import Core


__all__ = ["SerialDatapath"]


class SerialDatapath(AptComponent):
    """The seven stages of APT 4.1 as the program of a processor with four segment multipliers.

    It has the ports of :class:`~rtl.apt.datapath.Datapath`, reads and writes the same panels, and
    gives the same words; jobs come one after another. A query row goes through all stages of a
    tile before the next one does. Blocks that the masks leave out cost nothing in QK, elements
    that are pruned nothing in PV; low precision takes one multiply pass, high precision four.

    With the preset ``icebreaker``, 64 queries of the diffusion transformer's heads and 1024 keys,
    a dense step takes 156 cycles a pair of query and key: 128 of segment products, 28 of all else.
    With masks all else is 34 to 45 cycles a pair that is computed in QK, more where fewer are: 6
    are its logit and its power, 2 or 3 its place in the lists; a row's O, thresholds and the ends
    of its multiply passes, and loads of a byte a cycle, are shared.

    ``count`` has the blocks, elements and passes; of the phases, QK and PV, each with what the
    processor does between multiply passes. The others stay 0.

    Members
    -------
    restart, job, done, read_request, read_data, write_request, write_data, count, stages
        See :class:`~rtl.apt.datapath.Datapath`.
    """

    def _ports(self, params):
        params.check_serial()
        return datapath_ports(params)

    @property
    def throughput(self):
        return f"{self._params.products} segment products a cycle in multiply passes"

    def elaborate(self, platform):
        whole = Module()
        restart = Signal()
        whole.d.sync += restart.eq(self.restart)
        whole.submodules.cleared = ResetInserter(restart)(self._cleared())
        return whole

    def _cleared(self):
        """What a restart clears: everything."""
        m = Module()
        m.submodules.core = core = Core(self._params)
        m.submodules.splitter = splitter = BurstSplitter(LARGEST_BURST)
        for name, inner in (("job", core.job), ("done", core.done), ("read_data", core.read),
                            ("write_data", core.write)):
            connect_streams(m, outer=wiring.flipped(getattr(self, name)), inner=inner)
        connect_streams(m, core=core.beats, splitter=splitter.i)

        # The direction of the bursts that are left; the next range waits for them.
        write = Signal()
        with m.If(splitter.i.valid & splitter.i.ready):
            m.d.sync += write.eq(core.beats_write)
        m.d.comb += [
            core.quiet.eq(splitter.i.ready),
            self.read_request.valid.eq(splitter.o.valid & ~write),
            self.write_request.valid.eq(splitter.o.valid & write),
            splitter.o.ready.eq(Mux(write, self.write_request.ready, self.read_request.ready)),
        ]
        for request in (self.read_request, self.write_request):
            m.d.comb += [request.p.address.eq(splitter.o.p.address),
                         request.p.beats.eq(splitter.o.p.beats)]

        in_qk, in_pv = (core.stages[STAGES.index(name)] for name in ("qk", "pv"))
        m.d.comb += [
            self.stages.eq(core.stages),
            self.count.qk.eq(in_qk), self.count.pv.eq(in_pv), self.count.busy.eq(in_qk | in_pv),
            self.count.lp_blocks.eq(core.lp_block), self.count.hp_blocks.eq(core.hp_block),
            self.count.elements.eq(core.elements), self.count.hp_elements.eq(core.hp_elements),
            self.count.pv_passes.eq(core.pv_pass),
        ]
        return m
