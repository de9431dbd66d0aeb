"""cocotb benches and formal proofs: ``python -m verif --help``."""
