"""Liberty files that the repository carries, and the commands that rebuild them."""

import pathlib


__all__ = ["SKY130_AREA"]

#: Areas and functions of SkyWater's high-density cells, without timing or power.
SKY130_AREA = pathlib.Path(__file__).with_name("sky130_fd_sc_hd_area.lib")
