"""Operators that draw numbers: right ones pass whatever they draw, wrong ones are told by their distribution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from precheck_golden import table
from precheck_support import Runner, call, msprobe, tensor, write_dump

from msprobe import _core
from msprobe.precheck.random_ops import compare_samples, is_random, judge_dropout

__all__ = ["msprobe"]  # a fixture

DRAWS: dict[str, Callable[[torch.Generator], torch.Tensor]] = {
    "rand": lambda g: torch.rand(2000, generator=g),
    "randn": lambda g: torch.randn(2000, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((2000,), 0.3), generator=g),
    "randint": lambda g: torch.randint(-5, 6, (2000,), generator=g),
    "exponential_": lambda g: torch.empty(2000).exponential_(generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_two_draws_of_one_distribution_pass(name: str) -> None:
    for seed in range(200):
        first, second = (DRAWS[name](torch.Generator().manual_seed(2 * seed + k)) for k in (0, 1))
        status, message = compare_samples(name, first, second)
        assert status == "pass", f"seed {seed}: {message}"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("randn", lambda x: x + 0.3),  # location
        ("randn", lambda x: x * 1.5),  # spread
        ("randn", lambda x: torch.where(x > 2, torch.nan, x)),  # NaN
        ("rand", lambda x: x + (x > 0.99) * 0.1),  # range
        ("bernoulli", lambda x: 1 - x),  # share kept
    ],
)
def test_another_distribution_is_an_error(name: str, spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
    first, second = (DRAWS[name](torch.Generator().manual_seed(k)) for k in (11, 12))
    assert compare_samples(name, first, spoil(second))[0] == "error"


def attention(seed: int, dropout: float = 0.1) -> torch.Tensor:
    """Attention of fixed inputs, its weights dropped at random."""
    query, key, value = (torch.randn(2, 6, 12, 16, generator=torch.Generator().manual_seed(k)) for k in range(3))
    torch.manual_seed(seed)
    # A value that is not around 0: a dropped weight lowers the whole row.
    return torch.nn.functional.scaled_dot_product_attention(query, key, value + 2, dropout_p=dropout)


def test_dropped_weights_of_attention_are_felt_by_whole_rows() -> None:
    """Elements of a row hang together: as independent ones they would be accused in every few runs."""
    accused = 0
    for seed in range(0, 400, 2):
        first, second = attention(seed), attention(seed + 1)
        status, message = compare_samples("scaled_dot_product_attention", first, second)
        assert status == "pass", f"seed {seed}: {message}"
        accused += compare_samples("rand_like_but_signed", first, second)[0] == "error"
    assert accused > 0  # the check of single elements is the wrong one here


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_of_equal_draws_is_no_difference(dtype: torch.dtype) -> None:
    """Most elements were kept in both draws; the device's 1 / (1 - p) is rounded, and lies above the reference's."""
    source = torch.randn(5000, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    reference = source.double() / 0.9
    device = (source.double() / 0.9 * (1 + 0.4 * torch.finfo(dtype).eps)).to(dtype)
    assert compare_samples("bernoulli_like", reference, device)[0] == "pass"
    assert compare_samples("bernoulli_like", reference, (device * 1.3).to(dtype))[0] == "error"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_attention_of_a_module_draws_when_it_drops(dropout: float, training: bool) -> None:
    """The call as nn.MultiheadAttention writes it; another place of its arguments holds add_zero_attn."""
    seen: list[tuple[Any, ...]] = []
    module = torch.nn.MultiheadAttention(4, 2, dropout=dropout)
    module.train(training)
    original = torch.nn.functional.multi_head_attention_forward
    torch.nn.functional.multi_head_attention_forward = lambda *a, **k: seen.append((a, k)) or original(*a, **k)
    try:
        module(*[torch.ones(3, 4)] * 3)
    finally:
        torch.nn.functional.multi_head_attention_forward = original
    ((args, kwargs),) = seen
    assert is_random("multi_head_attention_forward", list(args), kwargs) == (training and dropout > 0)


def test_attention_that_is_off_is_an_error() -> None:
    right, other = attention(1), attention(2)
    assert compare_samples("scaled_dot_product_attention", right, other + 0.5)[0] == "error"
    assert compare_samples("scaled_dot_product_attention", right, attention(3, dropout=0.6) * 2)[0] == "error"


def test_recurrent_dropout_is_not_accused_of_what_one_layer_dropped() -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return net(x)[0].detach()

    torch.manual_seed(0)
    net = torch.nn.LSTM(6, 8, num_layers=2, dropout=0.5)
    x = torch.randn(40, 2, 6)
    for seed in range(40):
        assert compare_samples("lstm", run(2 * seed), run(2 * seed + 1))[0] == "pass"
    status, _ = compare_samples("lstm", run(0), torch.full_like(run(0), torch.nan))
    assert status == "error"


def dropped(source: torch.Tensor, p: float, scale: float, seed: int = 0) -> torch.Tensor:
    keep = torch.rand(source.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return (source.double() * keep * scale).to(source.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("p", "used", "scale", "status"),
    [
        (0.1, 0.1, 1 / 0.9, "pass"),
        (0.5, 0.5, 2.0, "pass"),
        (0.1, 0.15, 1 / 0.9, "error"),  # 4000 elements: 400 expected, deviation 19; 600 dropped
        (0.1, 0.1, 1.0, "error"),  # not scaled
        (0.0, 0.01, 1.0, "error"),  # p = 0 drops nothing
        (1.0, 1.0, 1.0, "pass"),
    ],
)
def test_dropout_drops_its_share_and_scales_the_rest(
    p: float, used: float, scale: float, status: str, dtype: torch.dtype
) -> None:
    source = (torch.arange(4000) % 97 + 1).to(dtype)
    row = _core.PrecheckRow("x", "pass", "")
    judge_dropout(row, "dropout", p, source, dropped(source, used, scale))
    assert row.status == status, row.message


def test_dropout_has_its_details_row(msprobe: Runner, tmp_path: Path) -> None:
    source = tensor("float32", [40, 50], 1.0, 2.0, requires_grad=True)
    data: dict[str, Any] = {
        "Functional.dropout.0.forward": call(source, 0.2, True),
        "Functional.dropout.0.backward": {"input": [tensor("float32", [40, 50], 1.0, 2.0)], "output": []},
        "Torch.rand.0.forward": call([40, 50]),
        "Functional.scaled_dot_product_attention.0.forward": call(*[tensor("float32", [1, 2, 8, 4], -1.0, 1.0)] * 3),
    }
    write_dump(tmp_path / "dump.json", data)
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 0
    assert {tuple(row[1:3]) for row in table(tmp_path / "out", "result").values()} == {("pass", "pass"), ("pass", " ")}
    details = table(tmp_path / "out", "details")
    for way in ("forward", "backward"):
        row = details[f"Functional.dropout.0.{way}.output.0"]
        assert row[3] == "(40, 50)"
        assert "of 2000 elements dropped, p = 0.2" in row[22]
    assert "count 2000, mean 0." in details["Torch.rand.0.forward.output.0"][22]
