"""Whole heads on the engine's Verilog: a C++ harness with a memory model, driven from Python."""
