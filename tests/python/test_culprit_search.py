"""The search for the operator at fault on recorded runs of small programs, in every mode.

Targets round differently from their golden run (inputs are moved by a unit in the last place), so that nothing is equal
bit by bit and every rule has noise to stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture_tools import debugger
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe import _core

MODES = ("tensor", "sketch", "statistics")
EVERY_MODE = pytest.mark.parametrize("mode", MODES)
Program = Callable[[torch.Tensor], Any]


def settings(mode: str) -> dict[str, Any]:
    if mode == "tensor":
        return {"task": "tensor"}
    return {"task": "statistics", "section": {"summary_mode": mode}}


def run(folder: Path, mode: str, program: Program, *, moved: bool = False, model: Any = None, steps: int = 1) -> Path:
    """Record a program; `moved`: its input is another rounding of the same numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    x = torch.randn(6, 8)
    if moved:
        signs = torch.randint(0, 2, x.shape) * 2 - 1
        x = x * (1 + 2.0**-23 * signs)
    with debugger(folder, "L1", **settings(mode)) as tool:
        for _ in range(steps):
            tool.start(model)
            try:
                program(x.clone())
            finally:
                tool.stop()
            tool.step()
    return folder / "dump"


def search(target: Path, golden: Path, out: Path, *more: str) -> dict[str, Any]:
    """The summary of a comparison."""
    arguments = ["msprobe", "compare", "-tp", target, "-gp", golden, "-o", out, "--no-html", "-q", *more]
    assert _core.main([str(a) for a in arguments]) == 0
    found: dict[str, Any] = json.loads(max(out.glob("compare_summary_*.json")).read_text())
    return found


def compared(tmp_path: Path, mode: str, golden: Program, target: Program, *more: str, **kwargs: Any) -> dict[str, Any]:
    """The `culprit` of two programs."""
    a = run(tmp_path / "golden", mode, golden, **kwargs)
    b = run(tmp_path / "target", mode, target, moved=True, **kwargs)
    summary = search(b, a, tmp_path / "out", *more)
    first = summary["culprit"]["findings"][:1]
    if first:  # the summary's own first_bad is the first finding
        assert summary["first_bad"]["entry"] == (first[0]["entry"] or first[0]["golden_entry"])
        assert summary["first_bad"]["kind"] == first[0]["kind"]
    return summary["culprit"]  # type: ignore[no-any-return]


def names(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["kind"], f["entry"] or f["golden_entry"]) for f in report["findings"]]


class Wrong(TorchDispatchMode):  # type: ignore[misc]
    """Multiplies the result of the n-th call of an operator, below what is recorded."""

    def __init__(self, operator: str, factor: float, number: int = 0) -> None:
        super().__init__()
        self.operator, self.factor, self.left = operator, factor, number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ != self.operator:
            return result
        self.left -= 1
        return result * self.factor if self.left == -1 else result


# ---- alignment


def chain(extra: int = -1, missing: int = -1) -> Program:
    """Six equal calls in a row, each of other numbers; one more behind, or one less at, a place."""

    def program(x: torch.Tensor) -> None:
        numbers = torch.randn(7, 6, 8, generator=torch.Generator().manual_seed(7))
        y = torch.exp(x)
        for i in range(6):
            if i == missing:
                continue
            y = torch.add(y, numbers[i])
            if i == extra:
                y = torch.add(y, numbers[6])
        torch.sum(torch.tanh(y))

    return program


@EVERY_MODE
@pytest.mark.parametrize("place", [0, 3, 5])
def test_one_call_more_in_a_run_of_equal_calls_is_the_one_named(mode: str, place: int, tmp_path: Path) -> None:
    report = compared(tmp_path, mode, chain(), chain(extra=place))
    assert names(report) == [("structure", f"Torch.add.{place + 1}.forward")]
    assert report["findings"][0]["numbers"] == {"extra": 1.0, "missing": 0.0}


@EVERY_MODE
@pytest.mark.parametrize("place", [0, 3, 5])
def test_one_call_less_in_a_run_of_equal_calls_is_the_one_named(mode: str, place: int, tmp_path: Path) -> None:
    report = compared(tmp_path, mode, chain(), chain(missing=place))
    assert len(report["findings"]) == 1, names(report)  # the shift does not spread
    finding = report["findings"][0]
    assert (finding["kind"], finding["golden_entry"]) == ("structure", f"Torch.add.{place}.forward")
    assert finding["entry"] == (f"Torch.add.{place}.forward" if place < 5 else "Torch.tanh.0.forward")
    assert finding["numbers"] == {"extra": 0.0, "missing": 1.0}


