"""Arithmetic, memories and streams shared by every engine."""
