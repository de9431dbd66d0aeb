"""The serial dataflow of the APT engine: a small processor, its program, and its multipliers."""
