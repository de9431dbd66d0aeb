"""The engine: attention heads from external memory and back, with masks and state (APT 4.1)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.stream import connect_streams

from .component import AptComponent
from .controller import Status
from .counters import COUNTER_BITS, COUNTERS, Counters
from .datapath import STAGES, Datapath
from .memory_port import MemoryPort
from .panel_port import memory_request
from .serial.serial_datapath import SerialDatapath


__all__ = ["SdMpu"]


class SdMpu(AptComponent):
    """Sparse dual-precision attention of whole heads over denoising steps.

    A job is a head at a step (:mod:`golden.apt.job`); its tensors lie in external memory as
    panels (:mod:`golden.apt.panels`). The next job may be given while one is computed; its loads
    begin early, and its tiles follow without a gap; the serial dataflow takes it when it has
    ended the one before. Results equal :func:`golden.apt.attend.attend` word for word.

    ``abort_jobs`` stops everything: no new burst is asked for, those under way are completed, all
    else is cleared, and one ``done`` of status 2 says so. What aborted jobs have written stays;
    whatever of them was not done must be given again. Words of jobs are not taken in the meantime.

    A job that needs what another one writes must not be given before that one is done.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; its dataflow must support it.

    Members
    -------
    job : :py:`In(stream.Signature(32))`
        Words of jobs, 64 each.
    done : :py:`Out(stream.Signature(2))`
        How each job ended, in order: 0 done, 1 refused, 2 aborted.
    abort_jobs : :py:`In(1)`
        Abort all jobs, a pulse.
    request, write, read
        Port to memory: bursts of up to 256 beats, read or written; see :class:`MemoryPort`.
    counters : :py:`Out(...)`
        See :class:`Counters`; cleared when a job is given to an engine that has none.
    stages : :py:`Out(8)`
        What is going on, see :data:`~rtl.apt.datapath.STAGES`.
    busy : :py:`Out(1)`
        A job is under way.
    """

    def _ports(self, params):
        params.check_engine()
        beat = params.beat_bits
        return {
            "job": In(stream.Signature(32)),
            "done": Out(stream.Signature(2)),
            "abort_jobs": In(1),
            "request": Out(stream.Signature(memory_request())),
            "write": Out(stream.Signature(beat)),
            "read": In(stream.Signature(beat)),
            "counters": Out(data.ArrayLayout(COUNTER_BITS, len(COUNTERS))),
            "stages": Out(len(STAGES)),
            "busy": Out(1),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a job's last word to its first burst, of a job that has more
        than one query tile; in the serial dataflow a single one takes some more."""
        return 189 if self._params.dataflow == "serial" else 11

    @property
    def throughput(self):
        return f"{self._params.products} segment products a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params

        datapath = (SerialDatapath if params.dataflow == "serial" else Datapath)(params)
        m.submodules.datapath = datapath
        m.submodules.port = port = MemoryPort(params)
        m.submodules.counters = counters = Counters(params)
        for name in ("read_request", "read_data", "write_request", "write_data"):
            connect_streams(m, datapath=getattr(datapath, name), port=getattr(port, name))
        for name in ("request", "write", "read"):
            connect_streams(m, outer=wiring.flipped(getattr(self, name)),
                            inner=getattr(port, name))

        # Jobs that were begun and are not done: counted by their first words.
        open_jobs, word = Signal(4), Signal(6)
        taken, begun, ended = Signal(), Signal(), Signal()
        m.d.comb += [
            taken.eq(self.job.valid & self.job.ready),
            begun.eq(taken & (word == 0)),
            ended.eq(datapath.done.valid & datapath.done.ready),
            self.busy.eq(open_jobs != 0),
            datapath.job.p.eq(self.job.p),
            self.stages.eq(datapath.stages),
        ]
        m.d.sync += [word.eq(word + taken), open_jobs.eq(open_jobs + begun - ended)]

        aborted = Signal()
        with m.If(self.done.ready & aborted):
            m.d.sync += aborted.eq(0)
        m.d.comb += [
            self.done.valid.eq(datapath.done.valid | aborted),
            self.done.p.eq(Mux(aborted, Status.ABORTED, datapath.done.p)),
            datapath.done.ready.eq(self.done.ready & ~aborted),
        ]
        with m.FSM():
            with m.State("RUN"):
                m.d.comb += [
                    datapath.job.valid.eq(self.job.valid & ~self.abort_jobs & ~aborted),
                    self.job.ready.eq(datapath.job.ready & ~self.abort_jobs & ~aborted),
                ]
                with m.If(self.abort_jobs):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += port.drain.eq(1)
                with m.If(~port.busy):
                    m.next = "RESTART"
            with m.State("RESTART"):  # the datapath is cleared in the next cycle
                m.d.comb += [port.drain.eq(1), datapath.restart.eq(1)]
                m.next = "CLEARED"
            with m.State("CLEARED"):
                m.d.comb += port.drain.eq(1)
                m.d.sync += [aborted.eq(1), word.eq(0), open_jobs.eq(0)]
                m.next = "RUN"

        moved = Signal(2)
        m.d.comb += [
            moved.eq(Cat(beats.valid & beats.ready for beats in (self.read, self.write))),
            counters.clear.eq(begun & ~self.busy),
            counters.count.eq(datapath.count),
            counters.count.cycles.eq(self.busy),
            counters.count.read_beats.eq(moved[0]),
            counters.count.written_beats.eq(moved[1]),
            counters.count.port_idle.eq(self.busy & ~moved.any()),
            self.counters.eq(counters.values),
        ]
        return m
