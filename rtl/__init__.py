"""Synthesizable Amaranth components. From :mod:`golden` they take parameters and tables only."""
