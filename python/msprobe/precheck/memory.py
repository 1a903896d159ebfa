"""How much memory a call needs, worked out from its records before anything is allocated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from msprobe.precheck.dump import Call, Record

MOST_ELEMENTS = 1 << 62  # more than any tensor can have
_DEEPEST = 400
_HALVES = ("float16", "bfloat16", "float8")
_CGROUP = "/sys/fs/cgroup/memory.max"


def elements(shape: Any) -> int:
    """Elements of a recorded shape: at most MOST_ELEMENTS, whatever it says; 0 for what is no shape."""
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        return 0
    if 0 in shape:
        return 0
    count = 1
    for n in shape:
        count *= n
        if count >= MOST_ELEMENTS:
            return MOST_ELEMENTS
    return count


def tensor_records(value: Record, depth: int = 0) -> Iterator[dict[str, Record]]:
    """The records of tensors in an entry, however they are nested."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for v in value:
            yield from tensor_records(v, depth + 1)
    elif isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            yield value
            return
        for v in value.values():
            yield from tensor_records(v, depth + 1)


def item_sizes(dtype: Any) -> tuple[int, int]:
    """Bytes of an element as recorded, and in the precision of the reference."""
    name = str(dtype).removeprefix("torch.")
    kind = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(kind, torch.dtype):
        return 8, 8
    own = kind.itemsize
    if name.startswith(_HALVES):
        return own, 4
    if kind.is_complex:
        return own, min(2 * own, 16)
    return own, 8 if kind.is_floating_point else own


def needed_bytes(call: Call, *, on_cpu: bool, always_f64: bool) -> int:
    """Bytes of the arguments, results and gradients that were recorded, on this machine.

    Each is there as recorded and in the precision of the reference; once more when the device is the CPU.
    """
    total = 0
    for entry in (call.forward, call.backward):
        for record in tensor_records(entry):
            own, reference = item_sizes(record["dtype"])
            each = own * (2 if on_cpu else 1) + (max(reference, 8) if always_f64 else reference)
            total += elements(record["shape"]) * each
    return total


def machine_bytes() -> int:
    """Memory of this machine, or of the container when that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(_CGROUP, encoding="ascii") as f:
            text = f.read().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total


def shown(size: int) -> str:
    """A size in MiB, for people."""
    return f"{size / (1 << 20):,.0f} MiB"
