"""The program of the serial dataflow: its constants, and its parts put together."""

import functools

from golden.apt.job import REGIONS_AT, Region, whole_tile
from golden.apt.quad_shape import BLOCK_KEYS

from ..datapath import STAGES
from ..exp2_tables import chords
from ..exp2_tables import table as exp2_table
from ..log2 import table as log2_table
from . import source_finish, source_job, source_row, source_tile
from .assembler import assemble


__all__ = ["program", "tables"]

_NONE, _LARGEST, _NEVER = -(1 << 15), (1 << 15) - 1, (1 << 15) + 1


def _constants(params):
    memory = params.memory_map
    constants = {
        **{name.upper(): at for name, at in memory._asdict().items()},
        **{name.upper(): 1 << bit for bit, name in enumerate(STAGES)},
        **{f"AT_{region.name}": memory.job + REGIONS_AT + 4 * region for region in Region},
        "D": params.head_dim, "TQ": params.tile_q, "TK": params.tile_k,
        "Q_STEP": 2 * params.head_dim,          # Q of a block row
        "K_LSB": 2 * params.head_dim,           # K: lower segments of a block
        "K_BLOCK": 4 * params.head_dim,
        "PASSES": params.column_passes,
        "V_KEY": 2 * params.column_passes,
        "V_BLOCK": BLOCK_KEYS * 2 * params.column_passes,
        "O_ROW": 4 * params.column_passes,
        "KEY_BLOCKS": params.key_blocks,
        "ALL_PAIRS": params.row_blocks * params.key_blocks + 4,
        "CODE_BYTES": params.code_bytes,
        "NONE": _NONE, "LARGEST": _LARGEST, "NEVER": _NEVER, "NO_LOGIT": _NONE,
        "ONE_LOG": 15 << 8, "ONE_LOG_FINE": 15 << 12,
        "QMAX": params.qmax, "LOG_QMAX2": params.log2_qmax_squared,
        "LISTS_MIDDLE": memory.lists + params.tile_k,
    }
    for region in Region:
        words, beats = whole_tile(region, params)
        constants[f"{region.name}_WORDS"], constants[f"{region.name}_BEATS"] = words, beats
    return constants


@functools.cache
def program(params):
    """The :class:`~rtl.apt.serial.assembler.Image` for these parameters."""
    source = "\n".join([source_job.SOURCE, source_tile.source(params), source_row.SOURCE,
                        source_finish.SOURCE])
    return assemble(source, _constants(params))


@functools.cache
def tables(params):
    """Contents of the tables, 16 bits each, 256 words a table; see :class:`.isa.Table`."""
    bases, slopes = chords()
    powers = exp2_table() if params.exp2 == "table" else tuple(
        base - ((slope * t + 128) >> 8)
        for base, slope in zip(bases, slopes, strict=True) for t in range(16))
    return (*powers, *log2_table(), *bases, *slopes, *[0] * 224)
