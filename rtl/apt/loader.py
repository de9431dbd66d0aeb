"""Panels from memory to the engine's memories."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.common.block_fifo import BlockFifo
from rtl.common.stream import connect_streams

from .burst_splitter import BurstSplitter, beat_range
from .component import AptComponent
from .panel_port import LARGEST_BURST, LoadKind, burst, check_burst_beats, command
from .panel_reader import PanelReader, loaded_ports, tile_of_panel


__all__ = ["Loader"]


class Loader(AptComponent):
    """Loads tiles of Q, K and V, old masks and TAFA state (:mod:`golden.apt.panels`).

    Tiles are loaded in the order of their commands. Five commands are taken ahead, and their
    bursts are requested while the data of earlier ones still arrive. A command's ``words`` are
    those that the engine is to have and its ``beats`` those that hold them: as many as are needed,
    not more. A tile of old masks has ``row_blocks`` words, whatever its number of rows.

    A beat is taken every cycle where words are no narrower than beats, otherwise a word is given
    every cycle. A tile costs one cycle more, and what pads its last beat another one for every
    word that would fit in. Words of Q, K and V are never held up; while one of the
    streams ``code``, ``state`` and ``rows`` is stalled nothing behind it moves. Word outputs are
    registers, but for a gate in ``valid``.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine; the quad dataflow must support it.
    burst_beats : :class:`int`
        Beats of a burst at most, a power of two; no burst crosses a multiple of it.

    Members
    -------
    command : :py:`In(stream.Signature(command(LoadKind)))`
        ``{kind, address, words, beats, buffer}``; address in beats.
    request : :py:`Out(stream.Signature(burst()))`
        Bursts to read.
    read : :py:`In(stream.Signature(params.beat_bits))`
        Their beats.
    scale : ``{valid, kind, buffer, value}``
        A tile's scale word, before its first word.
    q_write : ``{valid, address, data}``
        A word for the memory of Q; ``address`` as a number is its address, see
        :func:`~rtl.apt.panel_port.q_address`.
    kv_write : ``{valid, address, part, data}``
        A part of a word for the memories of K and V, see
        :func:`~rtl.apt.panel_port.kv_write`.
    code : :py:`Out(stream.Signature(2 * params.key_blocks))`
        Flag pairs of block rows.
    state : :py:`Out(stream)` of ``{row, s}``
        State of rows in a tile, ``state_bits`` signed.
    rows : :py:`Out(stream)` of ``{row, c, reference}``
        State of rows.
    done : ``{valid, kind, buffer}``
        A tile is through: for one cycle, the one after its last word has gone, or later by what
        pads its last beat.
    """

    def __init__(self, params, *, burst_beats=LARGEST_BURST // 4):
        check_burst_beats(burst_beats)
        self._burst_beats = burst_beats
        super().__init__(params)

    def _ports(self, params):
        params.check_quad()
        return {
            "command": In(stream.Signature(command(LoadKind))),
            "request": Out(stream.Signature(burst())),
            "read": In(stream.Signature(params.beat_bits)),
            **loaded_ports(params),
        }

    @property
    def latency(self):
        """Cycles from the transfer of a beat that completes a word to the word."""
        return 1

    @property
    def request_latency(self):
        """Cycles from the transfer of a command to its first request, if none waits before it."""
        return 4

    @property
    def throughput(self):
        return "a beat or a word a cycle, whichever is narrower"

    def elaborate(self, platform):
        m = Module()
        m.submodules.tiles = tiles = BlockFifo(tile_of_panel(), 4)
        m.submodules.ranges = ranges = BlockFifo(beat_range(), 4)
        m.submodules.splitter = splitter = BurstSplitter(self._burst_beats)
        m.submodules.reader = reader = PanelReader(self._params)

        # A command goes both ways at once.
        m.d.comb += [
            self.command.ready.eq(tiles.i.ready & ranges.i.ready),
            tiles.i.valid.eq(self.command.valid & ranges.i.ready),
            ranges.i.valid.eq(self.command.valid & tiles.i.ready),
            *(tiles.i.p[name].eq(self.command.p[name])
              for name in ("kind", "buffer", "words", "beats")),
            *(ranges.i.p[name].eq(self.command.p[name]) for name in ("address", "beats")),
            self.request.valid.eq(splitter.o.valid),
            self.request.p.address.eq(splitter.o.p.address),
            self.request.p.beats.eq(splitter.o.p.beats),
            splitter.o.ready.eq(self.request.ready),
        ]
        connect_streams(m, ranges=ranges.o, splitter=splitter.i)
        connect_streams(m, tiles=tiles.o, reader=reader.tile)
        wiring.connect(m, wiring.flipped(self.read), reader.read)
        for name in loaded_ports(self._params):
            port = getattr(self, name)
            if hasattr(port, "ready"):
                wiring.connect(m, wiring.flipped(port), getattr(reader, name))
            else:
                m.d.comb += port.eq(getattr(reader, name))
        return m
