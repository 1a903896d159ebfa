"""From two results to rows: pairs outputs by structure and has the core judge each pair."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import _core
from msprobe.precheck.precision import flat_tensors

_NO_VALUE = "reference output is None"


def host(tensor: torch.Tensor) -> torch.Tensor:
    """Plain contiguous values in CPU memory."""
    t = tensor.detach()
    if t.layout != torch.strided:
        t = t.to_dense()
    if t.is_quantized:
        t = t.int_repr()
    return t.cpu().contiguous().resolve_conj().resolve_neg()


def raw(tensor: torch.Tensor) -> tuple[int, str, list[int]]:
    """What the core reads: address, dtype, shape. The tensor must outlive the use."""
    return tensor.data_ptr(), str(tensor.dtype), list(tensor.shape)


@dataclass(slots=True)
class Context:
    """What the rules know of a call beside its outputs."""

    name: str  # bare
    float8_input: bool
    old_standard: bool
    q_rules: bool
    scale: float = 0.0
    input_elements: int = 1
    amplifies: bool = False
    gradient: bool = False
    corrected: bool = False  # tolerances of small 16-bit values


def rows_of(context: Context, prefix: str, bench: Any, device: Any, baseline: Any) -> list[_core.PrecheckRow]:
    """A row for each output, named prefix.0 and so on."""
    out: list[_core.PrecheckRow] = []
    for b, d, t, problem in _pairs(bench, device, baseline):
        row = _core.PrecheckRow(f"{prefix}.{len(out)}")
        if problem:
            row.status, row.message = "error", problem
        else:
            _judge(context, row, b, d, t)
        out.append(row)
    return out


def _pairs(bench: Any, device: Any, baseline: Any) -> Iterator[tuple[Any, Any, Any, str]]:
    """Leaves of two structures side by side: reference, device, baseline, and what is wrong when they do not pair."""
    if isinstance(bench, (list, tuple)) and isinstance(device, (list, tuple)) and not isinstance(bench, torch.Size):
        if len(bench) != len(device):
            yield bench, device, None, f"structure: the reference has {len(bench)} outputs, the device {len(device)}"
        same = isinstance(baseline, (list, tuple)) and len(baseline) == len(bench)
        for i, (b, d) in enumerate(zip(bench, device, strict=False)):
            yield from _pairs(b, d, baseline[i] if same else None)
    elif isinstance(bench, dict) and isinstance(device, dict):
        if list(bench) != list(device):
            yield bench, device, None, "structure: the keys of the two results differ"
            return
        for key, b in bench.items():
            yield from _pairs(b, device[key], baseline.get(key) if isinstance(baseline, dict) else None)
    else:
        yield bench, device, baseline, ""


def _judge(context: Context, row: _core.PrecheckRow, bench: Any, device: Any, baseline: Any) -> None:
    if bench is None and device is None:
        row.status, row.message = "SKIP", _NO_VALUE
        return
    if isinstance(bench, torch.Tensor) and isinstance(device, torch.Tensor):
        _judge_tensors(context, row, bench, device, baseline)
        return
    if type(bench) is not type(device):
        row.status = "error"
        row.message = f"structure: the reference is a {type(bench).__name__}, the device gave a {type(device).__name__}"
        return
    row.set_kinds(str(type(bench)), str(type(device)), " ")
    if isinstance(bench, float) and bench != device:
        # The reference is more precise: numbers that left the tensors are judged as such.
        one = torch.tensor(bench, dtype=torch.float64)
        other = torch.tensor(device, dtype=torch.float64)
        judge = _core.PrecheckJudge(context.name, False, context.old_standard, False)
        judge(row, raw(one), raw(other), None, str(type(bench)), str(type(device)))
        return
    if isinstance(bench, (bool, int, float, str, torch.Size, torch.dtype, torch.device)):
        if bench == device:
            row.set_equal()
            row.status = "pass"
        else:
            row.status, row.message = "error", f"values differ: reference {bench!r}, device {device!r}"
        return
    row.status, row.message = "error", f"structure: a {type(bench).__name__} cannot be compared"


def _judge_tensors(
    context: Context, row: _core.PrecheckRow, bench: torch.Tensor, device: torch.Tensor, baseline: Any
) -> None:
    b, d = host(bench), host(device)
    if context.float8_input and d.dtype == torch.float32:
        d = d.to(torch.float16)
    t = host(baseline) if isinstance(baseline, torch.Tensor) and baseline.shape == device.shape else None
    judge = _core.PrecheckJudge(
        context.name,
        context.float8_input,
        context.old_standard,
        context.q_rules,
        context.scale,
        max(1.0, context.input_elements / max(1, d.numel())),
        context.amplifies,
        context.gradient,
        context.corrected,
    )
    # A baseline of other values would be no yardstick for this reference.
    judge(row, raw(b), raw(d), raw(t) if t is not None else None, str(b.dtype), str(d.dtype))


def dropout_rows(context: Context, prefix: str, bench: Any, device: Any) -> list[_core.PrecheckRow]:
    """One row, by the share of zeros of the first tensors."""
    row = _core.PrecheckRow(f"{prefix}.0")
    first, second = flat_tensors(bench), flat_tensors(device)
    if not first or not second:
        row.status, row.message = "SKIP", _NO_VALUE
    elif first[0].shape != second[0].shape:
        row.status = "error"
        row.message = f"shapes differ, reference {tuple(first[0].shape)} and device {tuple(second[0].shape)}"
    else:
        b, d = host(first[0]), host(second[0])
        judge = _core.PrecheckJudge(context.name, False, context.old_standard, False)
        judge.dropout(row, raw(b), raw(d), str(b.dtype), str(d.dtype))
    return [row]


@contextlib.contextmanager
def quiet_warnings() -> Iterator[None]:
    """Warnings of torch about the replayed calls are not the user's."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
