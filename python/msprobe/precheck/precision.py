"""Copies of the arguments for the two calls: device in the recorded dtypes, reference in raised ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.precheck.devices import Device
from msprobe.precheck.dump import Record
from msprobe.precheck.inputs import Arguments, DeviceWord, collect

_HALF = (torch.float16, torch.bfloat16)
_RAISED = frozenset((torch.float16, torch.bfloat16, torch.float32))
_AUTOCAST_BY_OUTPUT = {f"torch.{n}": getattr(torch, n) for n in ("bfloat16", "float16", "float32", "float64")}
_KEPT_FLOAT32 = frozenset(("conv1d", "conv2d"))


@dataclass(frozen=True, slots=True)
class Precision:
    """What the reference computes in, and the device's autocast."""

    reference: torch.dtype | None  # None: as recorded
    autocast: torch.dtype | None  # None: off


def choose_precision(arguments: Arguments, forward: dict[str, Record], *, always_f64: bool) -> Precision:
    """From the dtypes of the arguments and of the first recorded output (precheck.md 6.2)."""
    dtypes = {t.dtype for t in arguments.tensors() if t.dtype in _RAISED}
    if not dtypes:
        return Precision(None, None)
    lower = [d for d in dtypes if d != torch.float32]
    autocast: torch.dtype | None = None
    if len(dtypes) == 1:
        own = next(iter(dtypes))
        reference = torch.float64 if own == torch.float32 else torch.float32
        output = _first_output(forward)
        if output is not None and output != own:
            autocast = output
    else:
        reference = torch.float32
        autocast = sorted(lower, key=str)[0]
    if always_f64:
        reference = torch.float64
    return Precision(reference, autocast if autocast in _HALF else None)


def _first_output(forward: dict[str, Record]) -> torch.dtype | None:
    output = forward.get("output")
    first = output[0] if isinstance(output, list) and output else None
    return _AUTOCAST_BY_OUTPUT.get(str(first.get("dtype"))) if isinstance(first, dict) else None


@dataclass(slots=True)
class Copy:
    """Arguments of one call, with the leaves whose gradients are asked for afterwards."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    positional: list[torch.Tensor | None] = field(
        default_factory=list
    )  # leaf per positional tensor or value, depth first
    keyword: list[torch.Tensor | None] = field(default_factory=list)


class Copier:
    """Copies arguments so that in-place operators leave the originals alone and gradients arrive at leaves."""

    def __init__(
        self,
        convert: Callable[[torch.Tensor], torch.Tensor],
        device_word: str | None,
        wants_grad: set[int],
        *,
        backward: bool,
    ) -> None:
        """`device_word`: what a recorded device becomes; None drops it."""
        self._convert = convert
        self._device_word = device_word
        self._wants_grad = wants_grad
        self._backward = backward

    def copy(self, arguments: Arguments) -> Copy:
        """A copy of all arguments."""
        out = Copy()
        out.args = [self._value(v, out.positional) for v in arguments.args]
        for key, value in arguments.kwargs.items():
            if key == "device" and value is not None and self._device_word is None:
                continue
            out.kwargs[key] = self._value(value, out.keyword)
        return out

    def _value(self, value: Any, leaves: list[torch.Tensor | None]) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, leaves)
        if isinstance(value, list):
            return [self._value(v, leaves) for v in value]
        if isinstance(value, dict):
            return {k: self._value(v, leaves) for k, v in value.items()}
        if isinstance(value, DeviceWord):
            return torch.device(self._device_word or "cpu")
        return value

    def _tensor(self, tensor: torch.Tensor, leaves: list[torch.Tensor | None]) -> torch.Tensor:
        copy = self._convert(tensor)
        if copy is tensor:
            copy = tensor.clone()
        if not (self._backward and id(tensor) in self._wants_grad):
            leaves.append(None)
            return copy
        copy.requires_grad_(True)
        leaves.append(copy)
        return copy.clone()  # no leaf: in-place operators accept it


def device_copier(device: Device, arguments: Arguments, *, backward: bool) -> Copier:
    """For the device call, and with the CPU as device for the baseline."""
    return Copier(device.to, device.name, arguments.wants_grad, backward=backward)


def reference_copier(
    name: str, precision: Precision, arguments: Arguments, *, base: bool, hf32: bool, backward: bool
) -> Copier:
    """For the reference call on the CPU. Base rules leave complex tensors as recorded."""
    raised = precision.reference

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        if str(tensor.dtype).startswith("torch.float8"):
            return tensor.to(torch.float32)
        if tensor.dtype == torch.complex64 and not base:
            return tensor.to(torch.complex128)
        if raised is None or tensor.dtype not in _RAISED or name == "type_as":
            return tensor
        if hf32 and name in _KEPT_FLOAT32 and tensor.dtype == torch.float32:
            return tensor
        return tensor.to(raised)

    return Copier(convert, None, arguments.wants_grad, backward=backward)


def raise_gradient(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """A gradient in the dtype of the raised output it starts from."""
    return gradient.to(output.dtype)


def largest_rms(tensors: list[torch.Tensor]) -> float:
    """The root mean square of the floating tensor where it is largest; 0 when none is finite."""
    largest = 0.0
    for t in tensors:
        if not t.is_floating_point() or t.numel() == 0:
            continue
        rms = float(torch.linalg.vector_norm(t.detach().reshape(-1), dtype=torch.float64)) / t.numel() ** 0.5
        if rms > largest and rms != float("inf"):
            largest = rms
    return largest


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, depth first."""
    out: list[torch.Tensor] = []
    collect(value, out)
    return out
