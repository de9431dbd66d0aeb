"""Studies on real attention: what codecs, placements and windows cost. Imports NumPy alone."""
