"""Scores of replayed calls: the formula of docs/culprit.md in NumPy float64, and replays of small recorded calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe import _core
from msprobe.precheck.culprit import scores

U32, TINY32 = 2.0**-24, 2.0**-149


def test_score_is_the_formula_in_numpy() -> None:
    rng = np.random.default_rng(1)
    r = rng.normal(size=(5, 7))
    y = (r + 1e-6 * rng.normal(size=r.shape)).astype(np.float32)
    n = (r + 1e-7 * rng.normal(size=r.shape)).astype(np.float32)
    a = np.abs(rng.normal(size=r.shape))
    kappa = 3.0
    error = np.abs(n.astype(np.float64) - r)
    native = np.maximum(error, np.sqrt((error**2).mean(-1, keepdims=True)))
    raised = np.maximum(a, np.sqrt((a**2).mean(-1, keepdims=True)) / 2)
    ratio = np.abs(y.astype(np.float64) - r) / (U32 * np.abs(r) + kappa * U32 * raised + 2 * native + TINY32)
    found = _core.culprit_score(
        (y.ctypes.data, "torch.float32"), r.ctypes.data, (n.ctypes.data, "torch.float32"), a.ctypes.data, (35, 7), kappa
    )
    expected = (
        ratio.max(),
        np.sqrt((ratio**2).mean()),
        np.linalg.norm(y.astype(np.float64) - r),
        np.linalg.norm(r),
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_classes_that_differ_score_infinitely_and_an_overflow_does_not() -> None:
    def score(y: list[float], r: list[float]) -> float:
        a, b = np.array(y, dtype=np.float32), np.array(r)
        found = _core.culprit_score((a.ctypes.data, "torch.float32"), b.ctypes.data, None, 0, (len(y), 1), 1.0)
        return found[0]

    assert score([np.nan], [1.0]) == np.inf
    assert score([np.inf], [-np.inf]) == np.inf
    assert score([np.inf], [1.0]) == np.inf
    assert score([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0]) == 0
    assert score([np.inf], [1e39]) == 0  # beyond float32
    assert score([], []) == 0


class Recorder:
    """Writes calls as a tensor dump has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "dump_tensor_data").mkdir(parents=True)
        self.data: dict[str, Any] = {}

    def leaf(self, name: str, tensor: torch.Tensor) -> dict[str, Any]:
        torch.save(tensor.detach().clone(), self.folder / "dump_tensor_data" / f"{name}.pt")
        return {
            "type": "torch.Tensor",
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "requires_grad": tensor.requires_grad,
            "data_name": f"{name}.pt",
        }

    def call(self, name: str, args: list[torch.Tensor], output: torch.Tensor, kwargs: dict[str, Any]) -> None:
        self.data[f"{name}.forward"] = {
            "input_args": [self.leaf(f"{name}.forward.input.{i}", a) for i, a in enumerate(args)],
            "input_kwargs": kwargs,
            "output": [self.leaf(f"{name}.forward.output.0", output)],
        }

    def backward(self, name: str, gradient: torch.Tensor, found: list[torch.Tensor]) -> None:
        self.data[f"{name}.backward"] = {
            "input": [self.leaf(f"{name}.backward.input.0", gradient)],
            "output": [self.leaf(f"{name}.backward.output.{i}", t) for i, t in enumerate(found)],
        }

    def write(self) -> str:
        path = self.folder / "dump.json"
        head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": "dump_tensor_data"}
        path.write_text(json.dumps({**head, "data": self.data}))
        return str(path)


def replay(dump: str, name: str, other: str = "") -> dict[str, Any]:
    jobs = {"dump": dump, "other": other, "limit": 4.0, "calls": [[name, name if other else "", True, True]]}
    found: dict[str, Any] = json.loads(scores(json.dumps({**jobs, "parameters": []})))
    return found


