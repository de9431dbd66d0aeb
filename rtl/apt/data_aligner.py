"""Segments of quantized tiles to the bytes of their memory images, and back (APT 4.1)."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import SCALE_BITS
from rtl.common.stream import connect_streams

from .component import AptComponent
from .data_packer import DataPacker, packed_beat
from .data_unpacker import DataUnpacker
from .tile_image import beat, image_throughput, segment_word


__all__ = ["DataAligner"]


class DataAligner(AptComponent):
    """The data aligner of the memory port: a :class:`DataPacker` and a :class:`DataUnpacker`.

    The two directions share nothing and run at the same time; their docstrings are the contract.

    Parameters
    ----------
    params : :class:`AptParams`
        ``vpu_lanes``, ``segment_bits``, ``head_dim``, ``beat_bytes``, ``tile_q`` and ``tile_k``
        matter.

    Members
    -------
    pack_scale : :py:`In(stream.Signature(16))`
        Scale words of the tiles to pack.
    pack_i : :py:`In(stream.Signature(segment_word(params)))`
        Their segments: MSB plane, LSB plane.
    pack_o : :py:`Out(stream.Signature(packed_beat(params)))`
        Beats of their images.
    unpack_tile : :py:`In(stream.Signature(params.rows_bits))`
        Rows of the tiles to unpack.
    unpack_i : :py:`In(stream.Signature(beat(params)))`
        Beats of their images.
    unpack_scale : :py:`Out(stream.Signature(16))`
        Their scale words.
    unpack_o : :py:`Out(stream.Signature(segment_word(params)))`
        Their segments: MSB plane, LSB plane.
    """

    def _ports(self, params):
        return {
            "pack_scale": In(stream.Signature(SCALE_BITS)),
            "pack_i": In(stream.Signature(segment_word(params))),
            "pack_o": Out(stream.Signature(packed_beat(params))),
            "unpack_tile": In(stream.Signature(params.rows_bits)),
            "unpack_i": In(stream.Signature(beat(params))),
            "unpack_scale": Out(stream.Signature(SCALE_BITS)),
            "unpack_o": Out(stream.Signature(segment_word(params))),
        }

    @property
    def latency(self):
        """Cycles from the transfer on ``pack_i`` that fills a beat to ``pack_o.valid``."""
        return 1

    @property
    def unpack_latency(self):
        """Cycles from the transfer on ``unpack_i`` that completes a word to
        ``unpack_o.valid``."""
        return 2

    @property
    def throughput(self):
        return f"{image_throughput(self._params)} each way"

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = packer = DataPacker(self._params)
        m.submodules.unpacker = unpacker = DataUnpacker(self._params)
        for outer, inner in (
                (self.pack_scale, packer.scale), (self.pack_i, packer.i), (self.pack_o, packer.o),
                (self.unpack_tile, unpacker.tile), (self.unpack_i, unpacker.i),
                (self.unpack_scale, unpacker.scale), (self.unpack_o, unpacker.o)):
            connect_streams(m, outer=wiring.flipped(outer), inner=inner)
        return m
