"""Dumps of many ranks, and a Ray cluster of two nodes to compare them on."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

STAMP_KEYS = ("started", "seconds", "options", "path", "reports", "summary", "messages", "html")


def leaf(values: np.ndarray, data_name: str = "") -> dict[str, Any]:
    """The record of a tensor, with statistics worked out by NumPy in float64."""
    wide = values.astype(np.float64)
    out = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(values.shape),
        "Max": float(wide.max()),
        "Min": float(wide.min()),
        "Mean": float(wide.mean()),
        "Norm": float(np.sqrt((wide**2).sum())),
        "requires_grad": False,
    }
    return out | ({"data_name": data_name} if data_name else {})


def write_rank(folder: Path, rank: int, *, entries: int, wrong: int = -1, side: int = 0, elements: int = 0) -> None:
    """A rank of a dump: a chain of calls, one of them wrong on side 1; tensor files when `elements` > 0."""
    rng = np.random.default_rng(rank)
    data: dict[str, Any] = {}
    path = folder / f"rank{rank}"
    path.mkdir(parents=True)
    for i in range(entries):
        values = rng.standard_normal((elements or 6,)).astype(np.float32)
        if side and i == wrong:
            values = values * np.float32(1.5)
        name = f"Functional.relu.{i}.forward"
        file = f"{name}.output.0.npy" if elements else ""
        if file:
            (path / "dump_tensor_data").mkdir(exist_ok=True)
            np.save(path / "dump_tensor_data" / file, values)
        data[name] = {"input_args": [], "input_kwargs": {}, "output": [leaf(values, file)]}
    task = "tensor" if elements else "statistics"
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (path / "dump.json").write_text(json.dumps({**head, "data": data}))


def write_pair(folder: Path, ranks: int, **kwargs: Any) -> tuple[Path, Path]:
    """Target and golden step folders; rank r is wrong at call r + 1."""
    for side, name in ((1, "target"), (0, "golden")):
        for rank in range(ranks):
            write_rank(folder / name, rank, wrong=rank + 1, side=side, **kwargs)
    return folder / "target", folder / "golden"


def run(*args: str, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command of the Python package, as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "msprobe", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def compare(cwd: Path, out: str, *args: str) -> int:
    """Compare `target` with `golden` of a folder; the exit status."""
    done = run("compare", "-tp", "target", "-gp", "golden", "-o", out, "-q", *args, cwd=cwd)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode


def tables(folder: Path) -> dict[str, bytes]:
    """Every csv of a folder, by its name without the time."""
    out = {}
    for path in sorted(folder.glob("*.csv")):
        stem, _, _ = path.stem.rpartition("_")
        out[stem] = path.read_bytes()
    return out


def summary(folder: Path, kind: str = "compare") -> dict[str, Any]:
    """The summary without times, options and paths."""
    (path,) = folder.glob(f"{kind}_summary_*.json")
    document = json.loads(path.read_text())
    for rank in document.get("ranks", []):
        for key in ("reports", "report"):
            if isinstance(rank, dict):
                rank.pop(key, None)
    return {k: v for k, v in document.items() if k not in STAMP_KEYS}


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a csv."""
    with path.open(newline="", encoding="utf-8-sig") as f:
        return list(csv.DictReader(f))
