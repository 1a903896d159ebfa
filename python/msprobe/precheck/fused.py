"""Reference functions of the fused NPU operators (precheck.md 15), on CPU tensors in raised precision.

Gradients come from differentiating these functions. Where earlier releases' functions are known to be wrong (weights of
layer_norm_eval, the random amsgrad maximum, float32 inside a float64 reference) these are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from msprobe.precheck.functions import UnknownFunction

Tensor = torch.Tensor

_MASK_SIZE = 2048
_MASK_VALUE = -40000.0
_ALL_TOKENS = 2147483647
_ATTENTION_ROWS = 256  # queries at a time: scores take rows x keys x heads x 8 bytes
_STATISTICS_REPEAT = 8


def reference_function(name: str) -> Callable[..., Any]:
    """The function of an operator's name.

    Raises:
        UnknownFunction: There is none.
    """
    if name not in FUNCTIONS:
        raise UnknownFunction(f"no_reference: there is no reference function for {name}")
    return FUNCTIONS[name]


def npu_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Product of x and the transposed weight, plus bias."""
    return F.linear(x, weight, bias)


def npu_fast_gelu(x: Tensor) -> Tensor:
    """The sigmoid approximation of gelu with 1.702, in the form that does not overflow."""
    a = 1.702
    magnitude = x.abs()
    return x * torch.exp((x - magnitude) * (a / 2)) / (1 + torch.exp(-a * magnitude))


def npu_swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """The silu of the first half times the second half."""
    first, second = x.chunk(2, dim)
    return F.silu(first) * second


def npu_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-5) -> tuple[Tensor, Tensor]:
    """The input divided by its root mean square over the last dimension, times gamma; and the divisor's inverse."""
    inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * inverse * gamma, inverse.to(torch.float32)


