"""What is asked of a device: reductions, and copies to the host. Queued when a tensor is described, fetched in batches.

The results of one tensor are a float64 vector `[max, min, sum, norm, nan, inf, finite max, finite min]`, or for
integers and bool an int64 vector `[max, min]` and a float64 vector `[sum, norm]`. Max and Min are exact, Mean and Norm
come from float64 sums: they agree with those of host memory to a relative 1e-12 (1e-6 on devices without float64).

Copies serve what needs the bytes: checksums, hashes, sketches, files. They go to page-locked memory, so that the host
does not wait for them; one synchronisation of the device per batch makes them readable.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from msprobe.pytorch import _leaf, _storage

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


# Devices on which something was queued since the last fetch.
_pending: set[torch.device] = set()

# (dtype, shape, requires_grad, bytes of host memory, results or host memory)
Asked = tuple[str, tuple[int, ...], bool, int, Any]


def _answer(tensor: torch.Tensor, size: int, asked: Any) -> Asked:
    return str(tensor.dtype), tuple(int(n) for n in tensor.shape), bool(tensor.requires_grad), size, asked


def reduce(tensor: torch.Tensor) -> Asked | None:
    """Queue the reductions of a tensor; None: it is of a kind that has none."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        results = _reduce(tensor)
        if results is None:
            return None
        _pending.add(tensor.device)
        return _answer(tensor, 0, results)


def _host_memory(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu":
        try:
            return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True)
        except RuntimeError:
            pass  # nothing to lock pages with: the copy waits for the device then
    return torch.empty(x.shape, dtype=x.dtype, device="cpu")


def _start_copy(host: torch.Tensor, x: torch.Tensor) -> None:
    host.copy_(x, non_blocking=True)


def copy(tensor: torch.Tensor) -> Asked | None:
    """Queue a copy of a tensor's elements to the host, row by row; None: it is of a kind that has no plain ones."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return None
        x = tensor.detach()
        if x.layout != torch.strided or x.is_quantized or x.numel() == 0 or x.device.type == "meta":
            return None
        if _storage.is_freed(x):
            return None
        _pending.add(x.device)
        host = _host_memory(x)
        _start_copy(host, x.resolve_conj().resolve_neg())
        return _answer(tensor, host.numel() * host.element_size(), host)


def _synchronise(device: torch.device) -> None:
    """Wait until everything that was queued on the device, on whatever stream, is done."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


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


def _memory(host: torch.Tensor) -> Any:
    if _leaf.has_exchange:
        return host
    return (host.data_ptr(), tuple(host.shape), tuple(host.stride()), str(host.dtype), host)


def fetch(batch: list[Results | torch.Tensor]) -> list[tuple[Any, ...] | torch.Tensor]:
    """What was asked for, once it is there: the statistics of a tensor, None for what there is not, or host memory."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        for device in _pending.copy():
            _synchronise(device)
        _pending.clear()
        reduced = [r for r in batch if isinstance(r, tuple)]
        vectors = [r[3] for r in reduced] + [r[4] for r in reduced if r[4] is not None]
        rows = _fetched(vectors)
        floats, integers = iter(rows[: len(reduced)]), iter(rows[len(reduced) :])
        return [
            _statistics(r, next(floats), next(integers) if r[4] is not None else [])
            if isinstance(r, tuple)
            else _memory(r)
            for r in batch
        ]
