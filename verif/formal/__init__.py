"""Formal properties of the control blocks: each module has a list ``PROOFS``.

See :mod:`gen.proofs` for what a proof is and :mod:`gen.formal` for how it is run.
"""
