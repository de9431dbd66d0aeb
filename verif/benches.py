"""The benches and the parameter sets that each runs with.

A row is a list of overrides of the chosen preset; an empty one is the preset itself. Every
parameter that shapes a block stands here with a value off its default, one not a power of two and
sizes that do not divide.
"""

__all__ = ["BENCHES"]

BENCHES = {
    "bank_memory": [
        {},
        {"lanes": 3, "multipliers": 5, "head_dim": 12, "tile_k": 10, "segment_bits": 4},
    ],
    "quantizer": [
        {},
        {"split": "truncate", "multiplier_style": "dsp", "vpu_lanes": 16, "head_dim": 10},
        {"split": "truncate", "segment_bits": 8, "vpu_lanes": 3, "head_dim": 7, "tile_q": 6,
         "tile_k": 30},
        {"segment_bits": 3, "vpu_lanes": 5, "head_dim": 7, "tile_q": 10, "tile_k": 20},
    ],
    "data_aligner": [
        {},
        {"head_dim": 72, "vpu_lanes": 16, "beat_bytes": 8, "split": "truncate", "tile_q": 12,
         "tile_k": 20},
        {"head_dim": 7, "vpu_lanes": 5, "segment_bits": 3, "beat_bytes": 3, "tile_q": 6,
         "tile_k": 20},
        {"head_dim": 35, "vpu_lanes": 10, "segment_bits": 7, "beat_bytes": 5, "tile_q": 6,
         "tile_k": 20},
        {"head_dim": 20, "vpu_lanes": 2, "segment_bits": 5, "beat_bytes": 1, "tile_q": 6,
         "tile_k": 20},
    ],
    "mask_generator": [
        {},
        {"vpu_lanes": 16},
        {"lanes": 3, "vpu_lanes": 5, "tile_q": 6, "tile_k": 13},
    ],
    "mask_encoder": [
        {},
        {"vpu_lanes": 16},
        {"codec": "rowcol", "vpu_lanes": 16},
        {"lanes": 3, "vpu_lanes": 5, "tile_q": 7, "tile_k": 11, "codec": "block",
         "block_rows": 3, "block_cols": 4},
        {"lanes": 3, "vpu_lanes": 5, "tile_q": 6, "tile_k": 10, "codec": "rowcol"},
    ],
    "mask_decoder": [
        {},
        {"vpu_lanes": 16},
        {"codec": "rowcol", "vpu_lanes": 16},
        {"lanes": 3, "tile_q": 8, "tile_k": 10, "codec": "block", "block_rows": 3,
         "block_cols": 5},
        {"lanes": 3, "tile_q": 6, "tile_k": 10, "codec": "rowcol", "rowcol_decode": "and"},
    ],
    "address_translator": [
        {},
        {"placement": "modulo", "tile_k": 64, "window_qk": 1},
        {"placement": "balanced", "tile_q": 16, "window_qk": 16},
        {"lanes": 3, "tile_q": 6, "tile_k": 10, "placement": "balanced", "window_qk": 3,
         "window_pv": 1, "head_dim": 7, "multipliers": 3},
        {"lanes": 5, "tile_q": 7, "tile_k": 23, "placement": "modulo", "window_qk": 2,
         "head_dim": 7, "multipliers": 3},
    ],
    "dp_mac": [
        {},
        {"split": "truncate"},
        {"multiplier_style": "dsp", "multipliers": 12, "head_dim": 20, "tile_k": 30},
        {"split": "truncate", "multiplier_style": "dsp", "multipliers": 5, "segment_bits": 4,
         "head_dim": 9, "tile_k": 19},
        {"split": "truncate", "multipliers": 3, "segment_bits": 8, "head_dim": 7, "tile_k": 16},
        {"multipliers": 1, "segment_bits": 3, "head_dim": 5, "tile_k": 16},
    ],
    "vpu": [
        {},
        {"vpu_lanes": 16, "tile_q": 12, "tile_k": 48, "exp2": "table"},
        {"vpu_lanes": 4, "tile_q": 20, "tile_k": 24},
        {"lanes": 4, "tile_q": 4, "tile_k": 8, "vpu_lanes": 32, "segment_bits": 5},
    ],
    "tafa": [
        {},
        {"tile_q": 12, "tile_k": 24, "state_bits": 8, "exp2": "table"},
        {"tile_q": 20, "tile_k": 40, "state_bits": 8},
    ],
    "list_builder": [
        {},
        {"vpu_lanes": 16, "tile_q": 12, "tile_k": 48, "segment_bits": 5},
        {"vpu_lanes": 4, "tile_q": 20, "tile_k": 24},
        {"lanes": 4, "tile_q": 4, "tile_k": 8, "vpu_lanes": 32, "segment_bits": 5},
    ],
    "rescale": [
        {},
        {"tile_q": 12, "tile_k": 24, "segment_bits": 4},
        {"tile_q": 20, "tile_k": 40, "segment_bits": 8},
    ],
    # Whole heads at the preset's size are run by `verif.engine`.
    "sd_mpu": [
        {"dataflow": "quad", "lanes": 4, "multipliers": 4, "head_dim": 16, "tile_q": 16,
         "tile_k": 16, "vpu_lanes": 4, "multiplier_style": "lut"},
        {"dataflow": "quad", "lanes": 8, "multipliers": 6, "head_dim": 20, "tile_q": 12,
         "tile_k": 24, "vpu_lanes": 8, "state_bits": 8, "exp2": "table", "beat_bytes": 4,
         "multiplier_style": "packed"},
        {"dataflow": "serial", "lanes": 8, "multipliers": 2, "head_dim": 9, "tile_q": 8,
         "tile_k": 8, "vpu_lanes": 4, "beat_bytes": 1, "state_bits": 16, "exp2": "pwl16"},
        {"dataflow": "serial", "lanes": 8, "multipliers": 2, "head_dim": 4, "tile_q": 4,
         "tile_k": 8, "vpu_lanes": 4, "beat_bytes": 1, "state_bits": 8, "exp2": "table"},
    ],
}