CALLS: dict[str, Any] = {
    "Torch.exp.0": (lambda x, w: torch.exp(x), 1),
    "Functional.gelu.0": (lambda x, w: torch.nn.functional.gelu(x), 1),
    "Torch.matmul.0": (lambda x, w: torch.matmul(x, w), 2),
    "Functional.softmax.0": (lambda x, w: torch.softmax(x, -1), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_clean_calls_score_low_and_wrong_ones_high(name: str, tmp_path: Path) -> None:
    function, count = CALLS[name]
    torch.manual_seed(0)
    tensors = [torch.randn(8, 8, requires_grad=True) for _ in range(count)]
    output = function(tensors[0], tensors[-1])
    gradient = torch.randn(8, 8)
    found = list(torch.autograd.grad(output, tensors, gradient))
    kwargs = {"dim": {"type": "int", "value": -1}} if "softmax" in name else {}
    for folder, factor in (("clean", 1.0), ("wrong", 1 + 1e-4)):
        record = Recorder(tmp_path / folder)
        record.call(name, tensors, output * factor, kwargs)
        record.backward(name, gradient, [f * factor for f in found])
        result = replay(record.write(), name)
        for entry in result.values():
            for leaf in entry["leaves"]:
                assert leaf["score"] <= 1 if factor == 1 else leaf["score"] > 100, (name, folder, leaf)


def test_products_in_16_bits_may_be_added_up_from_rounded_pieces(tmp_path: Path) -> None:
    torch.manual_seed(0)
    a, b, rest, bias = (torch.randn(*shape).bfloat16() for shape in ((32, 48), (40, 48), (40, 48), (40,)))
    x, w = torch.cat([a, a], 1), torch.cat([b, 0.1 * rest - b], 1)
    # Two pieces of each sum in bfloat16, nearly equal but for their signs, and the bias afterwards.
    one, other = torch.matmul(x[:, :48], w[:, :48].t()), torch.matmul(x[:, 48:], w[:, 48:].t())
    pieces = one + other + bias
    wrong = pieces.clone()
    wrong[3, 5] += 0.2 * one.float().pow(2).mean().sqrt().bfloat16()  # one element, by a fifth of a piece
    for folder, output in (("pieces", pieces), ("wrong", wrong)):
        record = Recorder(tmp_path / folder)
        record.call("Functional.linear.0", [x, w, bias], output, {})
        (leaf,) = replay(record.write(), "Functional.linear.0")["Functional.linear.0.forward"]["leaves"]
        assert leaf["score"] < 4 if folder == "pieces" else leaf["score"] > 4, (folder, leaf)


@pytest.mark.parametrize("name", ["Torch.tanh.0", "Torch.sigmoid.0"])
def test_gradients_of_saturated_results_may_carry_the_rounding_of_the_result(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.linspace(4, 7, 64).reshape(8, 8)
    gradient = torch.randn(8, 8)
    y = torch.tanh(x) if "tanh" in name else torch.sigmoid(x)
    y = y * (1 - 2.0**-23)  # another kernel: a unit in the last place below
    found = gradient * (1 - y * y) if "tanh" in name else gradient * (1 - y) * y
    for folder, factor in (("other", 1.0), ("wrong", 1.01)):
        record = Recorder(tmp_path / folder)
        record.call(name, [x.requires_grad_()], y, {})
        record.backward(name, gradient, [found * factor])
        (leaf,) = replay(record.write(), name)[f"{name}.backward"]["leaves"]
        assert leaf["score"] < 4 if folder == "other" else leaf["score"] > 4, (folder, leaf)


def test_introduced_and_inherited_errors_add_to_the_difference(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 16)
    sides = []
    for folder, error, moved in (("golden", 0.0, 0.0), ("target", 1e-3, 1e-4)):
        record = Recorder(tmp_path / folder)
        inputs = x * (1 + moved)
        record.call("Torch.exp.0", [inputs], torch.exp(inputs) * (1 + error), {})
        sides.append((record.write(), inputs))
    golden, target = sides
    leaf = replay(golden[0], "Torch.exp.0", target[0])["Torch.exp.0.forward"]["leaves"][0]
    reference = np.exp(golden[1].double().numpy())
    inherited = np.exp(target[1].double().numpy()) - reference
    assert leaf["inherited"] == pytest.approx(np.linalg.norm(inherited), rel=1e-12)
    moved = np.linalg.norm((target[1].double() - golden[1].double()).numpy())
    size = np.linalg.norm(golden[1].double().numpy())
    expected = np.linalg.norm(inherited) * size / (moved * np.linalg.norm(reference))
    assert leaf["amplification"] == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_replayed_has_a_typed_reason(tmp_path: Path) -> None:
    record = Recorder(tmp_path / "d")
    record.call("Torch.bernoulli.0", [torch.rand(4)], torch.ones(4), {})
    record.call("Torch.nothing_of_this_name.0", [torch.rand(4)], torch.ones(4), {})
    record.call("Torch.exp.0", [torch.rand(4)], torch.ones(4), {})
    record.call("Torch.exp.1", [torch.rand(4)], torch.ones(5), {})
    dump = record.write()
    (tmp_path / "d" / "dump_tensor_data" / "Torch.exp.0.forward.input.0.pt").unlink()
    for name, reason in (
        ("Torch.bernoulli.0", "random"),
        ("Torch.nothing_of_this_name.0", "unknown_function"),
        ("Torch.exp.0", "no_data_file"),
        ("Torch.exp.1", "other_form"),
        ("Torch.exp.7", "no_entry"),
    ):
        assert replay(dump, name)[f"{name}.forward"]["reason"] == reason
    assert replay(dump, "Torch.exp.1")["Torch.exp.1.backward"]["reason"] == "no_gradient"
