"""Introduced and inherited errors add to the difference in every family; unusual calls are replayed or say why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture_tools import record
from test_culprit_score import Recorder
from torch.utils.checkpoint import checkpoint

from msprobe.precheck.culprit import scores

Function = Callable[..., torch.Tensor]

# Name, function, shapes of its tensors, further arguments by name.
CALLS: list[tuple[str, Function, list[list[int]], dict[str, Any]]] = [
    ("Torch.add.0", torch.add, [[4, 6], [4, 6]], {}),
    ("Torch.div.0", torch.div, [[4, 6], [4, 6]], {}),
    ("Torch.exp.0", torch.exp, [[4, 6]], {}),
    ("Functional.gelu.0", F.gelu, [[4, 6]], {}),
    ("Torch.sum.0", torch.sum, [[4, 6]], {"dim": 1}),
    ("Torch.matmul.0", torch.matmul, [[4, 6], [6, 5]], {}),
    ("Functional.linear.0", F.linear, [[4, 6], [5, 6], [5]], {}),
    ("Functional.conv2d.0", F.conv2d, [[2, 3, 6, 6], [4, 3, 3, 3], [4]], {}),
    ("Functional.layer_norm.0", F.layer_norm, [[4, 6]], {"normalized_shape": [6]}),
    ("Functional.softmax.0", F.softmax, [[4, 6]], {"dim": -1}),
    ("Functional.scaled_dot_product_attention.0", F.scaled_dot_product_attention, [[1, 2, 4, 8]] * 3, {}),
    ("Functional.avg_pool2d.0", F.avg_pool2d, [[2, 3, 6, 6]], {"kernel_size": 2}),
    ("Functional.mse_loss.0", F.mse_loss, [[4, 6], [4, 6]], {}),
]
# Their node returns gradients of other things than the arguments, or in another form: forward only.
FORWARD_ONLY = {"Functional.linear.0", "Functional.scaled_dot_product_attention.0"}


def leaf_of(value: Any) -> Any:
    if isinstance(value, list):
        return [leaf_of(v) for v in value]
    return {"type": type(value).__name__, "value": value}


def side(
    folder: Path, name: str, function: Function, tensors: list[torch.Tensor], more: dict[str, Any], error: float
) -> tuple[str, dict[str, list[torch.Tensor]], dict[str, list[torch.Tensor]]]:
    """A dump of one call; what was recorded of it, and the same in float64, by direction."""
    gradient_signs = torch.Generator().manual_seed(9)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    right = function(*wide, **more)
    gradient = torch.randn(right.shape, generator=gradient_signs)
    right_gradients = list(torch.autograd.grad(right, wide, gradient.double()))
    noise = torch.Generator().manual_seed(10)
    wrong = lambda t: (t * (1 + error * torch.randn(t.shape, generator=noise).double())).float()  # noqa: E731
    output = wrong(right.detach())
    gradients = [wrong(g) for g in right_gradients]
    recorder = Recorder(folder)
    recorder.call(name, tensors, output, {k: leaf_of(v) for k, v in more.items()})
    if name not in FORWARD_ONLY:
        recorder.backward(name, gradient, gradients)
    path = recorder.write()
    return (
        path,
        {"forward": [output], "backward": gradients},
        {"forward": [right.detach()], "backward": right_gradients},
    )


@pytest.mark.parametrize(("name", "function", "shapes", "more"), CALLS, ids=[c[0] for c in CALLS])
def test_introduced_and_inherited_are_those_of_float64_and_add_to_the_difference(
    name: str, function: Function, shapes: list[list[int]], more: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    golden_in = [torch.randn(s).requires_grad_() for s in shapes]
    target_in = [(t.detach() * (1 + 1e-3 * torch.randn(t.shape))).requires_grad_() for t in golden_in]
    golden, y, r = side(tmp_path / "golden", name, function, golden_in, more, 1e-6)
    target, z, s = side(tmp_path / "target", name, function, target_in, more, 1e-4)
    backward = name not in FORWARD_ONLY
    jobs = {"dump": golden, "other": target, "limit": 4.0, "calls": [[name, name, True, backward]], "parameters": []}
    both = json.loads(scores(json.dumps(jobs)))
    jobs = {**jobs, "dump": target, "other": "", "calls": [[name, "", True, backward]]}
    alone = json.loads(scores(json.dumps(jobs)))
    for direction in ("forward", "backward") if backward else ("forward",):
        leaves = both[f"{name}.{direction}"]["leaves"]
        assert len(leaves) == len(y[direction])
        for i, leaf in enumerate(leaves):
            a, b = y[direction][i].double(), z[direction][i].double()
            p, q = r[direction][i], s[direction][i]
            introduced, inherited = (b - q) - (a - p), q - p
            assert torch.linalg.norm(introduced + inherited - (b - a)) <= 1e-12 * torch.linalg.norm(b - a)
            # What the product says of each part is the norm of exactly these.
            assert leaf["introduced"] == pytest.approx(float(torch.linalg.norm(a - p)), rel=1e-9, abs=1e-13)
            assert leaf["inherited"] == pytest.approx(float(torch.linalg.norm(inherited)), rel=1e-9, abs=1e-13)
            other = alone[f"{name}.{direction}"]["leaves"][i]
            assert other["introduced"] == pytest.approx(float(torch.linalg.norm(b - q)), rel=1e-9, abs=1e-13)


# ---- unusual calls


def unusual() -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 6)
    w = torch.randn(6, 6, requires_grad=True)
    y = torch.matmul(x, w)
    torch.add(y, 1).relu_()
    y.detach().clone().add_(x)
    a, b = torch.chunk(y, 2, 1)
    torch.cat([a, b])
    torch.var_mean(y, 1)
    torch.max(y, 1)
    torch.topk(y, 3)
    torch.topk(torch.tensor([2.0, 1.0, 2.0, 2.0]), 2)
    torch.argmax(y, 1)
    torch.tensor([3, 4]).add(2)
    torch.sort(y)
    z = torch.zeros(4, 6)
    z[1] = x[0]
    z[:, 2] = 1.5
    F.scaled_dot_product_attention(*(torch.randn(1, 2, 4, 8) for _ in range(3)))
    F.dropout(y, 0.5)
    torch.bernoulli(torch.full((4,), 0.5))
    torch.empty(3)
    q = checkpoint(lambda t: torch.tanh(torch.matmul(t, w)), y, use_reentrant=False)
    q.sum().backward()


REASONS = {"random", "valueless", "no_output", "no_gradient", "no_op", "other_form", "no_data_file", "unknown_function"}


def test_unusual_calls_are_replayed_or_have_a_typed_reason(tmp_path: Path) -> None:
    dump = record(tmp_path, "L1", unusual, task="tensor")
    bases = [n.removesuffix(".forward") for n in dump.names if n.endswith(".forward")]
    calls = [[b, "", True, f"{b}.backward" in dump.data] for b in bases]
    path = str(dump.folder / "dump.json")
    jobs = {"dump": path, "other": "", "limit": 4.0, "calls": calls, "parameters": []}
    found = json.loads(scores(json.dumps(jobs)))
    assert set(found) == {n for n in dump.names if n.endswith((".forward", ".backward"))}
    for name, entry in found.items():
        if "reason" in entry:
            assert entry["reason"] in REASONS, (name, entry)
        else:
            assert all(leaf["score"] <= 1 for leaf in entry["leaves"]), (name, entry)
    replayed = {n for n, e in found.items() if e.get("leaves")}
    for name in (
        "Tensor.relu_.0.forward",
        "Tensor.add_.0.forward",
        "Torch.chunk.0.forward",
        "Torch.var_mean.0.forward",
        "Torch.max.0.forward",
        "Torch.topk.0.forward",
        "Torch.topk.1.forward",
        "Torch.argmax.0.forward",
        "Torch.sort.0.forward",
        "Functional.scaled_dot_product_attention.0.forward",
        "Torch.matmul.2.forward",  # computed again for the backward pass
    ):
        assert name in replayed, (name, found.get(name), sorted(found))
    assert found["Torch.bernoulli.0.forward"] == {"reason": "random"}


def test_a_tie_is_resolved_as_recorded_or_told_and_a_wrong_index_is_told(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 5.0, 3.0])
    for folder, index, worst in (("right", 1, 0.0), ("wrong", 2, float("inf"))):
        recorder = Recorder(tmp_path / folder)
        recorder.call("Torch.argmax.0", [x], torch.tensor(index), {})
        jobs = {"dump": recorder.write(), "other": "", "limit": 4.0, "calls": [["Torch.argmax.0", "", True, False]]}
        found = json.loads(scores(json.dumps({**jobs, "parameters": []})))
        assert found["Torch.argmax.0.forward"]["leaves"][0]["score"] == worst
