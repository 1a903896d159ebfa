"""Replay of recorded APIs: every call of a dump on a device and, in higher precision, on the CPU.

Started by the command line (`msprobe acc_check`, `msprobe -f pytorch run_ut` and their multi forms). Importing this
package does not import torch; its modules do.
"""

from __future__ import annotations

import json
import sys

_REFUSED = 2


def main(options_json: str) -> int:
    """Run a command with checked options and return its exit status; says so when PyTorch is not there."""
    try:
        from msprobe.precheck import run
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("torch", "numpy"):
            raise
        command = json.loads(options_json)["command"]
        text = f"{command} needs PyTorch and NumPy, and {error.name} cannot be imported: {error}"
        hint = f"install it into the environment of {sys.executable}"
        print(f"msprobe: error: {text}; {hint}", file=sys.stderr)
        return _REFUSED
    return run.main(options_json)
