"""Named parameter sets. The command line, the tests and the reports all iterate this table."""

from golden.apt.params import AptParams


__all__ = ["APT_PRESETS", "DEFAULT_PRESET"]

#: Presets of the APT engine; a field that is not named keeps its default.
APT_PRESETS = {
    "tiny": AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                      placement="balanced", window_qk=2, window_pv=1),
    # Fits an iCE40 UP5K: 5,280 logic cells, 30 block RAMs, 4 large RAMs, 8 multipliers.
    "icebreaker": AptParams(dataflow="serial", lanes=8, multipliers=2, vpu_lanes=4,
                            placement="balanced", window_pv=1, beat_bytes=1),
    # Fits an ECP5-25F: 56 block RAMs and 28 multipliers decide.
    "icepi-zero": AptParams(lanes=4, multipliers=4, tile_q=32, tile_k=32, vpu_lanes=4,
                            placement="balanced", window_pv=1),
    # QK gives four logits a cycle at most, so a softmax of sixteen would gain nothing.
    "ulx3s-85f": AptParams(vpu_lanes=8),
    "paper": AptParams(head_dim=72, tile_q=16, tile_k=16, split="truncate", codec="rowcol",
                       placement="modulo", window_qk=1, window_pv=1),
}

DEFAULT_PRESET = "ulx3s-85f"
