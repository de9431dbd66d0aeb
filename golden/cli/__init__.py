"""Command line: what ``golden``, ``gen``, ``verif`` and ``fpga`` share, and golden's own."""
