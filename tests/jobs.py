"""Jobs for the tests of what walks them, and what their walk must be."""

import dataclasses

from golden.apt import job
from golden.apt.attend import Step
from golden.apt.job import Region
from golden.apt.layout import Layout
from golden.apt.params import AptParams
from golden.apt.thresholds import BlockThresholds
from golden.apt.vpu import LogitScale
from golden.common.checks import ceil_div


__all__ = ["BAD", "ODD", "SCALE", "STEPS", "TINY", "expected_walk", "fields", "make_job"]

TINY = AptParams(lanes=4, multipliers=4, head_dim=16, tile_q=16, tile_k=16, vpu_lanes=4,
                 placement="modulo")
ODD = dataclasses.replace(TINY, lanes=8, head_dim=20, tile_q=12, tile_k=24, state_bits=8,
                          beat_bytes=4)
SCALE = LogitScale(40000, 50)
STEPS = [Step(codes=(100, 200), dense=True), Step(codes=(5, 65535), counts=BlockThresholds(3, 1)),
         Step(codes=(7, 8), refresh=True)]


def make_job(step, tokens, has_state, params, first=1000):
    """Words of a job, and its places from beat ``first`` on."""
    places, layout = {}, Layout(params, tokens)
    for region in Region:
        places[region] = job.place(region, first, layout)
        first += job.panel(region, layout).total + 3
    return job.job_words(step, SCALE, has_state, places, layout), places


def expected_walk(step, tokens, has_state, places, params):
    """Loads, stores and tiles of a job, from the layout's own numbers."""
    loads, stores, tiles = [], [], []
    queries, keys = ceil_div(tokens, params.tile_q), ceil_div(tokens, params.tile_k)
    for i in range(queries):
        for j in range(keys):
            index = {Region.K: j, Region.V: j}
            for region in (Region.CODE_IN, Region.CODE_OUT, Region.STATE_IN, Region.STATE_OUT):
                index[region] = i * keys + j

            def order(region, i=i, index=index):
                number = index.get(region, i)
                one = job.panel(region, Layout(params, tokens))
                return (region, places[region].base + number * one.stride, one.beats[number],
                        one.words[number])
            wanted = [Region.Q] if j == 0 else []
            wanted += [Region.ROWS_IN] if j == 0 and has_state else []
            wanted += [] if step.dense else [Region.CODE_IN]
            wanted += [Region.STATE_IN] if has_state else []
            loads += [order(region) for region in (*wanted, Region.K, Region.V)]
            wanted = [Region.STATE_OUT, Region.CODE_OUT]
            wanted += [Region.ROWS_OUT, Region.O] if j == keys - 1 else []
            stores += [order(region) for region in wanted]
            tiles.append({
                "rows": min(params.tile_q, tokens - i * params.tile_q),
                "keys": min(params.tile_k, tokens - j * params.tile_k),
                "first": j == 0, "last": j == keys - 1, "dense": step.dense,
                "refresh": step.refresh, "has_state": has_state, "code_prune": step.codes[0],
                "code_quant": step.codes[1], "k_hp": step.counts.k_hp, "k_v": step.counts.k_v})
    return loads, stores, tiles


def fields(layout, bits):
    """Fields of a word as integers; the scale is left out."""
    value = layout.from_bits(bits)
    return {name: int(getattr(value[name], "value", value[name])) if name != "scale" else None
            for name, _ in layout}


#: What is wrong with a job, by number and value of the word.
BAD = {"query tiles": (1, 0x0001_0000), "key tiles": (1, 1),  "rows": (2, 0x0010_0000),
       "many rows": (2, 0x0010_0011), "keys": (2, 16), "many keys": (2, 0x0011_0010),
       "mantissa": (4, 50 << 16 | 20000), "shift": (4, 30 << 16 | 40000), "flags": (0, 0)}
