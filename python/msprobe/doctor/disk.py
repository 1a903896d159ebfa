"""How large a dump will be, from the entries of a trial, and whether it fits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.doctor.findings import Findings, size

_AREA = "Disk"
# A .pt file is a zip archive of five members, the largest of them padded to 64 bytes.
BYTES_PER_FILE = 1200
_ITEM_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass
class Size:
    """Of one step of one rank."""

    tensors: int = 0
    tensor_bytes: int = 0  # of their files
    json_bytes: int = 0

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return self.tensor_bytes + self.json_bytes


def leaves(value: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves below a value of dump.json."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)


def leaf_bytes(leaf: dict[str, Any]) -> int:
    """Bytes of the values of a tensor leaf."""
    name = str(leaf["dtype"]).removeprefix("torch.")
    count = 1
    for extent in leaf["shape"]:
        count *= int(extent)
    return count * _ITEM_SIZES.get(name, 1 if name.startswith("float8") else 4)


def one_step(entries: dict[str, Any], folder: Path, config: dict[str, Any]) -> Size:
    """The size of one step, with the task of the configuration; `folder` holds the trial's JSON files."""
    out = Size(json_bytes=sum(p.stat().st_size for p in folder.glob("*.json")))
    task = config.get("task") or "statistics"
    section = config.get(task) or {}
    wanted = section.get("tensor_list") or [] if task == "statistics" else None
    if task not in ("tensor", "statistics"):
        return out
    for name, entry in entries.items():
        if wanted is not None and not any(text in name for text in wanted):
            continue
        for leaf in leaves(entry):
            out.tensors += 1
            out.tensor_bytes += leaf_bytes(leaf) + BYTES_PER_FILE
    return out


def existing_parent(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def look_at_folder(findings: Findings, dump_path: str) -> int | None:
    """Say whether dumps can be written there; the free bytes, None when they cannot."""
    parent = existing_parent(Path(dump_path))
    if not parent.is_dir():
        findings.add(_AREA, "problem", f"dump_path {dump_path}: {parent} is no folder")
        return None
    if not os.access(parent, os.W_OK | os.X_OK):
        findings.add(_AREA, "problem", f"dump_path {dump_path}: no permission to write to {parent}")
        return None
    free = shutil.disk_usage(parent).free
    findings.add(_AREA, "ok", f"dump_path {dump_path}: can be written, {size(free)} free")
    return free


def number_of_steps(config: dict[str, Any], given: int) -> int | None:
    """Steps that will be recorded: what the user said, or the configuration's list; None when it is all of them."""
    if given:
        return given
    steps: set[int] = set()
    for item in config.get("step") or []:
        first, _, last = str(item).partition("-")
        steps.update(range(int(first), int(last or first) + 1))
    return len(steps) or None


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def look_at_size(findings: Findings, step: Size, free: int, steps: int | None, ranks: int) -> None:
    """Compare the expected size with what is free."""
    files = f", {step.tensors} tensor files" if step.tensors else ""
    findings.add(_AREA, "ok", f"one step of one rank: about {size(step.total)}{files}")
    room = free // max(1, step.total * ranks)
    if steps is None:
        state = "warning" if step.tensors or room < 10000 else "note"
        text = 'every step is recorded ("step" is empty), and '
        text += f"there is room for about {room} steps of {_many(ranks, 'rank')}"
        findings.add(_AREA, state, text, ['give "step": [0] to record one'] if state == "warning" else [])
        return
    need = step.total * steps * ranks
    text = f"{_many(steps, 'step')} of {_many(ranks, 'rank')}: about {size(need)} of {size(free)} that are free"
    state = "problem" if need > free else "warning" if need > free // 2 else "ok"
    more = [f"there is room for about {room} steps"] if state != "ok" else []
    findings.add(_AREA, state, text, more)
