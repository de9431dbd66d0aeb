"""Benches of the APT blocks."""
