"""A small net recorded twice: once as it is, once with one kernel that is wrong, as on another device."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from capture_tools import write_config
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.pytorch import PrecisionDebugger

RELATIVE = 1e-3  # the error of the wrong kernel
WRONG = "Functional.gelu.2.forward"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


def line_of_gelu() -> int:
    """Where the call stands that is wrong."""
    lines, first = inspect.getsourcelines(Block.forward)
    return first + next(i for i, line in enumerate(lines) if "F.gelu" in line)


class WrongKernel(TorchDispatchMode):
    """The third gelu is too large, below what is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.gelu.default:
            self.seen += 1
            if self.seen == 3:
                return out * (1 + RELATIVE)
        return out


def record(folder: Path, *, wrong: bool, **settings: Any) -> Path:
    """The folder of the one step; the third of four blocks has the wrong gelu."""
    folder.mkdir()
    PrecisionDebugger.reset()
    settings = {"task": "tensor"} | settings
    debugger = PrecisionDebugger(config_path=write_config(folder, settings.pop("level", "mix"), **settings))
    try:
        torch.manual_seed(5)
        model, x = nn.Sequential(*(Block() for _ in range(4))), torch.randn(8, 16)
        debugger.start(model)
        with WrongKernel() if wrong else contextlib.nullcontext():
            model(x).square().mean().backward()
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger.reset()
    return folder / "dump" / "step0"


def record_pair(folder: Path, **settings: Any) -> tuple[Path, Path]:
    """dump.json of the wrong run and of the right one."""
    target, golden = (record(folder / name, wrong=name == "target", **settings) for name in ("target", "golden"))
    return target / "rank" / "dump.json", golden / "rank" / "dump.json"
