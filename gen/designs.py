"""The designs that can be emitted, synthesized, simulated and reported alone."""

import dataclasses
import importlib


__all__ = ["DESIGNS", "Design"]


@dataclasses.dataclass(frozen=True)
class Design:
    """A component that ``gen`` knows by name; ``path`` is ``module:Class``, loaded when used.

    The class takes one parameter object. ``baseline``, if any, is the same datapath built the
    plain way, against which area is compared. ``dataflow`` says that the design is of one dataflow
    alone, and ``whole`` that it is an engine: that many designs together, and as slow to
    synthesize. ``model`` is the module of golden it equals, where that has another name.
    """

    name: str
    engine: str
    path: str
    summary: str
    baseline: str | None = None
    dataflow: str | None = None
    whole: bool = False
    model: str | None = None

    def check(self, params):
        """:class:`ValueError` in one line where the design cannot have these parameters."""
        if self.whole:
            params.check_engine()
        elif self.dataflow == "quad":
            params.check_quad()

    def fits(self, params):
        """Whether the design can have these parameters."""
        try:
            self.check(params)
        except ValueError:
            return False
        return True

    @staticmethod
    def _load(path, params):
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)(params)

    def component(self, params):
        """A fresh component of these parameters."""
        return self._load(self.path, params)

    def baseline_component(self, params):
        """A fresh component of the baseline; only where there is one."""
        return self._load(self.baseline, params)


#: All designs, in the order in which data meets them.
DESIGNS = {design.name: design for design in [
    Design("bank_memory", "apt", "rtl.common.bank_memory:BankMemory",
           "banked memory of words in MSB and LSB segments"),
    Design("quantizer", "apt", "rtl.apt.quantizer:Quantizer",
           "symmetric uniform quantizer, one 16-bit scale a tile"),
    Design("data_aligner", "apt", "rtl.apt.data_aligner:DataAligner",
           "packs segments into bytes for DRAM, and back"),
    Design("mask_generator", "apt", "rtl.apt.mask_generator:MaskGenerator",
           "compares P' with the rescaled thresholds: HP and LP masks"),
    Design("mask_encoder", "apt", "rtl.apt.mask_encoder:MaskEncoder",
           "compresses a tile's masks"),
    Design("mask_decoder", "apt", "rtl.apt.mask_decoder:MaskDecoder",
           "rebuilds a tile's masks, HP first, with the refresh bit"),
    Design("address_translator", "apt", "rtl.apt.address_translator:AddressTranslator",
           "scans mask rows into one FIFO a bank: the address translation table"),
    Design("dp_mac", "apt", "rtl.apt.dp_mac:DpMac",
           "dual-precision dot product on segment multipliers",
           baseline="rtl.apt.dp_mac_baseline:DpMacBaseline"),
    Design("vpu", "apt", "rtl.apt.vpu:Vpu",
           "softmax of tiles: row maximum, powers of two, row sums", dataflow="quad"),
    Design("tafa", "apt", "rtl.apt.tafa:Tafa",
           "rescaled thresholds of rows and the state for the next step", dataflow="quad"),
    Design("list_builder", "apt", "rtl.apt.list_builder:ListBuilder",
           "element lists for PV, new masks and their code", dataflow="quad"),
    Design("rescale", "apt", "rtl.apt.rescale:Rescale",
           "running maximum and sum of rows, and the factors of O", dataflow="quad"),
    Design("sd_mpu", "apt", "rtl.apt.sd_mpu:SdMpu",
           "the engine: attention heads from memory and back", whole=True,
           model="attend"),
]}
