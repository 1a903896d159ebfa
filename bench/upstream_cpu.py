"""Run the pre-check of the installed original package with the CPU standing in for the accelerator.

    python upstream_cpu.py acc_check -api_info dump.json -o out

Nothing of the package is changed on disk: in memory the variable that names the device becomes "cpu", and choosing a
CUDA device does nothing.
"""

from __future__ import annotations

import importlib
import sys

import torch

BASE = "msprobe.pytorch.api_accuracy_checker.acc_check."


def main() -> None:
    tool = importlib.import_module(BASE + "acc_check")
    utilities = importlib.import_module(BASE + "acc_check_utils")
    torch.cuda.set_device = lambda *_, **__: None
    tool.current_device = utilities.current_device = "cpu"
    del sys.argv[0]
    tool._acc_check()


if __name__ == "__main__":
    main()
