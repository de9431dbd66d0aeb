"""A small diffusion transformer with real weights: forward pass, sampler and Q/K/V capture."""
