"""Which API calls `risk_level` selects (dump.md 9.6), and functions that no list names."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from capture_tools import record


def script():
    x = torch.ones(2, 2)
    F.linear(x, x)
    torch.chain_matmul(x, x)
    torch.gather(x, 0, torch.zeros(1, 1, dtype=torch.int64))
    x.half().float().to(torch.bfloat16).clamp(0, 1)
    x.reshape(4)
    x.view(4)
    torch.relu(-x)
    torch.ops.aten.add(x, x)
    torch.linalg.eigh(x)
    torch.fft.fft(x)


CORE = ["Functional.linear", "Torch.chain_matmul"]
FOCUS = [
    *CORE, "Torch.gather", "Tensor.half", "Tensor.float", "Tensor.to", "Tensor.clamp", "Torch.relu",
]  # fmt: skip
ALL = [*FOCUS[:-1], "Tensor.reshape", "Torch.relu"]
EVERY = [*ALL[:-1], "Tensor.view", "Tensor.neg", "Torch.relu", "Aten.add", "Torch.eigh", "Torch.fft"]


@pytest.mark.filterwarnings("ignore:torch.chain_matmul")
@pytest.mark.parametrize(("level", "expected"), [("CORE", CORE), ("FOCUS", FOCUS), ("ALL", ALL), ("EVERY", EVERY)])
def test_capture_risk_level_selects_by_the_published_classes(level, expected, tmp_path):
    """CORE has linear and chain_matmul but not Torch.gather; casts and clamp are in the default class (B9)."""
    names = [n.removesuffix(".0.forward") for n in record(tmp_path, "L1", script, risk_level=level).names]
    factories = ("Torch.ones", "Torch.zeros")  # listed as LOW, recorded where everything is
    assert [n for n in names if not n.startswith(factories)] == expected


def test_capture_every_keeps_the_true_path_and_the_gradients(tmp_path):
    def run():
        x = torch.eye(2, requires_grad=True)
        torch.linalg.eigh(x)[0].sum().backward()
        x.view(4).sum().backward()

    data = record(tmp_path, "L1", run, risk_level="EVERY").data
    assert data["Torch.eigh.0.forward"]["qualified"] == "torch.linalg.eigh"
    assert data["Tensor.view.0.backward"]["output"][0]["shape"] == [2, 2]


def test_capture_every_leaves_reads_of_properties_and_hooks_alone(tmp_path):
    seen = []

    def run():
        x = torch.ones(2, 2, requires_grad=True)
        y = x * 2
        assert (y.shape, y.dtype, y.T.shape, y.is_leaf) == ((2, 2), torch.float32, (2, 2), False)
        y.register_hook(seen.append)
        with torch.no_grad():
            y.sum()
        repr(y)
        y.sum().backward()

    names = record(tmp_path, "L1", run, risk_level="EVERY").names
    assert [n for n in names if n.endswith("forward") and not n.startswith("Torch.ones")] == [
        "Tensor.__mul__.0.forward",
        "Tensor.sum.0.forward",
        "Tensor.sum.1.forward",
        "Tensor.numel.0.forward",  # asked by backward() itself
    ]
    assert len(seen) == 1
