"""Arithmetic shared by the models of every engine. Integers only; imports NumPy alone."""
