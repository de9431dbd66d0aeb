"""Bit-exact NumPy models, parameters and the diffusion transformer that Tilewright is tested on."""

__all__ = ["__version__"]

__version__ = "0.1.0"
