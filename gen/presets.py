"""Named parameter sets. The command line, the tests and the reports all iterate this table."""

from golden.apt.params import AptParams


__all__ = ["APT_PRESETS", "DEFAULT_PRESET"]

#: Presets of the APT engine; a field that is not named keeps its default.
APT_PRESETS = {
    "tiny": AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                      placement="balanced", window_qk=2, window_pv=1),
    "ulx3s-85f": AptParams(),
    "paper": AptParams(head_dim=72, tile_q=16, tile_k=16, split="truncate", codec="rowcol",
                       placement="modulo", window_qk=1, window_pv=1),
}

DEFAULT_PRESET = "ulx3s-85f"
