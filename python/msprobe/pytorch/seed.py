"""`seed_all`: fix every random seed and, on request, determinism and dropout (dump.md 2.4)."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from msprobe.errors import ConfigError, ErrorCode


def _refuse(name: str, value: Any, expected: str) -> None:
    raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"seed_all({name}={value!r}): {expected} was expected", name)


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
    """Seed Python, NumPy, torch and all accelerators.

    Args:
        seed: 0 to 2**32 - 1.
        mode: Deterministic algorithms (`torch.use_deterministic_algorithms`).
        rm_dropout: `torch.nn.functional.dropout`, `dropout2d` and `dropout3d` drop nothing from now on.
        is_enhanced: Every call of a random function starts from the same generator state.

    Raises:
        ConfigError: An argument has the wrong type or range.
    """
    if type(seed) is not int or not 0 <= seed < 2**32:
        _refuse("seed", seed, "an int from 0 to 4294967295")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        if type(value) is not bool:
            _refuse(name, value, "a bool")
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    _seed_cuda(seed)
    _seed_npu(seed)
    if rm_dropout:
        _remove_dropout()
    if is_enhanced:
        from msprobe.pytorch import _fixed_random

        _fixed_random.install()


def _seed_cuda(seed: int) -> None:
    if not torch.cuda.is_available():
        return
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    version = torch.version.cuda
    if version and tuple(int(p) for p in version.split(".")[:2]) >= (10, 2):
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def _seed_npu(seed: int) -> None:
    npu: Any = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    if npu is None or not npu.is_available():
        return
    npu.manual_seed_all(seed)
    os.environ.update(
        HCCL_DETERMINISTIC="True", LCCL_DETERMINISTIC="1", CLOSE_MATMUL_K_SHIFT="1", ATB_LLM_LCOC_ENABLE="0"
    )


def _without_dropping(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if p < 0.0 or p > 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        return original(input, 0.0, training, inplace)

    dropout.__msprobe_without_dropping__ = True  # type: ignore[attr-defined]
    return dropout


def _remove_dropout() -> None:
    functional = torch.nn.functional
    for name in ("dropout", "dropout2d", "dropout3d"):
        original = getattr(functional, name)
        if not hasattr(original, "__msprobe_without_dropping__"):
            setattr(functional, name, _without_dropping(original))
