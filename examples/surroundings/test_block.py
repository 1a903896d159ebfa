"""A module held to its baseline.

    pytest -p msprobe.integrations.pytest_plugin test_block.py --msprobe-update

writes it; without the last option it is compared.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """Norm and two layers."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


def test_block(msprobe_baseline: Any) -> None:
    """BLOCK_EPS=1e-2 in the environment makes it drift."""
    torch.manual_seed(0)
    block = Block(8, float(os.environ.get("BLOCK_EPS", "1e-5")))
    msprobe_baseline.check(block, torch.randn(2, 3, 8), backward=True)
