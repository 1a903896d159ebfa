"""Clean runs of the second set from outside: see `second`. They differ from their golden run in nothing that matters.

Written by somebody who had seen neither the rules nor any answer, committed before one of them was compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import models_outside  # noqa: F401
import torch
from inject import Case, Run, case
from models import Options
from torch.nn import functional as F

SECOND_CLEAN: list[Case] = []
SDPA, AUTOCAST, HALF = Options(attention="sdpa"), Options(autocast=True), Options(dtype=torch.bfloat16)
# Several steps are made with SGD where a net has gradients that are zero in exact arithmetic: see `clean`.
SGD, DROP = Options(optimizer="sgd", rate=0.05), Options(dropout=0.1)


def unchanged(run: Run) -> None:
    """Nothing is changed in the program."""


def harmless(name: str, what: str, net: str, rounding: str = "none", **rest: object) -> None:
    """A case whose program is that of the golden run."""
    SECOND_CLEAN.append(Case(name, what, net, unchanged, "clean", rounding=rounding, **rest))  # type: ignore[arg-type]


# 16 bits on both sides, other kernels.
LOW = "16 bits on both sides, all kernels round otherwise"
harmless("low-llama-fused", f"autocast, fused attention: {LOW}", "llama", "low",
         options=replace(AUTOCAST, attention="sdpa"))  # fmt: skip
harmless("low-conv", f"autocast with kinks: {LOW}", "conv", "low", options=AUTOCAST)
harmless("low-conv-half", f"a bfloat16 model with kinks: {LOW}", "conv", "low", options=HALF)
harmless("low-adversary-half", f"a bfloat16 model with kinks: {LOW}", "adversary", "low", options=HALF)
harmless("low-graph-half", f"a bfloat16 model with kinks: {LOW}", "graph", "low", options=HALF)
harmless("low-scan-half", f"a bfloat16 model: {LOW}", "scan", "low", options=HALF)
harmless("low-towers-split", "autocast on both sides, other sums in two pieces", "towers", "split", options=AUTOCAST)
harmless("low-gpt2-two-passes", f"two passes and a scaled loss: {LOW}", "gpt2", "low",
         options=replace(AUTOCAST, micro=2, scale=512.0))  # fmt: skip
harmless("low-plain-recomputed", f"a bfloat16 model, recomputed: {LOW}", "plain", "low",
         options=HALF, target=replace(HALF, recompute=True))  # fmt: skip
harmless("low-lstm", f"autocast: {LOW}", "lstm", "low", options=AUTOCAST)
harmless("low-t5-steps", f"autocast and two steps of SGD: {LOW}", "t5", "low", steps=2,
         options=replace(SGD, autocast=True))  # fmt: skip
harmless("low-denoise-recomputed", f"autocast, recomputed: {LOW}", "denoise", "low",
         options=AUTOCAST, target=replace(AUTOCAST, recompute=True))  # fmt: skip
harmless(
    "low-bert-half", f"a bfloat16 model, fused attention: {LOW}", "bert", "low", options=replace(HALF, attention="sdpa")
)

# float32, other kernels; kinks.
harmless("second-conv-split", "relu and max pooling, sums in two pieces", "conv", "split", options=SGD, steps=3)
harmless("second-conv-accumulated", "relu and max pooling, two passes", "conv", "ulp", options=replace(SGD, micro=2),
         steps=2)  # fmt: skip
harmless("second-adversary-no-onednn", "leaky rectifiers without oneDNN", "adversary", "mkldnn", options=SGD, steps=2)
harmless(
    "second-t5-one-unit", "relu, every kernel off by one unit in the last place", "t5", "ulp", options=SGD, steps=2
)
harmless("second-towers-threads", "two threads", "towers", "threads", options=replace(SGD, clip=0.5), steps=2)
harmless("second-plain-fused", "fused attention instead of its parts, three steps", "plain", "double", steps=3,
         options=SGD, target=replace(SGD, attention="sdpa"))  # fmt: skip
harmless("second-plain-recomputed", "layers by their parts, recomputed", "plain", "split",
         options=Options(parts=True), target=Options(parts=True, recompute=True))  # fmt: skip
harmless("second-scan-recomputed", "recomputed in the target only, dropout with the same numbers", "scan", "double",
         options=DROP, target=replace(DROP, recompute=True))  # fmt: skip
harmless("second-graph-scattered", "index_add instead of scatter_add, Adam inside the window", "graph", "ulp", steps=2,
         options=Options(parts=True, inside=True), target=Options(inside=True))  # fmt: skip
harmless("second-mixtral-decay", "experts, weight decay, three steps", "mixtral", "ulp", steps=3,
         options=replace(SGD, decay=0.01))  # fmt: skip
harmless("second-ranks-split", "two ranks, two passes", "parallel", "split", options=replace(SGD, micro=2), steps=2)


@case(SECOND_CLEAN, "conv", "clean", rounding="mkldnn", steps=2, options=SGD)
def rectified_in_place(run: Run) -> None:
    """A block adds and rectifies in place."""
    block: Any = run.model.get_submodule("blocks.0")

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = block.norm1(block.conv1(x)).relu_()
        return block.norm2(block.conv2(y)).add_(block.short(x)).relu_()

    block.forward = forward


@case(SECOND_CLEAN, "graph", "clean", rounding="split")
def cell_by_its_formula(run: Run) -> None:
    """A gated cell is written out by its formula."""
    cell: Any = run.model.get_submodule("layers.0.cell")

    def forward(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a = F.linear(y, cell.weight_ih, cell.bias_ih).chunk(3, -1)
        b = F.linear(x, cell.weight_hh, cell.bias_hh).chunk(3, -1)
        r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        n = torch.tanh(a[2] + r * b[2])
        return n + z * (x - n)

    cell.forward = forward


@case(SECOND_CLEAN, "adversary", "clean", rounding="double")
def slope_written_out(run: Run) -> None:
    """A leaky rectifier is the larger of x and 0.2 x."""
    maker: Any = run.model.get_submodule("make")

    def forward(z: torch.Tensor) -> torch.Tensor:
        x = maker.norm(maker.grow(maker.enter(z).reshape(-1, 8, 4, 4)))
        return torch.tanh(maker.leave(torch.maximum(x, 0.2 * x)))

    maker.forward = forward


@case(SECOND_CLEAN, "denoise", "clean", rounding="ulp")
def group_norm_by_its_parts(run: Run) -> None:
    """A group norm is written out by its parts."""
    norm: Any = run.model.get_submodule("up.norm2")

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(x.shape[0], norm.num_groups, -1)
        y = y - y.mean(-1, keepdim=True)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + norm.eps)
        return y.reshape(x.shape) * norm.weight.reshape(1, -1, 1, 1) + norm.bias.reshape(1, -1, 1, 1)

    norm.forward = forward


@case(SECOND_CLEAN, "towers", "clean", rounding="split")
def mean_by_a_product(run: Run) -> None:
    """The mean over tokens is a matrix product with the mask, divided afterwards."""
    pool: Any = run.model.get_submodule("pool")

    def forward(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        sums = torch.bmm(seen.unsqueeze(1), x).squeeze(1)
        return sums * (1.0 / seen.sum(1, keepdim=True).clamp(min=1))

    pool.forward = forward


@case(SECOND_CLEAN, "llama", "clean", rounding="double", steps=2, options=SGD)
def projection_in_two_halves(run: Run) -> None:
    """A projection sums over two halves of its input, one after the other."""
    layer: Any = run.model.get_submodule("model.layers.0.mlp.down_proj")

    def forward(x: torch.Tensor) -> torch.Tensor:
        w = layer.weight
        return F.linear(x[..., :32], w[:, :32]) + F.linear(x[..., 32:], w[:, 32:])

    layer.forward = forward


@case(SECOND_CLEAN, "vit", "clean", rounding="low", options=AUTOCAST)
def low_precision_gelu_written_out(run: Run) -> None:
    """A gelu is written out by the error function in float32, under autocast; all kernels round otherwise."""
    layer: Any = run.model.get_submodule("vit.layers.0.mlp")
    act: Any = next(m for name, m in layer.named_modules() if "act" in name)

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return (y * 0.5 * (1.0 + torch.erf(y * 0.5**0.5))).to(x.dtype)

    act.forward = forward