@EVERY_MODE
def test_two_calls_in_another_order_are_named(mode: str, tmp_path: Path) -> None:
    def golden(x: torch.Tensor) -> None:
        torch.sum(torch.sin(torch.exp(torch.tanh(x))) * 2)

    def target(x: torch.Tensor) -> None:
        torch.sum(torch.exp(torch.sin(torch.tanh(x))) * 2)

    report = compared(tmp_path, mode, golden, target)
    # One of the two moved: it is one too many here, and one too few there.
    assert names(report)[0] == ("structure", "Torch.sin.0.forward")
    assert {f["kind"] for f in report["findings"]} == {"structure"}
    assert len(report["findings"]) <= 2, names(report)


# ---- provenance


def attention(change: str = "") -> Program:
    w = torch.randn(24, 8, generator=torch.Generator().manual_seed(1))
    if change == "state":
        w[3, 5] += 0.5

    def program(x: torch.Tensor) -> None:
        qkv = F.linear(x, w)
        q, k, v = qkv[:, :8], qkv[:, 8:16], qkv[:, 16:]
        if change == "slice":
            v = qkv[:, 15:23]
        if change == "source":
            v = x
        if change == "view":
            k = k.reshape(8, 6).t()
        if change == "glue":
            q.data.mul_(1.02)
        p = F.softmax(torch.matmul(q, k.transpose(0, 1)) / 8**0.5, dim=-1)
        torch.sum(torch.tanh(torch.matmul(p, v)))

    return program


@EVERY_MODE
@pytest.mark.parametrize(
    ("change", "kinds", "entry"),
    [
        ("slice", {"argument", "glue"}, "Torch.matmul.1.forward"),
        ("source", {"wired", "glue"}, "Torch.matmul.1.forward"),
        ("view", {"argument", "glue"}, "Torch.matmul.0.forward"),
        ("state", {"state"}, "Functional.linear.0.forward"),
    ],
)
def test_what_came_from_elsewhere_is_named_where_it_enters(
    mode: str, change: str, kinds: set[str], entry: str, tmp_path: Path
) -> None:
    report = compared(tmp_path, mode, attention(), attention(change))
    kind, named = names(report)[0]
    expected = {entry}
    if change in ("slice", "view", "source"):  # slicing and transposing may be calls of their own
        expected |= {"Tensor.__getitem__.2.forward", "Tensor.reshape.0.forward", "Tensor.transpose.0.forward"}
        kinds = kinds | {"structure"}
    assert named in expected, names(report)
    assert kind in kinds, names(report)


@EVERY_MODE
def test_state_that_changed_between_steps_is_named_in_the_second_step(mode: str, tmp_path: Path) -> None:
    def make(changed: bool) -> Program:
        w = torch.eye(8)
        memory = w.numpy()  # changed without a call that is recorded
        steps = iter(range(9))

        def program(x: torch.Tensor) -> None:
            if next(steps) == 1 and changed:
                memory[0] *= 1.5
            torch.sum(torch.tanh(torch.matmul(x, w)))

        return program

    a = run(tmp_path / "golden", mode, make(False), steps=2)
    b = run(tmp_path / "target", mode, make(True), moved=True, steps=2)
    summary = search(b, a, tmp_path / "out")
    steps = {r["step"]: names(r["culprit"]) for r in summary["ranks"]}
    assert steps["step0"] == []
    assert steps["step1"] == [("state", "Torch.matmul.0.forward")]


# ---- silence


def zero_gradients(scale: float) -> Program:
    """A bias before a normalisation: its gradient is zero in exact arithmetic, noise in floating point."""

    def program(x: torch.Tensor) -> None:
        torch.manual_seed(2)
        w = torch.randn(8, 8, requires_grad=True)
        b = torch.randn(8, requires_grad=True)
        y = F.batch_norm(F.linear(x, w, b), None, None, training=True)
        loss = torch.sum(torch.tanh(y) ** 2)
        (loss * scale).backward()
        assert b.grad is not None and w.grad is not None
        gradient = b.grad.data  # unrecorded scaling, as loss scalers do
        gradient.mul_(1 / scale)
        torch.mul(gradient, 2.0)

    return program


@EVERY_MODE
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_gradients_that_are_zero_in_exact_arithmetic_are_silent(mode: str, scale: float, tmp_path: Path) -> None:
    assert names(compared(tmp_path, mode, zero_gradients(scale), zero_gradients(scale))) == []


def net(way: str = "") -> Program:
    def program(x: torch.Tensor) -> None:
        torch.manual_seed(3)
        w = torch.randn(8, 8, requires_grad=True)
        v = torch.randn(4, 8, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "bfloat16"):
            y = torch.matmul(x, w.t()) if way == "rewritten" else F.linear(x, w)
            y = F.gelu(F.layer_norm(y, [8]))
            loss = F.cross_entropy(F.linear(y, v).float(), torch.arange(6) % 4)
        loss.backward()

    return program