def npu_rotary_mul(x: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Rotary embedding with halves: r1 x + r2 (-x2, x1)."""
    first, second = x.chunk(2, -1)
    return r1 * x + r2 * torch.cat((-second, first), -1)


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Softmax over the last dimension of x times scale, with -10000 at masked places."""
    if fixed_triu_mask:
        mask = torch.triu(torch.ones(x.shape[-2:], dtype=torch.bool), 1)
    return torch.softmax((x * scale).masked_fill(mask.bool(), -10000.0), -1)


def npu_confusion_transpose(x: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool) -> Tensor:
    """Permute and reshape, in either order."""
    if transpose_first:
        return x.permute(*perm).reshape(*shape)
    return x.reshape(*shape).permute(*perm)


def npu_layer_norm_eval(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm."""
    return F.layer_norm(x, list(normalized_shape), weight, bias, eps)


def npu_group_norm_silu(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, group: int, eps: float = 1e-5
) -> list[Tensor]:
    """Group norm through silu, with the mean and inverse deviation of each group."""
    if x.dim() != 4:
        raise ValueError("npu_group_norm_silu takes 4 dimensions")
    grouped = x.reshape(x.shape[0], group, -1)
    mean = grouped.mean(-1)
    inverse = torch.rsqrt(grouped.var(-1, unbiased=False) + eps)
    return [F.silu(F.group_norm(x, group, gamma, beta, eps)), mean, inverse]


def npu_mish(x: Tensor) -> Tensor:
    """The mish function."""
    return x * torch.tanh(F.softplus(x))


def npu_sort_v2(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Sorted values."""
    return torch.sort(x, dim, descending).values


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest softmax values of each row, the experts they belong to, and row numbers."""
    probabilities = torch.softmax(x, -1)
    order = torch.argsort(probabilities, dim=-1, descending=True, stable=True)[..., :k]
    values = probabilities.gather(-1, order)
    if finished is not None:
        order = order.masked_fill(finished.reshape(-1, 1).bool().expand_as(order), x.shape[-1])
    rows = torch.arange(order.numel(), dtype=torch.int32).reshape(k, -1).t().contiguous()
    return values, order.to(torch.int32), rows


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool = False,
    use_nesterov: bool = False,
    out: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Adam on (var, m, v) = out."""
    del use_locking
    var, m, v = out
    m = m + (beta1 - 1) * (m - grad)
    v = v + (beta2 - 1) * (v - grad * grad)
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power)
    direction = m * beta1 + (1 - beta1) * grad if use_nesterov else m
    return var - rate * direction / (epsilon + v.sqrt()), m, v


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    eps: float,
    grad: Tensor,
    max_grad_norm: Tensor | None = None,
    amsgrad: bool = False,
    maximize: bool = False,
    out: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of AdamW on (var, m, v) = out; max_grad_norm holds amsgrad's largest v so far."""
    var, m, v = out
    gradient = -grad if maximize else grad
    power1, power2 = beta1_power * beta1, beta2_power * beta2
    m = m * beta1 + (1 - beta1) * gradient
    v = v * beta2 + (1 - beta2) * gradient * gradient
    largest = torch.maximum(v, max_grad_norm) if amsgrad and max_grad_norm is not None else v
    rest1 = 1 - (power1 - eps if power1 == 1 else power1)
    rest2 = 1 - (power2 - eps if power2 == 1 and amsgrad else power2)
    denominator = (largest / rest2).sqrt() + eps
    return var * (1 - lr * weight_decay) - lr * (m / rest1) / denominator, m, v


def _rows_of(value: Tensor | None, begin: int, end: int) -> Tensor | None:
    """The rows of a bias or mask that belong to some queries; one row stands for all."""
    return value if value is None or value.shape[-2] == 1 else value[..., begin:end, :]


def _attend(
    q: Tensor, k: Tensor, v: Tensor, pse: Tensor | None, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of some queries to all keys: result, row maxima, row sums. Heads of q share those of k in order."""
    batch, heads, rows, width = q.shape
    groups = k.shape[1]
    scores = (q.reshape(batch, groups, -1, width) @ k.transpose(-1, -2)).reshape(batch, heads, rows, -1)
    if pse is not None:
        scores = scores + pse.double()
    scores = scores * scale
    if mask is not None:
        scores = scores + mask.double() * _MASK_VALUE
    largest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    out = (weights / total).reshape(batch, groups, heads // groups * rows, -1) @ v
    return out.reshape(batch, heads, rows, v.shape[-1]), largest, total


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float | None = None,
    keep_prob: float = 1.0,
    pre_tockens: int = _ALL_TOKENS,
    next_tockens: int = _ALL_TOKENS,
    inner_precise: int = 0,
    sparse_mode: int = 0,
    **unused: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention in float64 without dropout: the result in the layout of the query, row maxima and row sums."""
    del padding_mask, keep_prob, inner_precise, unused
    q = _heads_first(query.double(), input_layout, head_num)
    kv_heads = head_num
    if input_layout in ("BSH", "SBH"):
        kv_heads = key.shape[2] // (query.shape[2] // head_num)
    k = _heads_first(key.double(), input_layout, kv_heads)
    v = _heads_first(value.double(), input_layout, kv_heads)
    if q.shape[1] % k.shape[1] != 0:
        raise ValueError("the number of query heads is no multiple of the number of key heads")
    mask = _attention_mask(atten_mask, sparse_mode, pre_tockens, next_tockens, q.shape[2], k.shape[2])
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    blocks = []
    for begin in range(0, q.shape[2], _ATTENTION_ROWS):
        end = min(begin + _ATTENTION_ROWS, q.shape[2])
        # Recomputed in backward: the scores of all rows together may not fit.
        blocks.append(
            checkpoint(
                _attend,
                q[:, :, begin:end],
                k,
                v,
                _rows_of(pse, begin, end),
                _rows_of(mask, begin, end),
                scale,
                use_reentrant=False,
            )
        )
    result, largest, total = (torch.cat(parts, 2) for parts in zip(*blocks, strict=True))
    out = _from_heads_first(result, input_layout)
    return (
        out,
        largest.expand(*largest.shape[:-1], _STATISTICS_REPEAT),
        total.expand(*total.shape[:-1], _STATISTICS_REPEAT),
    )


def _heads_first(x: Tensor, layout: str, heads: int) -> Tensor:
    """To (batch, heads, sequence, depth)."""
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)
    if layout == "SBH":
        return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(1, 2, 0, 3)
    raise ValueError(f"the input layout {layout} is not supported")


def _from_heads_first(x: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)
    return x.permute(2, 0, 1, 3).reshape(x.shape[2], x.shape[0], -1)


def _attention_mask(given: Tensor | None, mode: int, before: int, after: int, rows: int, columns: int) -> Tensor | None:
    """Places that do not count, or None."""
    compressed = mode in (2, 3, 4)
    if given is not None and not (compressed and tuple(given.shape[-2:]) == (_MASK_SIZE, _MASK_SIZE)):
        return given
    ones = torch.ones(rows, columns, dtype=torch.bool)
    if mode in (0, 4):
        above = torch.triu(ones, min(after + 1, columns)) if after < columns else ~ones
        below = torch.tril(ones, max(-before - 1, -rows)) if before < rows else ~ones
        return above | below
    if mode == 2:
        return torch.triu(ones, 1)
    if mode == 3:
        return torch.triu(ones, columns - rows + 1)
    return None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        npu_linear,
        npu_fast_gelu,
        npu_swiglu,
        npu_rms_norm,
        npu_rotary_mul,
        npu_scaled_masked_softmax,
        npu_confusion_transpose,
        npu_layer_norm_eval,
        npu_group_norm_silu,
        npu_mish,
        npu_sort_v2,
        npu_moe_gating_top_k_softmax,
        npu_apply_adam,
        npu_apply_adam_w,
        npu_fusion_attention,
    )
}
