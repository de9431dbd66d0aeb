"""``python -m golden codec-front``: mask codecs against each other over all their thresholds."""

import dataclasses
import re

import click
from rich import box
from rich.table import Table

from golden.apt.params import AptParams
from golden.dit import heads
from golden.studies import codec_front as study

from .entry import console
from .studies import (
    NumberList,
    check_tile,
    figure,
    heads_option,
    output_options,
    progress_bar,
    taken_heads,
    write_csv,
    write_json,
)


__all__ = ["codec_front_command"]

_CODECS = {
    "rowcol": {"codec": "rowcol", "rowcol_decode": "or"},
    "rowcol and": {"codec": "rowcol", "rowcol_decode": "and"},
}


class _Blocks(click.ParamType):
    """Comma-separated block shapes such as ``4x8``."""

    name = "blocks"

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        shapes = [re.fullmatch(r"\s*([0-9]+)x([0-9]+)\s*", word) for word in value.split(",")]
        if not all(shape and 0 < int(shape[1]) <= 64 and 0 < int(shape[2]) <= 64
                   for shape in shapes):
            self.fail(f"must be shapes such as 4x8 (rows x keys, 1 to 64), not {value!r}",
                      param, ctx)
        return tuple(dict.fromkeys((int(shape[1]), int(shape[2])) for shape in shapes))


def _sweeps(tile_q, tile_ks, blocks):
    """Empty sweeps by (codec's name, tile_k)."""
    sweeps = {}
    for tile_k in tile_ks:
        tile = {"tile_q": tile_q, "tile_k": tile_k, "lanes": min(16, tile_k),
                "window_qk": 1, "window_pv": 1}
        for name, fields in _CODECS.items():
            sweeps[name, tile_k] = study.sweep_of(AptParams(**tile, **fields))
        for rows, cols in blocks:
            sweeps[f"block {rows}x{cols}", tile_k] = study.sweep_of(
                AptParams(**tile, codec="block", block_rows=rows, block_cols=cols))
    return sweeps


def _thresholds(names, values):
    """``hp 12, v 7``, or for rows and columns ``hp r46 c21, v r40 c10``."""
    planes = {"hp": [], "v": []}
    for name, value in zip(names, values, strict=True):
        planes[name.rsplit("_", 1)[1]].append(
            f"{'rc'[name.startswith('k_col')]}{value}" if len(names) > 2 else str(value))
    return ", ".join(f"{plane} {' '.join(words)}" for plane, words in planes.items())


def _table(title, left, right):
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD,
                  pad_edge=False, collapse_padding=True)
    for column in left:
        table.add_column(column, no_wrap=True)
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _best_table(results, tile_q, tile_k, limit):
    table = _table(f"least cost + 0.3 x demoted: tile {tile_q}x{tile_k}, lost <= {limit:.1%}",
                   ("codec", "flag set above"),
                   ("valid", "high", "cost", "lost", "demoted", "sum"))
    for (name, keys), result in results.items():
        if keys == tile_k:
            best = result.best[limit]
            table.add_row(name, _thresholds(best.thresholds, best.thresholds.values()),
                          f"{best.valid:.3f}", f"{best.high:.3f}", f"{best.cost:.3f}",
                          f"{best.lost:.2%}", f"{best.demoted:.3f}", f"{best.figure:.4f}")
    return table


def _front_table(results, tile_q, limit, rows):
    """The fronts of cost and demoted at one limit, each thinned out to about ``rows`` points."""
    table = _table(f"Pareto front, lost <= {limit:.1%}", ("tile", "codec", "flag set above"),
                   ("cost", "lost", "demoted"))
    for (name, tile_k), result in results.items():
        indices = result.front_within(limit)
        if len(indices) > rows:
            indices = indices[[round(number * (len(indices) - 1) / max(rows - 1, 1))
                               for number in range(rows)]]
        for index in indices.tolist():
            cost, lost, demoted = result.front[index]
            table.add_row(f"{tile_q}x{tile_k}", name,
                          _thresholds(result.names, result.front_thresholds[index]),
                          f"{cost:.3f}", f"{lost:.2%}", f"{demoted:.3f}")
        table.add_section()
    return table


def _comparison(results, limits):
    """How much less the blocks' figure is than row and column flags' of the same tile."""
    for (name, tile_k), result in results.items():
        if name.startswith("block"):
            for limit in limits:
                other = results["rowcol", tile_k].best[limit].figure
                own = result.best[limit].figure
                yield {"codec": name, "tile_k": tile_k, "lost_limit": limit, "figure": own,
                       "rowcol_figure": other, "reduction": 1 - own / other}


