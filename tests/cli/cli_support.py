"""Helpers of these tests: the command under test, and small dumps."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def executable() -> list[str]:
    """The command under test: $MSPROBE_BIN, the release build, or the installed console script."""
    given = os.environ.get("MSPROBE_BIN")
    if given:
        return [os.path.abspath(given)]
    built = ROOT / "build" / "release" / "src" / "cli" / "msprobe"
    if built.exists():
        return [str(built)]
    script = shutil.which("msprobe", path=os.path.dirname(sys.executable))
    return [script] if script else [sys.executable, "-m", "msprobe"]


@dataclass
class Run:
    """What one command did."""

    status: int
    out: str
    err: str
    cwd: Path

    def errors(self) -> list[str]:
        """The error lines, without their prefix."""
        return [line.removeprefix("msprobe: error: ") for line in self.err.splitlines() if "msprobe: error: " in line]

    def files(self, folder: str = "out") -> list[str]:
        """Names under `folder` but pages for people (compare_report_*.html), sorted; empty when it was not made."""
        root = self.cwd / folder
        if not root.exists():
            return []
        names = (str(p.relative_to(root)) for p in root.rglob("*"))
        return sorted(name for name in names if not name.startswith("compare_report_"))


def tensor(**changes: Any) -> dict[str, Any]:
    """A leaf of a statistics dump."""
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2, 3],
        "Max": 1.0,
        "Min": -1.0,
        "Mean": 0.25,
        "Norm": 2.0,
        "requires_grad": False,
    }
    return leaf | changes


def entry(*inputs: Any, output: Sequence[Any]) -> dict[str, Any]:
    """An API call of a dump."""
    return {"input_args": list(inputs), "input_kwargs": {}, "output": list(output)}


def dump(data: Any, **changes: Any) -> dict[str, Any]:
    """A whole dump.json. A change to None removes the key."""
    whole = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    whole |= changes
    return {key: value for key, value in whole.items() if value is not None or key == "dump_data_dir"}


def write_json(path: Path, value: Any) -> Path:
    """Write JSON, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def ok_dump() -> dict[str, Any]:
    """Two calls whose statistics are unremarkable."""
    return dump(
        {
            "Torch.add.0.forward": entry(tensor(), tensor(), output=[tensor(Max=2.0)]),
            "Torch.mul.0.forward": entry(tensor(), {"type": "int", "value": 3}, output=[tensor(Max=3.0)]),
        }
    )
