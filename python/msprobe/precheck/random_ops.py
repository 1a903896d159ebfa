"""Operators that draw random numbers: the two results are compared as samples, not element by element."""

from __future__ import annotations

import math
from typing import Any

import torch

from msprobe import _core
from msprobe.precheck.judging import host
from msprobe.precheck.names import words
from msprobe.precheck.precision import flat_tensors

_RANDOM = words(
    "bernoulli bernoulli_ multinomial normal normal_ poisson rand rand_like randint randint_like randn randn_like "
    "randperm cauchy_ exponential_ geometric_ log_normal_ random_ uniform_ gumbel_softmax binomial rrelu rrelu_"
)
# torch's own: (input, hx, weights, has_biases, num_layers, dropout, training, …), or with batch_sizes after the input
_RECURRENT = words("lstm gru rnn_tanh rnn_relu")
_UNIT = words("bernoulli bernoulli_ rand rand_like")  # draws lie in [0, 1]
_PLAIN_DROPOUT = words("dropout dropout_")
# What one element of the last dimension draws, the others of its row feel: a dropped weight of attention takes part in
# the whole row, draws without replacement and shares of one sum exclude one another.
_ROWS = words("scaled_dot_product_attention multi_head_attention_forward multinomial gumbel_softmax")
# sign tests: at 5.1 standard deviations a right device is accused once in three million comparisons
_LIMIT = 5.1
_LEAST = 30


