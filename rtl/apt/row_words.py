"""Words that go in and out of the row work, of rows of tiles and of whole rows."""

from amaranth import *
from amaranth.lib import data

from .log2 import VALUE_BITS
from .mask_generator import threshold_pair


__all__ = ["factor_word", "final_word", "rescale_row", "row_mass", "row_word", "tafa_result",
           "tafa_row"]


def tafa_row(params):
    """A row of a tile: its softmax, the codes of the head's thresholds and the stored state."""
    return data.StructLayout({
        "row": params.row_bits,
        "first": 1,                 # the first key tile of the query tile
        "has_state": 1,             # 0: both thresholds are 1
        "code_prune": 16,           # -log2 of the threshold, Q5.11
        "code_quant": 16,
        "maximum": signed(16),      # m~
        "total": params.total_bits,  # l~
        "c": signed(16),            # of the step before
        "reference": signed(16),
        "s": signed(params.state_bits),
    })


def tafa_result(params):
    """Thresholds of a row of a tile, and the word to store for the next step."""
    return data.StructLayout({
        "row": params.row_bits,
        "thresholds": threshold_pair(),
        "s": signed(params.state_bits),
    })


def row_mass(params):
    """Maximum M and sum L of a whole row."""
    return data.StructLayout({"row": params.row_bits, "maximum": signed(16),
                              "total": VALUE_BITS})


def row_word(params):
    """What is stored once a row: ``M + log2 L``, and the first ``s`` of its tiles."""
    return data.StructLayout({"row": params.row_bits, "c": signed(16), "reference": signed(16)})


def rescale_row(params):
    """A row of a tile on its way to O."""
    return data.StructLayout({
        "row": params.row_bits,
        "first": 1,                 # the first key tile of the query tile
        "last": 1,                  # the last one
        "maximum": signed(16),      # m~
        "total": params.total_bits,  # l~
        "contributes": 1,           # the row has an element in the tile's PV
        "unit_v": 16,               # log2 of the scale word of V, U4.12
        "shift": 4,                 # places that sums are shifted right before O
    })


def factor_word(params):
    """How a tile's sums of a row come into O; factor and side mean something where the row
    contributes and does not begin."""
    return data.StructLayout({
        "row": params.row_bits,
        "begin": 1,                 # the sums are O; 0: they are added to it
        "contributes": 1,           # 0: O stays
        "scale_o": 1,               # 1: O is multiplied, 0: the sums are
        "factor": 16,               # U1.15
    })


def final_word(params):
    """How O of a row becomes output: ``O * mantissa * 2**-places``, rounded half up, or 0."""
    return data.StructLayout({"row": params.row_bits, "zero": 1, "mantissa": 16, "places": 6})
