"""Train a small ConvNeXt-shaped net on handwritten digits and dump its steps.

    python digits.py DUMP_PATH [--eps MODULE=VALUE]

`--eps blocks.1.norm=1e-3` gives one LayerNorm another epsilon: the wrong layer that the comparison has to find.
The lines with `debugger` are all that collection adds to the script.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger, seed_all

STEPS = 3


class Block(nn.Module):
    """Depthwise convolution, LayerNorm over channels, two linear layers, residual; small at first as in ConvNeXt."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 3, padding=1, groups=width)
        nn.init.trunc_normal_(self.dwconv.weight, std=0.02)
        nn.init.zeros_(self.dwconv.bias)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 2 * width)
        self.pwconv2 = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, width, height, width) to the same shape."""
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class Net(nn.Module):
    """Stem, three blocks, mean over positions, linear head."""

    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 2, stride=2)
        self.blocks = nn.Sequential(Block(width), Block(width), Block(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (batch, 1, 8, 8) to logits (batch, classes)."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def train(dump_path: Path, change: str | None) -> list[float]:
    """Train a few steps with collection on and return the losses."""
    seed_all(seed=1234, mode=True)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels)
    net = Net()
    if change:
        name, value = change.split("=")
        net.get_submodule(name).eps = float(value)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    config = dump_path.with_suffix(".config.json")
    settings = {"task": "statistics", "level": "mix", "dump_path": str(dump_path), "rank": [], "step": [0, 1]}
    settings["statistics"] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    config.write_text(json.dumps(settings, indent=1))
    debugger = PrecisionDebugger(config_path=str(config))

    losses = []
    for step in range(STEPS):
        batch = slice(64 * step, 64 * (step + 1))
        debugger.start(model=net)
        loss = F.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump_path", type=Path)
    parser.add_argument("--eps", metavar="MODULE=VALUE")
    options = parser.parse_args()
    options.dump_path.parent.mkdir(parents=True, exist_ok=True)
    losses = train(options.dump_path, options.eps)
    print("losses:", " ".join(f"{loss:.9g}" for loss in losses))


if __name__ == "__main__":
    main()