def _document(taken, results, tile_q, limits):
    return {
        "run": {name: getattr(taken, name) for name in ("category", "style", "seed", "steps",
                                                        "layers")},
        "pruned_share": heads.PRUNED_SHARE, "high_share": heads.HIGH_SHARE,
        "demoted_weight": study.DEMOTED_WEIGHT, "front_cell": study.FRONT_CELL,
        "codecs": [
            {"codec": name, "tile_q": tile_q, "tile_k": tile_k, "settings": result.settings,
             "high_mass": result.high_mass,
             "best": [{"lost_limit": limit, "figure": best.figure, **dataclasses.asdict(best)}
                      for limit, best in result.best.items()],
             "front_points": len(result.front)}
            for (name, tile_k), result in results.items()],
        "against_rowcol": list(_comparison(results, limits)),
    }


def _front_rows(results, tile_q):
    for (name, tile_k), result in results.items():
        for point, values in zip(result.front.tolist(), result.front_thresholds.tolist(),
                                 strict=True):
            yield [name, tile_q, tile_k, *(f"{number:.6f}" for number in point),
                   _thresholds(result.names, values)]


def _draw(axes, results, tile_q, limit):
    for (name, tile_k), result in results.items():
        cost, _, demoted = result.front[result.front_within(limit)].T
        line, = axes.plot(cost, demoted, label=f"{name}, tile {tile_q}x{tile_k}", linewidth=1.2)
        best = result.best[limit]
        axes.plot(best.cost, best.demoted, "o", color=line.get_color(), markersize=4)
    axes.set(xlabel="cost: high + low / 4, of dense high precision",
             ylabel="mass demoted to low precision",
             title=f"Mask codecs at {limit:.1%} of the mass lost; dots: least cost + 0.3 x demoted",
             xlim=(0.15, 0.5))
    axes.grid(alpha=0.3)
    axes.legend()


@click.command("codec-front")
@heads_option
@click.option("--tile-q", type=click.IntRange(2, 64), default=64, show_default=True,
              help="Query rows of a tile.")
@click.option("--tile-k", "tile_ks", type=NumberList(int, 2, 256), default="64,128",
              show_default=True, metavar="LIST", help="Keys of a tile.")
@click.option("--block", "blocks", type=_Blocks(), default="4x8", show_default=True, metavar="LIST",
              help="Shapes of the block codec, rows x keys.")
@click.option("--max-lost", "limits", type=NumberList(float, 0.0001, 1), default="0.01,0.03",
              show_default=True, metavar="LIST", help="Limits on the mass lost, as shares.")
@click.option("--rows", type=click.IntRange(1, 1000), default=10, show_default=True,
              help="Points of each front to print; the CSV file has all.")
@output_options(("--json", "Write the figures as JSON."),
                ("--csv", "Write the whole Pareto fronts as CSV."),
                ("--plot", "Draw the fronts at the first limit, as PNG."))
def codec_front_command(qkv, tile_q, tile_ks, blocks, limits, rows, json, csv, plot):
    """Cost, mass lost and mass demoted of the mask codecs on real heads, for every threshold."""
    check_tile(tile_q, tile_ks)
    taken = taken_heads(qkv)
    sweeps = _sweeps(tile_q, tile_ks, blocks)
    count = len(taken.steps) * len(taken.layers) * taken.q.shape[2]
    with progress_bar("counting heads", count) as advance:
        for head in heads.calibrated_heads(taken):
            for sweep in sweeps.values():
                sweep.add(head.p, head.high, head.valid)
            advance()
    results = {}
    with progress_bar("sweeping thresholds",
                      sum(sweep.slice_count for sweep in sweeps.values())) as advance:
        for key in list(sweeps):
            results[key] = study.evaluate(sweeps.pop(key), limits, advance)

    console.print(_front_table(results, tile_q, limits[0], rows))
    for tile_k in tile_ks:
        for limit in limits:
            console.print(_best_table(results, tile_q, tile_k, limit))
    settings = sum(result.settings for result in results.values())
    click.echo(f"{count} heads, {settings:,} settings of the thresholds. cost = high + low / 4; "
               "lost and demoted are\nshares of all mass; a flag is set where the count of a row "
               "(r), column (c) or block is above it.")
    for line in _comparison(results, limits):
        click.echo(f"tile {tile_q}x{line['tile_k']}, lost <= {line['lost_limit']:.1%}: "
                   f"{line['codec']} {line['figure']:.4f}, rowcol {line['rowcol_figure']:.4f}: "
                   f"{line['reduction']:.1%} lower")
    write_json(json, _document(taken, results, tile_q, limits))
    write_csv(csv, ["codec", "tile_q", "tile_k", "cost", "lost", "demoted", "flag_set_above"],
              _front_rows(results, tile_q))
    if plot is not None:
        with figure(plot, figsize=(8, 5), layout="constrained") as drawn:
            _draw(drawn.subplots(), results, tile_q, limits[0])
