"""Blocks of the APT engine."""
