"""The designs that can be emitted, synthesized, simulated and reported alone."""

import dataclasses
import importlib


__all__ = ["DESIGNS", "Design"]


@dataclasses.dataclass(frozen=True)
class Design:
    """A component that ``gen`` knows by name; ``path`` is ``module:Class``, loaded when used.

    The class takes one parameter object. ``baseline``, if any, is the same datapath built the
    plain way, against which area is compared.
    """

    name: str
    engine: str
    path: str
    summary: str
    baseline: str | None = None

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
]}
