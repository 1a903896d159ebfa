"""Statistics of accelerator tensors by reductions on the device: queued when described, fetched in batches.

The results of one tensor are a float64 vector `[max, min, sum, norm, nan, inf, finite max, finite min]`, or for
integers and bool an int64 vector `[max, min]` and a float64 vector `[sum, norm]`. Max and Min are exact, Mean and Norm
come from float64 sums: they agree with those of host memory to a relative 1e-12 (1e-6 on devices without float64).
"""

from __future__ import annotations

import math
from typing import Any

import torch

_FLOAT8 = {getattr(torch, n) for n in dir(torch) if n.startswith("float8_")}
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_COMPLEX = {torch.complex64, torch.complex128}
_NO_FLOAT64 = {"mps", "npu"}

# (kind, number of elements, rank zero, float vector, integer vector or None)
Results = tuple[str, int, bool, torch.Tensor, "torch.Tensor | None"]


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type in _NO_FLOAT64 else torch.float64


def _floats(x: torch.Tensor) -> torch.Tensor:
    wide = _wide(x.device)
    if x.dtype in _FLOAT8:
        x = x.to(torch.float32)
    low, high = torch.aminmax(x)
    finite = torch.isfinite(x)
    norm = torch.linalg.vector_norm(x, dtype=wide)
    inside_low = torch.where(finite, x, math.inf).amin()
    inside_high = torch.where(finite, x, -math.inf).amax()
    parts = (high, low, x.sum(dtype=wide), norm, torch.isnan(x).sum(), torch.isinf(x).sum(), inside_high, inside_low)
    return torch.stack([p.to(wide) for p in parts])


def _reduce(tensor: torch.Tensor) -> Results | None:
    x = tensor.detach()
    if x.layout != torch.strided or x.is_quantized or x.numel() == 0 or x.device.type == "meta":
        return None
    shape = (x.numel(), x.dim() == 0)
    if x.dtype in _INTEGERS:
        wide = _wide(x.device)
        y = x.to(torch.uint8) if x.dtype == torch.bool else x
        low, high = torch.aminmax(y)
        sums = torch.stack([y.sum(dtype=wide), torch.linalg.vector_norm(y.to(wide))])
        kind = "bool" if x.dtype == torch.bool else "int"
        return (kind, *shape, sums, torch.stack([high.to(torch.int64), low.to(torch.int64)]))
    if x.dtype in _COMPLEX:
        return ("float", *shape, _floats(x.resolve_conj().abs()), None)
    if x.dtype in _FLOATS or x.dtype in _FLOAT8:
        return ("float", *shape, _floats(x), None)
    return None


def reduce(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bool, Results] | None:
    """Queue the reductions of a tensor; None: it is of a kind that has none."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        results = _reduce(tensor)
        if results is None:
            return None
        return str(tensor.dtype), tuple(int(n) for n in tensor.shape), bool(tensor.requires_grad), results


def _fetched(vectors: list[torch.Tensor]) -> list[list[Any]]:
    """One copy per device, type and length, whatever the number of vectors."""
    groups: dict[Any, list[int]] = {}
    for i, vector in enumerate(vectors):
        groups.setdefault((vector.device, vector.dtype, len(vector)), []).append(i)
    found: list[list[Any]] = [[]] * len(vectors)
    for places in groups.values():
        rows = torch.stack([vectors[i] for i in places]).cpu().tolist()
        for i, row in zip(places, rows, strict=True):
            found[i] = row
    return found


def _statistics(results: Results, floats: list[float], integers: list[int]) -> tuple[Any, ...]:
    kind, count, rank_zero, _, _ = results
    if kind == "bool":
        return bool(integers[0]), bool(integers[1]), None, None, 0, 0, None, None
    if kind == "int":
        return integers[0], integers[1], floats[0] / count, floats[1], 0, 0, None, None
    high, low, total, norm, nan, inf, inside_high, inside_low = floats
    if nan:
        high = low = total = norm = math.nan
    some = bool(nan + inf) and nan + inf < count
    finite = (inside_high, inside_low) if some else (None, None)
    return high, low, total / count, abs(high) if rank_zero else norm, int(nan), int(inf), *finite


def fetch(batch: list[Results]) -> list[tuple[Any, ...]]:
    """The statistics of all tensors of a batch; None for what there is not."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        vectors = [r[3] for r in batch] + [r[4] for r in batch if r[4] is not None]
        rows = _fetched(vectors)
        integers = iter(rows[len(batch) :])
        return [_statistics(r, rows[i], next(integers) if r[4] is not None else []) for i, r in enumerate(batch)]