@EVERY_MODE
@pytest.mark.parametrize("way", ["", "rewritten", "no vendor", "bfloat16"])
def test_harmless_differences_are_silent(mode: str, way: str, tmp_path: Path) -> None:
    def target(x: torch.Tensor) -> None:
        with torch.backends.mkldnn.flags(enabled=way != "no vendor"):
            net(way)(x)

    report = compared(tmp_path, mode, net(), target)
    assert report["verdict"] == "none"
    assert names(report) == []
    # Rule 10: no clean run gives a discovery, and the counts are there.
    assert report["discoveries"]["count"] == 0
    assert report["discoveries"]["q"] == 0.001
    assert report["discoveries"]["calibrated"] == "on CPU"
    assert report["judged"] > 5
    if mode == "tensor":
        assert report["replayed"] > 5


def test_the_same_run_again_has_nothing_to_say(tmp_path: Path) -> None:
    a = run(tmp_path / "golden", "tensor", net())
    b = run(tmp_path / "target", "tensor", net())
    report = search(b, a, tmp_path / "out")["culprit"]
    assert (report["verdict"], report["replayed"], report["consequences"]) == ("none", 0, 0)


# ---- what a finding says


def test_a_finding_has_rule_numbers_and_both_entries_and_the_order_is_the_same_each_time(tmp_path: Path) -> None:
    def target(x: torch.Tensor) -> None:
        with Wrong("gelu", 1 + 1e-3):
            net()(x)

    a = run(tmp_path / "golden", "tensor", net())
    b = run(tmp_path / "target", "tensor", target, moved=True)
    summaries = [search(b, a, tmp_path / f"out{i}") for i in range(2)]
    first, again = (s["culprit"] for s in summaries)
    assert first == again
    finding = first["findings"][0]
    assert (finding["kind"], finding["rule"]) == ("introduced", 7)
    assert finding["entry"] == finding["golden_entry"] == "Functional.gelu.0.forward"
    assert finding["leaf"] == "output.0"
    assert finding["numbers"]["introduced"] == pytest.approx(1e-3, rel=1e-2)
    # A relative error of 1e-3 where rounding alone explains 2^-24 and little more.
    assert 100 < finding["numbers"]["score"] <= 1e-3 * 2**24 * 1.01
    assert finding["numbers"]["p"] < 1e-6
    assert finding["code"].startswith(__file__)
    assert summaries[0]["first_bad"]["entry"] == finding["entry"]
    for other in first["findings"]:
        assert other["rule"] in range(1, 15)
        assert other["sentence"] and (other["entry"] or other["golden_entry"])


@pytest.mark.parametrize(("operator", "number"), [("addmm", 0), ("mm", 0), ("native_layer_norm", 0), ("gelu", 0)])
def test_loss_impact_is_the_difference_of_the_loss(operator: str, number: int, tmp_path: Path) -> None:
    def make(wrong: bool) -> Program:
        def program(x: torch.Tensor) -> None:
            torch.manual_seed(4)
            w = torch.randn(8, 8, dtype=torch.float64).float().requires_grad_()
            b = torch.randn(8, requires_grad=True)
            v = torch.randn(4, 8, requires_grad=True)
            loss = torch.zeros(())

            def forward() -> torch.Tensor:
                y = F.gelu(F.layer_norm(F.linear(x, w, b), [8]) * 2)
                return F.cross_entropy(F.linear(y, v), torch.arange(6) % 4)

            if wrong:
                with Scaled(operator):
                    loss = forward()
            else:
                loss = forward()
            loss.backward()

        return program

    a = run(tmp_path / "golden", "tensor", make(False))
    b = run(tmp_path / "target", "tensor", make(True))
    impact = search(b, a, tmp_path / "out", "--loss-impact")["culprit"]["loss_impact"]
    # A loss of about 2 in float32 has roundings of 1e-7 and less: the difference is far above them.
    assert abs(impact["difference"]) > 5e-6
    assert impact["sum"] == pytest.approx(impact["difference"], rel=0.01, abs=2.5e-7)
    assert impact["unexplained"] == pytest.approx(impact["difference"] - impact["sum"], abs=1e-15)


class Scaled(Wrong):
    """A relative error of 1e-4 in the first half of each row of the first result of an operator."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator, 1.0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ != self.operator or self.left < 0:
            return result
        self.left = -1
        first = result[0] if isinstance(result, tuple) else result
        half = torch.ones_like(first)
        half[..., : half.shape[-1] // 2] = 1 + 1e-4
        first.mul_(half)
        return result
