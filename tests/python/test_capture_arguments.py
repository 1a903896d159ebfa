"""`backward_layout: "arguments"`: one gradient per argument of an API call, equal to that of the isolated call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from capture_tools import record
from torch.utils.checkpoint import checkpoint

G = torch.Generator().manual_seed(3)


def rand(*shape):
    return torch.rand(*shape, generator=G) + 0.1


def isolated(call, values, out_of=lambda out: out):
    """Norms of the gradients of (sum of squares of) the call's outputs with respect to fresh leaves."""
    leaves = [v.detach().clone().requires_grad_() for v in values]
    outs = out_of(call(*[leaf * 1 for leaf in leaves]))  # no leaves, so that in-place calls work
    outs = outs if isinstance(outs, tuple | list) else [outs]
    sum((o**2).sum() for o in outs if o.is_floating_point()).backward()
    return [leaf.grad.double().norm().item() for leaf in leaves]


CASES = {
    "matmul 3-D x 2-D": ("Torch.matmul", torch.matmul, [(2, 3, 4), (4, 5)], []),
    "linear 3-D with bias": ("Functional.linear", F.linear, [(2, 3, 4), (5, 4), (5,)], []),
    "conv2d": ("Functional.conv2d", F.conv2d, [(1, 2, 5, 5), (3, 2, 3, 3), (3,)], []),
    "attention": ("Functional.scaled_dot_product_attention", F.scaled_dot_product_attention, [(1, 2, 4, 3)] * 3, []),
    "layer norm": ("Functional.layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), [(3, 4), (4,), (4,)], [1]),
    "relu_": ("Functional.relu_", torch.relu_, [(3, 4)], []),
    "add_": ("Tensor.add_", lambda x, y: x.add_(y), [(3, 4), (3, 4)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_capture_arguments_gradients_equal_the_isolated_call(case, tmp_path):
    name, call, shapes, gaps = CASES[case]
    values = [rand(*s) for s in shapes]
    expected = isolated(call, values)

    def run():
        leaves = [v.clone().requires_grad_() for v in values]
        inputs = [leaf * 1 for leaf in leaves]
        total = (call(*inputs) ** 2).sum()
        if not name.endswith("_"):  # another user of each input: its share is not ours
            total = total + sum((x**3).sum() for x in inputs)
        total.backward()

    entry = record(tmp_path, "L1", run, backward_layout="arguments").data[f"{name}.0.backward"]
    output = list(entry["output"])
    for gap in gaps:
        assert output.pop(gap) is None
    assert [leaf["Norm"] for leaf in output] == pytest.approx(expected, rel=1e-6)
    assert entry["layout"] == "arguments" and len(entry["input"]) == 1


def only(data, start):
    return next(e for n, e in data.items() if n.startswith(start) and n.endswith(".backward"))


def test_capture_arguments_lists_keywords_and_nulls_keep_their_places(tmp_path):
    a, b, c = rand(2, 3), rand(2, 3), rand(2, 3)

    def run():
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        (torch.cat([x, c, y], dim=1) ** 2).sum().backward()
        (F.linear(c, weight=x, bias=None) ** 2).sum().backward()
        (torch.einsum("ij,kj->ik", x, y) ** 2).sum().backward()
        (torch.mul(c, x) ** 2).sum().backward()

    data = record(tmp_path, "L1", run, backward_layout="arguments").data
    joined, dim = only(data, "Torch.cat")["output"]
    assert dim is None
    assert joined[1] is None
    assert [joined[0]["Norm"], joined[2]["Norm"]] == pytest.approx([2 * a.norm().item(), 2 * b.norm().item()], rel=1e-6)
    # Positional arguments, then the values of the keywords: input, weight, bias.
    first, weight, bias = only(data, "Functional.linear")["output"]
    assert first is None and bias is None and weight["shape"] == [2, 3]
    text, left, right = only(data, "Torch.einsum")["output"]
    assert text is None and left["shape"] == right["shape"] == [2, 3]
    # The argument without a gradient before one with: [null, gradient].
    none, factor = only(data, "Torch.mul")["output"]
    assert none is None and factor["shape"] == [2, 3]


def test_capture_arguments_same_tensor_twice_has_the_sum_at_both_places(tmp_path):
    value = rand(3)

    def run():
        x = value.clone().requires_grad_()
        torch.mul(x, x).sum().backward()

    first, second = only(record(tmp_path, "L1", run, backward_layout="arguments").data, "Torch.mul")["output"]
    assert first["Norm"] == second["Norm"] == pytest.approx(2 * value.norm().item(), rel=1e-6)


def test_capture_arguments_unused_output_stays_null(tmp_path):
    def run():
        x = rand(4, 2).requires_grad_()
        first, _ = torch.split(x * 1, 2)
        first.sum().backward()

    entry = only(record(tmp_path, "L1", run, backward_layout="arguments").data, "Torch.split")
    assert entry["input"][0]["Max"] == 1 and entry["input"][1] is None
    assert entry["output"][0]["shape"] == [4, 2] and entry["output"][1] is None


def test_capture_arguments_no_gradients_leave_no_entry(tmp_path):
    def run():
        with torch.no_grad():
            torch.relu(rand(3))
        x = rand(3).requires_grad_()
        y = F.dropout(x * 1, 0.0)
        (y * 2).sum().backward()

    names = record(tmp_path, "L1", run, backward_layout="arguments").names
    assert not any(n.startswith(("Torch.relu", "Functional.dropout")) for n in names if n.endswith("backward"))


def test_capture_arguments_two_backwards_do_not_add_up(tmp_path):
    def run():
        x = torch.ones(3, requires_grad=True)
        y = torch.matmul(x, torch.ones(3))
        y.backward(retain_graph=True)
        y.backward()

    entry = only(record(tmp_path, "L1", run, backward_layout="arguments").data, "Torch.matmul")
    assert entry["output"][0]["Max"] == 1


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("layout", ["node", "arguments"])
def test_capture_gradients_of_checkpointed_calls_belong_to_the_forward_that_owns_the_graph(reentrant, layout, tmp_path):
    """Non-reentrant: the first forward. Reentrant: the recomputation (capture.md 6)."""

    def run():
        x = rand(3).requires_grad_()
        checkpoint(lambda t: torch.tanh(torch.sigmoid(t)), x, use_reentrant=reentrant).sum().backward()

    names = record(tmp_path, "L1", run, backward_layout=layout).names
    found = [n for n in names if n.startswith("Torch.sigmoid") and n.endswith("backward")]
    assert found == [f"Torch.sigmoid.{1 if reentrant else 0}.backward"]


def test_capture_arguments_create_graph_records_the_second_pass_too(tmp_path):
    def run():
        x = torch.tensor([2.0], requires_grad=True)
        y = torch.pow(x * 1, 3)
        (g,) = torch.autograd.grad(y, x, create_graph=True)  # 3 x^2 = 12
        g.backward()  # 6 x = 12

    entry = only(record(tmp_path, "L1", run, backward_layout="arguments").data, "Torch.pow")
    assert entry["output"][0]["Max"] == 12


def test_capture_arguments_calls_inside_torch_func_raise_no_warning(tmp_path, capsys):
    def run():
        torch.func.grad(lambda v: torch.relu(v).sum())(torch.ones(3))

    names = record(tmp_path, "L1", run, backward_layout="arguments").names
    assert names[:2] == ["Torch.relu.0.forward", "Tensor.sum.0.forward"]
    assert "WARNING" not in capsys.readouterr().out
