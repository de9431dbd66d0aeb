"""A small diffusion transformer on real images: model, sampler, captures and attention tiles."""
