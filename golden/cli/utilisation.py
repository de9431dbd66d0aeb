"""``python -m golden utilisation``: how busy the lanes are, by placement and window."""

import click
from rich import box
from rich.table import Table

from golden.apt.params import PLACEMENTS
from golden.dit import heads
from golden.studies import utilisation as study

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


__all__ = ["utilisation_command"]


def _window_name(window, tile_q):
    return "whole tile" if window == tile_q else str(window)


def _table(title, shares, tile_q, windows):
    """Rows: placements; columns: windows and the bound. ``shares[tile_k, placement][column]``."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
                  collapse_padding=True)
    table.add_column("keys", justify="right")
    table.add_column("placement")
    for window in windows:
        name = _window_name(window, tile_q)
        table.add_column(name if window == tile_q else f"window {name}", justify="right")
    table.add_column("bound", justify="right")
    for (tile_k, placement), by_column in shares.items():
        table.add_row(str(tile_k), placement, *(f"{share:.3f}" for share in by_column))
    return table


def _draw(axes, shares, tile_q, windows):
    for (tile_k, placement), by_column in shares.items():
        axes.plot(range(len(windows)), by_column[:-1],
                  marker="o", markersize=4, label=f"{placement}, {tile_k} keys",
                  linestyle="-" if tile_k == max(key for key, _ in shares) else "--")
    axes.set(xlabel="window: query rows open at once", ylabel="lane utilisation",
             xticks=range(len(windows)),
             xticklabels=[_window_name(window, tile_q) for window in windows],
             title="Lane utilisation behind the address translator")
    axes.grid(alpha=0.3)
    axes.legend()


@click.command("utilisation")
@heads_option
@click.option("--tile-q", type=click.IntRange(2, 256), default=64, show_default=True,
              help="Query rows of a tile.")
@click.option("--tile-k", "tile_ks", type=NumberList(int, 16, 512), default="64,128",
              show_default=True, metavar="LIST", help="Keys of a tile.")
@click.option("--windows", type=NumberList(int, 1, 256), show_default=True, metavar="LIST",
              default=",".join(map(str, study.WINDOWS)),
              help="Query rows that may be open at once; the tile's rows or more: the whole tile.")
@output_options(("--json", "Write the figures as JSON, head by head as well."),
                ("--csv", "Write the table as CSV."),
                ("--plot", "Draw the table, as PNG."))
def utilisation_command(qkv, tile_q, tile_ks, windows, json, csv, plot):
    """Lane utilisation of the address translator on real heads: placements, tiles, windows."""
    check_tile(tile_q, tile_ks)
    windows = tuple(sorted({min(window, tile_q) for window in windows}))
    taken = taken_heads(qkv)
    engines = {(tile_k, placement): study.engine(tile_q, tile_k, placement)
               for tile_k in tile_ks for placement in PLACEMENTS}
    usages = {key: [] for key in engines}  # a row of Usage for each head
    places = []
    count = len(taken.steps) * len(taken.layers) * taken.q.shape[2]
    with progress_bar("translating", count * len(engines)) as advance:
        for head in heads.calibrated_heads(taken):
            places.append({"step": head.step, "layer": head.layer, "head": head.head})
            for key, params in engines.items():
                usages[key].append(study.head_usage(head.valid, params, windows))
                advance()
    pooled = {key: [sum(column, study.Usage()).share for column in zip(*rows, strict=True)]
              for key, rows in usages.items()}
    means = {key: [sum(usage.share for usage in column) / count
                   for column in zip(*rows, strict=True)] for key, rows in usages.items()}

    console.print(_table(f"lane utilisation, {count} heads pooled", pooled, tile_q, windows))
    console.print(_table("mean over the heads", means, tile_q, windows))
    click.echo("Valid elements / (lanes x slots), slots that the scanner leaves empty included.\n"
               "Bound: a slot for each element of a tile's fullest bank; no window exceeds it.")
    columns = (*windows, "bound")
    rows = [(tile_k, placement, column, round(pooled[tile_k, placement][number], 6),
             round(means[tile_k, placement][number], 6))
            for tile_k, placement in engines for number, column in enumerate(columns)]
    names = ("tile_k", "placement", "window", "pooled", "mean_of_heads")
    write_json(json, {
        "run": {name: getattr(taken, name) for name in ("category", "style", "seed", "steps",
                                                        "layers")},
        "pruned_share": heads.PRUNED_SHARE, "tile_q": tile_q,
        "utilisation": [dict(zip(names, row, strict=True)) for row in rows],
        "heads": [{**place, "tile_k": tile_k, "placement": placement,
                   **{str(column): round(usage.share, 6)
                      for column, usage in zip(columns, usages[tile_k, placement][number],
                                               strict=True)}}
                  for number, place in enumerate(places) for tile_k, placement in engines]})
    write_csv(csv, names, rows)
    if plot is not None:
        with figure(plot, figsize=(7, 5), layout="constrained") as drawn:
            _draw(drawn.subplots(), pooled, tile_q, windows)
