"""The seeded faults of tests/data/precheck/faults.yaml as a --candidate: one function for all of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml

FAULTS = yaml.safe_load(
    (Path(__file__).resolve().parents[1] / "data" / "precheck" / "faults.yaml").read_text(encoding="utf-8")
)["faults"]


class _Kept(torch.autograd.Function):
    """Another value, the gradient as it was."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class _Sent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, fn: Any) -> torch.Tensor:
        ctx.fn = fn
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.fn(gradients[0]), None


def ulps(tensor: torch.Tensor, n: int) -> torch.Tensor:
    """Moved n representable values away from zero."""
    value = tensor.detach()
    far = torch.where(value >= 0, math.inf, -math.inf).to(value.dtype)
    for _ in range(n):
        value = torch.nextafter(value, far)
    return _Kept.apply(tensor, value)  # type: ignore[no-untyped-call, no-any-return]


def every(tensor: torch.Tensor, k: int, fn: Any) -> torch.Tensor:
    """The function applied to every k-th element; k = 0: to the middle one."""
    flat = tensor.reshape(-1).clone()
    where = slice(flat.numel() // 2, flat.numel() // 2 + 1) if k == 0 else slice(None, None, k)
    flat[where] = fn(flat[where])
    return flat.reshape(tensor.shape)


def via(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To the dtype and back."""
    return tensor.to(dtype).to(tensor.dtype)


def grad(tensor: torch.Tensor, fn: Any) -> torch.Tensor:
    """Its gradient sent through the function."""
    return _Sent.apply(tensor, fn)  # type: ignore[no-untyped-call, no-any-return]


SCOPE = {"torch": torch, "F": F, "math": math, "ulps": ulps, "every": every, "via": via, "grad": grad}
INJECT = {fault["api"]: eval(fault["inject"], dict(SCOPE)) for fault in FAULTS}


def faulty(name: str, real: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The fault of that call, or the call itself."""
    return INJECT[name](real, *args, **kwargs) if name in INJECT else real(*args, **kwargs)


def clean(name: str, real: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The call itself."""
    return real(*args, **kwargs)