def is_random(name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Does this call draw numbers? Dropout goes by its own rule."""
    if name in ("rrelu", "rrelu_"):
        training = kwargs.get("training", args[3] if len(args) > 3 else False)
        return bool(training)
    if name in _RANDOM:
        return True
    if name in _RECURRENT and len(args) > 7:
        dropout, training = (args[5], args[6]) if isinstance(args[3], bool) else (args[6], args[7])
        return bool(training) and bool(dropout)
    if name == "scaled_dot_product_attention":
        return bool(kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0))
    if name == "multi_head_attention_forward":
        # (query, key, value, width, heads, weight, bias, bias_k, bias_v, add_zero_attn, dropout_p, …, …, training, …)
        training = kwargs.get("training", args[13] if len(args) > 13 else True)
        return bool(training) and bool(kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0))
    return False


def random_rows(name: str, prefix: str, bench: Any, device: Any) -> list[_core.PrecheckRow]:
    """A row per tensor: shape, dtype class, non-finite values, and two sign tests."""
    first, second = flat_tensors(bench), flat_tensors(device)
    rows = []
    for i, (b, d) in enumerate(zip(first, second, strict=False)):
        row = _core.PrecheckRow(f"{prefix}.{i}", "pass")
        row.set_kinds(str(b.dtype), str(d.dtype), str(tuple(d.shape)))
        row.status, row.message = compare_samples(name, host(b), host(d))
        rows.append(row)
    if len(first) != len(second):
        problem = f"structure: the reference has {len(first)} outputs, the device {len(second)}"
        rows.append(_core.PrecheckRow(f"{prefix}.{len(rows)}", "error", problem))
    return rows or [_core.PrecheckRow(f"{prefix}.0", "SKIP", "reference output is None")]


def compare_samples(name: str, bench: torch.Tensor, device: torch.Tensor) -> tuple[str, str]:
    """Status and message for two draws of the same distribution."""
    if bench.shape != device.shape:
        return "error", f"shapes differ, reference {tuple(bench.shape)} and device {tuple(device.shape)}"
    b, d = bench.double().reshape(-1), device.double().reshape(-1)
    if name == "randperm":
        same = torch.equal(b.sort().values, d.sort().values)
        return (
            ("pass", "the same numbers in some order") if same else ("error", "not a permutation of the same numbers")
        )
    wrong = int((torch.isnan(d) & ~torch.isnan(b)).sum())
    if wrong and not torch.isnan(b).any():
        return "error", f"random: {wrong} NaN where the reference has none"
    figures = (
        f"random, compared as samples: count {d.numel()}, mean {_mean(d):.6g} and {_mean(b):.6g}, "
        f"standard deviation {_deviation(d):.6g} and {_deviation(b):.6g}, range {_range(d)} and {_range(b)}, "
        f"share of zeros {_zeros(d):.6g} and {_zeros(b):.6g} (device, reference)"
    )
    if name in _UNIT and d.numel() and not bool(((d >= 0) & (d <= 1)).all()):
        return "error", f"{figures}; values outside 0 to 1"
    if b.numel() < _LEAST:
        return "pass", f"{figures}; fewer than {_LEAST} elements"
    center = b.nanmedian()
    # Where both drew the same, rounding decides which is larger, and it leans the same way everywhere.
    blur = _blur(b, device.dtype)
    rows = independent_rows(name, bench.shape)
    if rows < 2:
        return "pass", f"{figures}; all elements hang together: location and spread are not tested"
    for what, x, y in (("location", d, b), ("spread", (d - center).abs(), (b - center).abs())):
        z = sign_deviation(x, y, rows, blur)
        if z > _LIMIT:
            return "error", f"{figures}; {what} differs by {z:.3g} standard deviations of a sign test"
    return "pass", figures


def independent_rows(name: str, shape: torch.Size) -> int:
    """Into how many parts of equal size, one after the other, the elements fall that draw independently."""
    if name in _RECURRENT:
        return 1  # what a layer drops is felt by all later steps
    if name in _ROWS and shape:
        return math.prod(shape[:-1])
    return math.prod(shape)


def _blur(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | float:
    """How near two numbers may come by rounding: 8 unit roundoffs of (|value| + root mean square); 0 for integers."""
    if not dtype.is_floating_point:
        return 0.0
    finite = values[torch.isfinite(values)]
    level = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return 4 * torch.finfo(dtype).eps * (values.abs() + level)


def sign_deviation(x: torch.Tensor, y: torch.Tensor, rows: int, blur: torch.Tensor | float = 0.0) -> float:
    """How far the counts of x > y and x < y are from even, in standard deviations; ties do not count.

    Elements of one of the `rows` may depend on one another: the surplus of a row is one draw, symmetric around 0, and
    the variance of the sum is that of the surpluses. With rows of one element this is the sign test. Numbers within
    `blur` of each other are ties.
    """
    apart = x - y
    signs = torch.where(apart.abs() > blur, torch.sign(apart), 0.0).nan_to_num()
    surplus = signs.reshape(rows, -1).sum(1)
    squares = float((surplus * surplus).sum())
    return abs(float(surplus.sum())) / math.sqrt(squares) if squares else 0.0


def judge_dropout(row: _core.PrecheckRow, name: str, p: float, source: torch.Tensor, device: torch.Tensor) -> None:
    """Worsen a row of dropout: as many elements must be dropped as p says, the others scaled by 1 / (1 - p).

    `source`: what was dropped from, the input or the gradient. Elements that are zero in it say nothing.
    """
    if name not in _PLAIN_DROPOUT or source.shape != device.shape or not 0 <= p <= 1:
        return
    x, d = source.double().reshape(-1), device.double().reshape(-1)
    live = (x != 0) & torch.isfinite(x)
    count, dropped = int(live.sum()), int((live & (d == 0)).sum())
    row.message += f"\nrandom: {dropped} of {count} elements dropped, p = {p:.6g}"
    deviation = math.sqrt(count * p * (1 - p))
    # Half a count: a binomial is no normal distribution.
    if abs(dropped - count * p) > _LIMIT * deviation + 0.5 and (deviation == 0 or count >= _LEAST):
        row.status = "error"
        row.message += f": beyond {_LIMIT} standard deviations: error"
        return
    info = torch.finfo(device.dtype)
    expected = x / (1 - p) if p < 1 else torch.zeros_like(x)
    kept = live & (d != 0) & (expected.abs() <= info.max)
    wrong = int((kept & ((d - expected).abs() > 4 * info.eps * expected.abs() + info.tiny)).sum())
    if wrong:
        row.status = "error"
        row.message += f"\nrandom: {wrong} kept elements are not the input / (1 - p): error"


def dropout_share(args: list[Any], kwargs: dict[str, Any]) -> float:
    """The probability of a dropout call; 0 outside training."""
    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(p) if training and isinstance(p, (int, float)) else 0.0


def _range(x: torch.Tensor) -> str:
    return f"[{float(x.min()):.6g}, {float(x.max()):.6g}]" if x.numel() else "[]"


def _zeros(x: torch.Tensor) -> float:
    return float((x == 0).double().mean()) if x.numel() else math.nan


def _mean(x: torch.Tensor) -> float:
    return float(x.mean()) if x.numel() else math.nan


def _deviation(x: torch.Tensor) -> float:
    return float(x.std(unbiased=False)) if x.numel() else math.nan
