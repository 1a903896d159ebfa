"""Running a piece of code under a fresh debugger and reading what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msprobe.pytorch import PrecisionDebugger


class Dump:
    """One step of one rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = json.loads((folder / "dump.json").read_text())
        self.data: dict[str, Any] = self.header["data"]
        self.construct = json.loads((folder / "construct.json").read_text())
        stacks = json.loads((folder / "stack.json").read_text())
        self.stack = {name: lines for names, lines in stacks.values() for name in names}

    @property
    def names(self) -> list[str]:
        return list(self.data)

    @property
    def calls(self) -> list[str]:
        """Bare names of the API forward entries, in order: "__add__"."""
        return [n.split(".")[-3] for n in self.data if n.endswith(".forward")]


def write_config(folder: Path, level: str, **settings: Any) -> str:
    """A config.json; `section` holds the keys of the task section, everything else is at the top."""
    task = settings.pop("task", "statistics")
    section = {"scope": [], "list": [], "data_mode": ["all"], **settings.pop("section", {})}
    config = {
        "task": task,
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
        "level": level,
        "risk_level": "ALL",
        task: section,
        **settings,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def read_step(folder: Path, step: int = 0) -> Dump:
    return Dump(folder / "dump" / f"step{step}" / "rank")


@contextmanager
def debugger(folder: Path, level: str, **settings: Any):
    """A debugger of its own, forgotten at the end."""
    PrecisionDebugger.reset()
    try:
        yield PrecisionDebugger(config_path=write_config(folder, level, **settings))
    finally:
        PrecisionDebugger.reset()


def record(folder: Path, level: str, run: Callable[[], Any], model: Any = None, **settings: Any) -> Dump:
    """What `run` leaves in the dump of one step."""
    with debugger(folder, level, **settings) as tool:
        tool.start(model)
        try:
            run()
        finally:
            tool.stop()
        tool.step()
    return read_step(folder)
