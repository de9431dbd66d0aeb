"""Cells of FPGAs that synthesis does not find on its own: Yosys steps, and the files they read.

``PACKED_PRODUCTS`` puts :class:`rtl.apt.mul6x2.PackedProduct` into ECP5 multipliers with the
block's own registers. Amaranth gives a submodule's ports names of its own choice, so the product
is found by what it is made of (``extract``), within the modules of its name.
"""

import pathlib


__all__ = ["FILES", "PACKED_PRODUCTS"]

#: Name and text of the files that the steps read.
FILES = {path.name: path.read_text() for path in
         sorted(pathlib.Path(__file__).parent.glob("*.v"))}

_MODULES = "*.packed_product_*"

#: Steps for a design that has been checked and not been flattened; they leave one without packed
#: products as it is. Amaranth's ``$signed(x)`` is extended to the width of the product, and its
#: registers have initial values; both would be in the way.
PACKED_PRODUCTS = (
    f"wreduce {_MODULES}", f"setattr -unset init {_MODULES}/w:*",
    f"extract -map packed_product.v {_MODULES}", "techmap -map ecp5_mul.v",
)
