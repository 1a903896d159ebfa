"""What a wrong kernel makes of its result. Each function returns a change: (arguments, result) -> result."""

from __future__ import annotations

from typing import Any

import torch
from inject import Change
from torch.nn import functional as F

Arguments = tuple[Any, ...]


def relative(error: float) -> Change:
    """Everything too large by this factor."""
    return lambda args, y: y * (1 + error)


def noise(error: float, seed: int = 3) -> Change:
    """Every element off by about this relative error, in both directions."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return y * (1 + error * torch.randn(y.shape, generator=generator, dtype=torch.float32).to(y.dtype))

    return change


def element(error: float, at: float = 0.5) -> Change:
    """One element off by this many root mean squares."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        flat = y.reshape(-1)
        flat[int(at * (flat.numel() - 1))] += error * y.float().pow(2).mean().sqrt().to(y.dtype)
        return y

    return change


def value(what: float, at: float = 0.5) -> Change:
    """One element replaced."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        flat = y.reshape(-1)
        flat[int(at * (flat.numel() - 1))] = what
        return y

    return change


def lost(share: float) -> Change:
    """The last elements in memory were not written."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        flat = y.reshape(-1)
        flat[int((1 - share) * flat.numel()) :] = 0
        return y

    return change


def rolled(dim: int = -1) -> Change:
    """Elements one place further along an axis."""
    return lambda args, y: y.roll(1, dim)


def rounded(dtype: torch.dtype) -> Change:
    """The result went through a shorter type."""
    return lambda args, y: y.to(dtype).to(y.dtype)


def of_bias(args: Arguments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Operands and addend of mm, bmm, addmm and baddbmm."""
    if args[0].dim() == args[1].dim() and len(args) == 2:
        return args[0], args[1], None
    return args[1], args[2], args[0]


def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The matrix product with its addend."""
    y = torch.matmul(a, b)
    return y if bias is None else y + bias


def cut_operands(dtype: torch.dtype) -> Change:
    """A matrix product whose operands were cut to a shorter type."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, bias = of_bias(args)
        return product(a.to(dtype).float(), b.to(dtype).float(), bias).to(y.dtype)

    return change


def accumulate_in(dtype: torch.dtype, block: int = 1) -> Change:
    """A matrix product that keeps its running sum in a shorter type."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, bias = of_bias(args)
        total = torch.zeros(y.shape, dtype=dtype)
        for k in range(0, a.shape[-1], block):
            total = (total.float() + torch.matmul(a[..., k : k + block].float(), b[..., k : k + block, :].float())).to(
                dtype
            )
        return total.to(y.dtype) if bias is None else total.to(y.dtype) + bias

    return change


def without_last_term() -> Change:
    """A matrix product that leaves out the last term of each sum."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, bias = of_bias(args)
        return product(a[..., :-1], b[..., :-1, :], bias)

    return change


def without_bias() -> Change:
    """A linear layer that forgets its addend."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, _ = of_bias(args)
        return product(a, b, None)

    return change


def transposed() -> Change:
    """A square second operand taken the other way round."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, bias = of_bias(args)
        return product(a, b.transpose(-1, -2), bias)

    return change


def norm_eps(extra: float) -> Change:
    """Layer norm with another epsilon inside its kernel."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(args[0], args[1], args[2], args[3], args[4] + extra)

    return change


def norm_unbiased() -> Change:
    """Layer norm that divides the variance by n - 1."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        x = args[0]
        z: torch.Tensor = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + args[4])
        z = z * args[2] + args[3]
        return z

    return change


def tanh_gelu() -> Change:
    """Gelu by its tanh approximation."""
    return lambda args, y: F.gelu(args[0], approximate="tanh")


def sigmoid_gelu() -> Change:
    """Gelu as x sigmoid(1.702 x)."""
    return lambda args, y: args[0] * torch.sigmoid(1.702 * args[0])


def table_of(steps: int) -> Change:
    """A transcendental function read from a table with this many steps to one."""
    return lambda args, y: torch.round(y * steps) / steps


def softmax_without_last() -> Change:
    """Softmax whose denominator leaves out the last column."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        return y / y[..., :-1].sum(-1, keepdim=True).clamp_min(1e-6)

    return change


def scores_scaled(factor: float) -> Change:
    """Softmax of scores with another scale."""
    return lambda args, y: torch.softmax(args[0] * factor, args[1])


def flushed(limit: float) -> Change:
    """Small results became zero."""
    return lambda args, y: torch.where(y.abs() < limit * y.abs().max(), torch.zeros_like(y), y)


def row_of_another(dim: int = 0) -> Change:
    """The first slice along an axis holds what belongs to the second."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        y.select(dim, 0).copy_(y.select(dim, 1))
        return y

    return change
