"""The demo's figure: a real tile's probabilities, its masks, and what codecs make of them."""

import dataclasses

import matplotlib
import numpy as np
from matplotlib import colors, figure, patches

from golden.apt.mask_decoder import decode
from golden.apt.mask_encoder import encode
from golden.apt.thresholds import BlockThresholds, RowColThresholds
from golden.common.files import writing_whole
from golden.dit.model import SIDE


__all__ = ["STUDY_THRESHOLDS", "CodecView", "coded", "draw"]

matplotlib.use("Agg")

#: What `python -m golden codec-front` finds for tiles of 64 x 128: the least cost + 0.3 x demoted
#: over 27 heads with at most 1 % of the mass lost.
STUDY_THRESHOLDS = {
    "rowcol": RowColThresholds(k_row_hp=92, k_row_v=81, k_col_hp=21, k_col_v=10),
    "block": BlockThresholds(k_hp=12, k_v=7),
}


@dataclasses.dataclass(frozen=True, eq=False)
class CodecView:
    """A pair of masks of a tile, and what they cost and lose against its element masks."""

    title: str
    tile: object
    high: np.ndarray
    low: np.ndarray

    @property
    def valid(self):
        """Share of the elements that are computed."""
        return float((self.high | self.low).mean())

    @property
    def high_share(self):
        return float(self.high.mean())

    @property
    def cost(self):
        """Multiply passes as a share of dense 12-bit: HP + LP / 4."""
        return float(self.high.mean() + self.low.mean() / 4)

    def _mass(self, where):
        return float((self.tile.p * where).sum())

    @property
    def lost(self):
        """Share of the tile's probability mass on valid elements that these masks skip."""
        high, low = self.tile.masks
        return self._mass((high | low) & ~(self.high | self.low)) / self._mass(True)

    @property
    def demoted(self):
        """Share of the mass on HP elements that these masks compute in low precision."""
        high, _ = self.tile.masks
        return self._mass(high & self.low) / self._mass(True)


def coded(tile, params):
    """The codec's masks of the tile, at the study's thresholds."""
    code = encode(*tile.masks, STUDY_THRESHOLDS[params.codec], params)
    return CodecView(f"{params.codec} codec", tile,
                     *decode(code, 0, params.tile_q, params.tile_k, params))


def _outline(axes, first, count, colour, label):
    """The patches of tokens ``first .. first + count - 1``, as rows of the image's grid."""
    per_row = SIDE // 2
    axes.axhspan(first // per_row * 2 - 0.5, -(-(first + count) // per_row) * 2 - 0.5, alpha=0.3,
                 color=colour, label=label)


def draw(path, image, tile, views):
    """Write the figure as PNG."""
    kinds = colors.ListedColormap(["#f2f2f2", "#7fb3d5", "#b03a2e"])
    sheet = figure.Figure(figsize=(12, 6.4), layout="constrained")
    grid = sheet.subplots(2, 3, gridspec_kw={"width_ratios": [1, 2, 2]})
    axes = grid[0, 0]
    axes.imshow(image)
    _outline(axes, tile.query0, len(tile.q), "tab:green", "queries")
    _outline(axes, tile.key0, len(tile.k), "tab:purple", "keys")
    axes.set_title("generated image", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    axes.set_xticks([])
    axes.set_yticks([])

    axes = grid[0, 1]
    drawn = axes.imshow(np.maximum(tile.p, 1) / 2**15, cmap="magma", aspect="auto",
                        norm=colors.LogNorm(2.0**-15, 1))
    sheet.colorbar(drawn, ax=axes, label="P' (1 = row maximum)")
    axes.set_title(f"unnormalized probabilities P'\n"
                   f"step {tile.step}, layer {tile.layer}, head {tile.head}", fontsize=9)
    axes.set_xlabel("key")
    axes.set_ylabel("query")

    grid[1, 0].axis("off")
    grid[1, 0].legend(handles=[patches.Patch(color=kinds(value), label=label)
                               for value, label in enumerate(("pruned", "6-bit (LP)",
                                                              "12-bit (HP)"))],
                      loc="center", fontsize=9)
    for axes, view in zip((grid[0, 2], grid[1, 1], grid[1, 2]), views, strict=True):
        axes.imshow(view.high * 2 + view.low, cmap=kinds, vmin=0, vmax=2, aspect="auto",
                    interpolation="nearest")
        axes.set_title(f"{view.title}: {view.cost:.3f} of dense 12-bit\n"
                       f"mass lost {view.lost:.2%}, demoted from HP {view.demoted:.0%}",
                       fontsize=9)
        axes.set_xlabel("key")
        axes.set_ylabel("query")
    with writing_whole(path) as temporary:
        sheet.savefig(temporary, dpi=110)
