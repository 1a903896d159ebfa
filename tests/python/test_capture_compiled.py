"""`compiled: "leaf"` (decisions 54): compiled modules run compiled and are recorded as one module."""

from __future__ import annotations

import pytest
import torch
from capture_tools import debugger, read_step
from torch import nn

pytest.importorskip("torch._dynamo")


def compiled_net():
    """A net with a compiled middle, and how often the compiler was asked and its product ran."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    counts = {"compiled": 0, "ran": 0}

    def backend(graph, inputs):
        counts["compiled"] += 1

        def run(*args):
            counts["ran"] += 1
            return graph.forward(*args)

        return run

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            middle = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
            self.middle = torch.compile(middle, backend=backend, fullgraph=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.middle(self.first(x)))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(3, 4)

    def step():
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return net, optimizer, step, counts


@pytest.mark.parametrize("first_inside", [False, True])
def test_capture_compiled_module_runs_compiled_and_is_one_entry(first_inside, tmp_path):
    net, _, step, counts = compiled_net()
    call = type(net.middle).__call__
    if not first_inside:
        step()
    with debugger(tmp_path, "mix", compiled="leaf") as tool:
        tool.start(net)
        step()
        tool.stop()
        tool.step()
    step()
    assert type(net.middle).__call__ is call
    assert counts == {"compiled": 1, "ran": 2 if first_inside else 3}
    names = read_step(tmp_path).names
    assert [n for n in names if n.startswith("Module") and ".forward." in n] == [
        "Module.first.Linear.forward.0",
        "Module.middle.Sequential.forward.0",
    ]
    assert "Module.middle.Sequential.backward.0" in names
    assert "Functional.linear.0.forward" in names and "Functional.linear.1.forward" not in names
    assert "Torch.relu.0.forward" in names and "Torch.tanh.0.forward" not in names


@pytest.mark.parametrize(
    ("compiled", "note"),
    [
        ("leaf", "(compiled modules ran compiled, compiled functions eagerly, in all runs)"),
        ("eager", "(compiled regions ran eagerly, in all runs)"),
    ],
)
def test_check_neutral_says_how_compiled_regions_ran(compiled, note, tmp_path):
    net, optimizer, step, counts = compiled_net()
    with debugger(tmp_path, "mix", compiled=compiled) as tool:
        answer = tool.check_neutral(step, net, optimizer, steps=2)
    assert answer and str(answer).endswith(note)
    assert counts["ran"] == (6 if compiled == "leaf" else 0)  # three runs of two steps


def test_capture_compiled_root_is_recorded_itself(tmp_path):
    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Linear(4, 4)), backend="eager", fullgraph=True)
    with debugger(tmp_path, "L0", compiled="leaf") as tool:
        tool.start(model)
        model(torch.ones(1, 4))
        tool.stop()
        tool.step()
    assert read_step(tmp_path).names == ["Module.Sequential.forward.0"]
