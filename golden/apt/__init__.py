"""Models of APT's blocks. Integers only; imports NumPy alone."""
