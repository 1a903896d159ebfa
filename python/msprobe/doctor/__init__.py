"""`msprobe doctor`: this machine, and what will and will not be collected of a script or model.

Nothing here imports torch; that happens in processes of their own.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from msprobe.doctor.findings import Findings

FORMAT_VERSION = 1
_DONE, _FAILED, _INTERRUPTED = 0, 1, 130


def main(options_json: str) -> int:
    """Run the command with checked options and return its exit status (0 nothing in the way, 1 something is)."""
    options = json.loads(options_json)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        if options["debug"]:
            traceback.print_exc()
        text = f"{type(error).__name__}: {error}; this is a fault of msprobe; please report it"
        print(f"msprobe: error: doctor: {text}", file=sys.stderr)
        return _FAILED


def _run(options: dict[str, Any]) -> int:
    from msprobe.doctor import collection, environment

    findings = Findings()
    wants_torch = bool(options["script"] or options["model"])
    facts = environment.look(findings, options["build"], wants_torch)
    answer: dict[str, Any] = {"format_version": FORMAT_VERSION, "command": "doctor", "environment": facts}
    answer |= collection.look(findings, options)
    answer |= {"findings": findings.as_json(), "counts": findings.counts()}
    if options["json"]:
        print(json.dumps(answer, indent=1, ensure_ascii=True, allow_nan=False))
    elif not options["quiet"]:
        print(findings.as_text(), end="")
    counts = ", ".join(f"{state} {number}" for state, number in findings.counts().items())
    sys.stdout.flush()
    print(f"msprobe: doctor: {counts}", file=sys.stderr)
    return _FAILED if findings.counts()["problem"] else _DONE
