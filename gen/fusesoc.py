"""FuseSoC core description (CAPI 2) of an emitted design, made from its manifest."""

import json


__all__ = ["core_text"]

_TEMPLATE = """\
CAPI=2:

name: {name}
description: {description}

filesets:
  rtl:
    files:
      - {verilog}
    file_type: verilogSource-2005
  manifest:
    files:
      - {manifest}
    file_type: user

targets:
  default:
    filesets: [rtl, manifest]
    toplevel: {top}
  lint:
    filesets: [rtl]
    toplevel: {top}
    description: {lint}
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wno-fatal]
"""


def core_text(facts):
    """Text of the ``.core`` file of a design; ``facts`` is what :func:`gen.verilog.manifest` made.

    The core is named ``tilewright:<engine>:<design>:<version>``. Its default target is the Verilog
    with its top level and the manifest, for other cores to depend on; the target ``lint`` runs
    Verilator. The text is a function of the manifest alone.
    """
    top = facts["top"]
    return _TEMPLATE.format(
        name=f"tilewright:{facts['engine']}:{top}:{facts['tools']['tilewright']}",
        description=json.dumps(facts["summary"]),  # a JSON string is a YAML string
        verilog=f"{top}.v", manifest=f"{top}.json", top=top,
        lint=json.dumps(f"Lint {top} with Verilator"))
