"""Reference functions of fused NPU operators against compositions of torch's own functions, in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from msprobe.precheck import fused
from msprobe.precheck.functions import UnknownFunction

X = torch.linspace(-4, 4, 96, dtype=torch.float64).reshape(2, 6, 8)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-12, atol=1e-12)


def test_activations() -> None:
    close(fused.npu_fast_gelu(X), X * torch.sigmoid(1.702 * X))
    close(fused.npu_mish(X), F.mish(X))
    close(fused.npu_swiglu(X, 1), F.silu(X[:, :3]) * X[:, 3:])


def test_norms() -> None:
    gamma = torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
    y, inverse = fused.npu_rms_norm(X, gamma, 1e-6)
    close(y, F.rms_norm(X, [8], gamma, 1e-6))
    assert inverse.dtype == torch.float32 and inverse.shape == (2, 6, 1)
    close(fused.npu_layer_norm_eval(X, [8], gamma, gamma, 1e-3), F.layer_norm(X, [8], gamma, gamma, 1e-3))
    image = torch.linspace(-1, 3, 64, dtype=torch.float64).reshape(2, 4, 2, 4)
    y, mean, rstd = fused.npu_group_norm_silu(image, torch.ones(4).double(), torch.zeros(4).double(), 2)
    close(y, F.silu(F.group_norm(image, 2)))
    close(mean, image.reshape(2, 2, 16).mean(-1))
    close(rstd, 1 / (image.reshape(2, 2, 16).var(-1, unbiased=False) + 1e-5).sqrt())


def test_rotary_of_a_quarter_turn() -> None:
    zeros, ones = torch.zeros_like(X), torch.ones_like(X)
    close(fused.npu_rotary_mul(X, ones, zeros), X)
    close(fused.npu_rotary_mul(X, zeros, ones), torch.cat((-X[..., 4:], X[..., :4]), -1))


def test_scaled_masked_softmax() -> None:
    square = X[..., :6]
    mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    expected = torch.softmax((square * 0.5).masked_fill(mask, -10000.0), -1)
    close(fused.npu_scaled_masked_softmax(square, mask, 0.5), expected)
    close(fused.npu_scaled_masked_softmax(square, ~mask, 0.5, True), expected)


def test_shapes_and_sorting() -> None:
    close(fused.npu_confusion_transpose(X, [1, 0, 2], [6, 16], True), X.transpose(0, 1).reshape(6, 16))
    close(fused.npu_confusion_transpose(X, [1, 0], [16, 6], False), X.reshape(16, 6).t())
    close(fused.npu_sort_v2(X, 1, True), X.flip(1))
    weight = X[0]
    close(fused.npu_linear(X, weight, torch.ones(6).double()), X @ weight.t() + 1)


def test_gating_by_hand() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 5.0]], dtype=torch.float64)
    values, experts, rows = fused.npu_moe_gating_top_k_softmax(logits, torch.tensor([False, True]), 2)
    assert experts.tolist() == [[1, 2], [3, 3]]
    assert rows.tolist() == [[0, 2], [1, 3]]
    e = [1.0, math.e**2, math.e]
    close(values[0], torch.tensor([e[1] / sum(e), e[2] / sum(e)], dtype=torch.float64))


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_w_is_torchs(amsgrad: bool) -> None:
    parameter = torch.nn.Parameter(X[0].clone())
    optimizer = torch.optim.AdamW([parameter], lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.01, amsgrad=amsgrad)
    var, m, v = X[0].clone(), torch.zeros_like(X[0]), torch.zeros_like(X[0])
    largest = torch.zeros_like(v)
    for step in range(3):
        gradient = torch.sin(X[1] + step)
        parameter.grad = gradient.clone()
        optimizer.step()
        powers = 0.8**step, 0.9**step
        var, m, v = fused.npu_apply_adam_w(
            *powers, 0.1, 0.01, 0.8, 0.9, 1e-6, gradient, largest, amsgrad, False, out=(var, m, v)
        )
        largest = torch.maximum(largest, v)
        torch.testing.assert_close(var, parameter.detach(), rtol=1e-9, atol=1e-9)


def test_adam_by_hand() -> None:
    one = torch.ones(1, dtype=torch.float64)
    var, m, v = fused.npu_apply_adam(0.9, 0.99, 0.1, 0.9, 0.99, 1e-8, one * 2, out=(one, one * 0, one * 0))
    close(m, one * 0.2)
    close(v, one * 0.04)
    close(var, 1 - 0.1 * math.sqrt(0.01) / 0.1 * 0.2 / (1e-8 + one * 0.2))


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("heads", [4, 2])
def test_attention_is_torchs(layout: str, heads: int) -> None:
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(2, 4, 6, 8, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, heads, 5, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    expected = F.scaled_dot_product_attention(q, k.repeat_interleave(4 // heads, 1), v.repeat_interleave(4 // heads, 1))

    def lay(t: torch.Tensor) -> torch.Tensor:
        return {
            "BNSD": lambda: t,
            "BSND": lambda: t.transpose(1, 2),
            "BSH": lambda: t.transpose(1, 2).flatten(2),
            "SBH": lambda: t.permute(2, 0, 1, 3).flatten(2),
        }[layout]()

    out, largest, total = fused.npu_fusion_attention(lay(q), lay(k), lay(v), 4, layout)
    close(out, lay(expected))
    assert largest.shape == total.shape == (2, 4, 6, 8)
    scores = q @ k.repeat_interleave(4 // heads, 1).transpose(-1, -2) / math.sqrt(8)
    close((largest + total.log())[..., 0], scores.logsumexp(-1))


def test_attention_of_many_queries_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, 4, n, 8, generator=draw, dtype=torch.float64).requires_grad_() for n in (70, 90))
    mask = torch.rand(1, 1, 70, 90, generator=draw) > 0.7
    results = []
    for rows in (1000, 32):
        monkeypatch.setattr(fused, "_ATTENTION_ROWS", rows)
        out = fused.npu_fusion_attention(q, k, k, 4, "BNSD", atten_mask=mask)
        results.append([*out, *torch.autograd.grad(out[0].square().sum(), (q, k))])
    for whole, blocks in zip(*results, strict=True):
        close(blocks, whole)
    close(results[1][0], F.scaled_dot_product_attention(q, k, k, attn_mask=~mask))


@pytest.mark.parametrize("mode", [0, 2, 3, 4])
def test_attention_masks(mode: int) -> None:
    q = torch.randn(1, 1, 4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    k = torch.randn(1, 1, 6, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    row, column = torch.arange(4)[:, None], torch.arange(6)[None]
    hidden = {
        0: (column > row + 2) | (column < row - 1),
        2: column > row,
        3: column > row + 2,
        4: (column > row + 2) | (column < row - 1),
    }[mode]
    given = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1) if mode else None
    out, _, _ = fused.npu_fusion_attention(
        q, k, k, 1, "BNSD", atten_mask=given, sparse_mode=mode, pre_tockens=1, next_tockens=2
    )
    close(out, F.scaled_dot_product_attention(q, k, k, attn_mask=~hidden))


def test_names_without_a_function_are_said() -> None:
    with pytest.raises(UnknownFunction, match="npu_no_such"):
        fused.reference_function("npu_no_such")
