"""Recomputed calls carry the key `is_recompute` of releases 1.x and 8.x (dump.md 7.6)."""

from __future__ import annotations

import capture_nets
import pytest
import torch
from capture_tools import record
from torch import nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), reentrant

    def forward(self, x):
        return checkpoint(self.inner, x * 1, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_capture_is_recompute_marks_every_forward_entry(reentrant, tmp_path):
    model = Checkpointed(reentrant)

    def run():
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()

    data = record(tmp_path, "mix", run, nn.Sequential(model)).data
    forward = {n: e["is_recompute"] for n, e in data.items() if ".forward" in n}
    repeated = {n for n, again in forward.items() if again}
    assert repeated >= {"Functional.linear.1.forward", "Module.0.inner.0.Linear.forward.1"}
    assert ("Torch.tanh.1.forward" in repeated) == reentrant  # the other kind ends early, at this call
    for first in ("Functional.linear.0.forward", "Tensor.__mul__.0.forward", "Tensor.sum.0.forward"):
        assert forward[first] is False
    assert {n for n, again in forward.items() if again} == {n for n, e in data.items() if "recompute_of" in e}
    assert not any("is_recompute" in e for n, e in data.items() if ".forward" not in n)
    (tmp_path / "none").mkdir()
    none = record(tmp_path / "none", "mix", run, nn.Sequential(model), evidence="none").data
    assert not any("is_recompute" in e for e in none.values())


def test_capture_is_recompute_comes_after_the_parts(tmp_path):
    model, step = capture_nets.SCRIPTS["checkpoints"]()
    data = record(tmp_path, "L0", step, model).data
    entry = next(e for n, e in data.items() if n.startswith("Module.") and ".forward." in n)
    assert list(entry)[:4] == ["input_args", "input_kwargs", "output", "parameters"]
    assert list(entry).index("is_recompute") >= 4
