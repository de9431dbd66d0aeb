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
    "quantizer": [{}],
    "data_aligner": [{}],
    "mask_generator": [{}],
    "mask_encoder": [{}],
    "mask_decoder": [{}],
    "address_translator": [{}],
    "dp_mac": [{}],
}
