"""What became of one replayed call."""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe import _core


@dataclass(slots=True)
class Outcome:
    """What became of one call."""

    name: str
    forward: str
    backward: str
    message: str = ""
    rows: list[_core.PrecheckRow] = field(default_factory=list)
    inputs: int | None = None  # checksum
    tool_failed: bool = False  # for technical reasons of the tool itself: a worker that died or hung
    baseline_rows: list[_core.PrecheckRow] = field(default_factory=list)  # the CPU in the recorded dtypes
    warning: str = ""  # for the user: error data that could not be saved


def skipped(name: str, reason: str) -> Outcome:
    """The outcome of a call that was not run."""
    row = _core.PrecheckRow(f"{name}.forward.output.0", "SKIP", reason)
    return Outcome(name, "SKIP", "SKIP", reason, [row])
