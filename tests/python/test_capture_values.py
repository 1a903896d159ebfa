"""Statistics of real models against torch in float64, and tensors and checksums against the tensors themselves."""

from __future__ import annotations

import zlib
from typing import Any

import capture_nets
import pytest
import torch
from capture_tools import debugger, read_step, record
from torch import nn


def statistics(t: torch.Tensor) -> dict[str, Any]:
    wide = t.detach().to(torch.float64)
    return {
        "shape": list(t.shape),
        "Max": wide.max().item(),
        "Min": wide.min().item(),
        "Mean": wide.mean().item(),
        "Norm": wide.norm().item(),
    }


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else []


def leaves(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value] if "Max" in value else [x for v in value.values() for x in leaves(v)]
    return [x for v in value for x in leaves(v)] if isinstance(value, list) else []


class Oracle:
    """Independent hooks on every module: statistics in float64 of inputs, outputs, parameters and their gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.entries: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.calls: dict[str, int] = {}
        for path, module in model.named_modules():
            if module is not model:
                name = f"Module.{path}.{type(module).__name__}"
                module.register_forward_pre_hook(self.before(name), with_kwargs=True)
                module.register_forward_hook(self.after(name))

    def before(self, name: str):
        def hook(module, args, kwargs):
            n = self.calls[name] = self.calls.get(name, -1) + 1
            self.entries[f"{name}.forward.{n}"] = {
                "input_args": [statistics(t) for t in flat(args)],
                "input_kwargs": [statistics(t) for t in flat(kwargs)],
            }

        return hook

    def after(self, name: str):
        def hook(module, args, output):
            entry = self.entries[f"{name}.forward.{self.calls[name]}"]
            entry["output"] = [statistics(t) for t in flat(output)]
            entry["parameters"] = [statistics(p) for p in module._parameters.values() if p is not None]

        return hook


@pytest.mark.parametrize("script", ["llama", "bert", "resnet", "lstm", "routing", "residual"])
def test_capture_module_statistics_of_real_models_equal_float64_arithmetic(script, tmp_path):
    pytest.importorskip("transformers") if script in ("llama", "bert") else None
    model, step = capture_nets.SCRIPTS[script]()
    oracle = Oracle(model)
    data = record(tmp_path, "mix", step, model).data
    compared = 0
    for name, parts in oracle.entries.items():
        for part, wanted in parts.items():
            got = leaves(data[name][part])
            assert len(got) == len(wanted), (name, part)
            for leaf, want in zip(got, wanted, strict=True):
                assert leaf["shape"] == want["shape"]
                assert (leaf["Max"], leaf["Min"]) == (want["Max"], want["Min"]), (name, part)
                scale = max(abs(want["Max"]), abs(want["Min"]))
                assert leaf["Mean"] == pytest.approx(want["Mean"], rel=1e-9, abs=1e-12 * scale), (name, part)
                assert leaf["Norm"] == pytest.approx(want["Norm"], rel=1e-9), (name, part)
                compared += 1
    assert compared > 2 * len(oracle.entries)


def test_capture_parameter_gradients_are_the_accumulated_values(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    x = torch.randn(4, 3)
    sums: list[dict[str, Any]] = []

    def run() -> None:
        for _ in range(2):
            model(x).sum().backward()
            sums.append({n: statistics(p.grad) for n, p in model.named_parameters()})

    data = record(tmp_path, "L0", run, model).data
    for n, wanted in enumerate(sums):
        for path in ("0", "2"):
            entry = data[f"Module.{path}.Linear.parameters_grad.{n}"]
            for name in ("weight", "bias"):
                got, want = entry[name][0], wanted[f"{path}.{name}"]
                assert got["Max"] == want["Max"] and got["Norm"] == pytest.approx(want["Norm"], rel=1e-12)


def test_capture_api_gradients_are_those_of_the_last_node(tmp_path):
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    seed = torch.randn(3, 2)
    entry = record(tmp_path, "L1", lambda: torch.matmul(x, w).backward(seed)).data["Torch.matmul.0.backward"]
    want = [statistics(seed), statistics(seed @ w.T), statistics(x.T @ seed)]
    for leaf, s in zip(entry["input"] + entry["output"], want, strict=True):
        assert leaf["shape"] == s["shape"]
        assert leaf["Max"] == pytest.approx(s["Max"], rel=1e-6) and leaf["Norm"] == pytest.approx(s["Norm"], rel=1e-6)


def module_gradients(folder, forward, inputs, use):
    """What the backward entry of a module around `forward` says, and the same call behind fresh leaves."""

    class Inner(nn.Module):
        def forward(self, *args):
            return forward(*args)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = Inner()

        def forward(self, *args):
            return self.m(*[a * 2 if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args])

    model = Outer()
    entry = record(folder, "L0", lambda: use(model(*inputs), *inputs).backward(), model).data[
        "Module.m.Inner.backward.0"
    ]
    fresh = [
        (a * 2).detach().requires_grad_() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in inputs
    ]
    out = forward(*[a.clone() if isinstance(a, torch.Tensor) else a for a in fresh])
    wanted = [t for t in fresh if isinstance(t, torch.Tensor) and t.requires_grad]
    return entry, torch.autograd.grad(
        use(out, *[a.detach() if isinstance(a, torch.Tensor) else a for a in fresh]), wanted
    )


CALLS = {
    "matmul_3d": (torch.matmul, [(2, 3, 4), (4, 4)]),
    "linear_3d": (nn.functional.linear, [(2, 3, 4), (5, 4), (5,)]),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), [(3, 4), (4, 5)]),
    "inplace_relu": (lambda a: torch.relu_(a), [(4, 4)]),
    "inplace_add": (lambda a, b: a.add_(b), [(4, 4), (4, 4)]),
    "view": (lambda a: a.view(2, 8), [(4, 4)]),
    "twice_inside": (lambda a: torch.exp(a) + torch.sin(a) + a, [(4, 4)]),
    "same_tensor_twice": (lambda a: a * a, [(3, 3)]),
    "attention": (nn.functional.scaled_dot_product_attention, [(1, 2, 8, 4)] * 3),
}


@pytest.mark.parametrize("case", CALLS)
def test_capture_module_gradients_equal_the_isolated_call(case, tmp_path):
    torch.manual_seed(0)
    forward, shapes = CALLS[case]
    inputs = [torch.randn(*s, requires_grad=True) for s in shapes]
    # The inputs are used beside the module too: only the module's share counts.
    entry, wanted = module_gradients(tmp_path, forward, inputs, lambda o, *a: o.pow(2).sum() + sum(t.sum() for t in a))
    got = entry["output"]
    assert len(got) == len(wanted)
    for leaf, gradient in zip(got, wanted, strict=True):
        want = statistics(gradient)
        assert leaf["shape"] == want["shape"]
        assert leaf["Max"] == pytest.approx(want["Max"], rel=1e-6)
        assert leaf["Norm"] == pytest.approx(want["Norm"], rel=1e-6)


def test_capture_module_gradients_of_unused_outputs_are_null(tmp_path):
    entry, wanted = module_gradients(
        tmp_path, lambda a: torch.split(a, 2, 1), [torch.randn(4, 6, requires_grad=True)],
        lambda o, *_: o[0].sum() + o[2].pow(2).sum(),
    )  # fmt: skip
    assert [leaf is None for leaf in entry["input"]] == [False, True, False] or entry["input"][1]["Max"] == 0
    assert entry["output"][0]["Norm"] == pytest.approx(statistics(wanted[0])["Norm"], rel=1e-6)


def test_capture_module_gradients_when_the_input_is_handed_on(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Identity(), nn.Linear(2, 1))
    x = torch.randn(1, 2)
    entry = record(tmp_path, "L0", lambda: model(x).sum().backward(), model).data["Module.1.Identity.backward.0"]
    assert entry["input"] == [None] and entry["output"] == [None]
    assert {a["reason"] for a in entry["absent"].values()} == {"the module handed its input on"}


def test_capture_module_gradients_of_a_second_backward_overwrite(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = torch.randn(3, 2)

    def run() -> None:
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        (2 * loss).backward()

    leaf = record(tmp_path, "L0", run, model).data["Module.1.Tanh.backward.0"]["input"][0]
    assert (leaf["Max"], leaf["Min"]) == (2.0, 2.0)  # of the second pass alone, not 1 + 2


def test_capture_saved_tensors_and_checksums_are_those_of_the_call(tmp_path):
    x = torch.randn(3, 5).t()
    kept: dict[str, torch.Tensor] = {}

    def run() -> None:
        y = x.clone()
        kept["in"] = y.clone()
        y += 1
        kept["out"] = y.clone()

    saving, summing = tmp_path / "tensor", tmp_path / "md5"
    saving.mkdir()
    summing.mkdir()
    dump = record(saving, "L1", run, task="tensor")
    entry = dump.data["Tensor.__iadd__.0.forward"]
    for leaf, key in ((entry["input_args"][0], "in"), (entry["output"][0], "out")):
        saved = torch.load(dump.folder / "dump_tensor_data" / leaf["data_name"], weights_only=True)
        assert torch.equal(saved, kept[key])
    entry = record(summing, "L1", run, section={"summary_mode": "md5"}).data["Tensor.__iadd__.0.forward"]
    for leaf, key in ((entry["input_args"][0], "in"), (entry["output"][0], "out")):
        assert leaf["md5"] == f"{zlib.crc32(kept[key].contiguous().numpy().tobytes()):08x}"


def test_capture_data_mode_and_list_select_entries(tmp_path):
    x = torch.ones(2, requires_grad=True)

    def run() -> None:
        torch.exp(torch.sin(x)).sum().backward()

    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert record(first, "L1", run, section={"list": ["sin"]}).names == ["Torch.sin.0.forward", "Torch.sin.0.backward"]
    data = record(second, "L1", run, section={"data_mode": ["backward", "output"]}).data
    assert data and all(list(e) == ["output"] and n.endswith("backward") for n, e in data.items())


def test_capture_token_range_records_the_chosen_forward_calls(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    x = torch.randn(1, 2)
    with debugger(tmp_path, "L0") as tool:
        tool.start(model, token_range=[1, 2])
        for _ in range(5):
            model(x)
        tool.stop()
        tool.step()
    assert read_step(tmp_path).names == ["Module.0.Linear.forward.0", "Module.0.Linear.forward.1"]
