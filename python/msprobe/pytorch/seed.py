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
from msprobe.pytorch import _log


def _refuse(name: str, value: Any, expected: str) -> None:
    raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"seed_all({name}={value!r}): {expected} was expected", name)


class SeedSettings:
    """What `seed_all` changed, and what it was before. `restore()` puts it back (random states are not rewound)."""

    def __init__(self) -> None:
        """Nothing is changed yet."""
        self._undo: list[Callable[[], Any]] = []
        self._changes: list[str] = []

    @property
    def changes(self) -> list[str]:
        """One text for each setting that is another one now."""
        return list(self._changes)

    def note(self, text: str, undo: Callable[[], Any]) -> None:
        """Remember one change."""
        self._changes.append(text)
        self._undo.append(undo)

    def restore(self) -> None:
        """Put every setting back, the last one first. A second call does nothing."""
        while self._undo:
            self._undo.pop()()
        self._changes.clear()

    def environment(self, name: str, value: str) -> None:
        """Set a variable."""
        before = os.environ.get(name)
        os.environ[name] = value
        if before == value:
            return
        self.note(
            f"{name}={value}",
            lambda: os.environ.pop(name, None) if before is None else os.environ.__setitem__(name, before),
        )

    def attribute(self, owner: Any, name: str, value: Any, text: str) -> None:
        """Set an attribute."""
        before = getattr(owner, name)
        setattr(owner, name, value)
        if before is not value and before != value:
            self.note(text, lambda: setattr(owner, name, before))


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> SeedSettings:
    """Seed Python, NumPy, torch and all accelerators, and say which settings were changed for it.

    A setting of the program that is stricter than what is asked for stays: `mode=False` does not turn off
    deterministic algorithms that the program has turned on.

    Args:
        seed: 0 to 2**32 - 1.
        mode: Deterministic algorithms (`torch.use_deterministic_algorithms`).
        rm_dropout: `torch.nn.functional.dropout`, `dropout2d` and `dropout3d` drop nothing from now on.
        is_enhanced: Every call of a random function starts from the same generator state.

    Returns:
        What was changed; its `restore()` puts the settings back.

    Raises:
        ConfigError: An argument has the wrong type or range.
    """
    if type(seed) is not int or not 0 <= seed < 2**32:
        _refuse("seed", seed, "an int from 0 to 4294967295")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        if type(value) is not bool:
            _refuse(name, value, "a bool")
    settings = SeedSettings()
    random.seed(seed)
    settings.environment("PYTHONHASHSEED", str(seed))
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    _set_deterministic(mode, settings)
    _seed_cuda(seed, settings)
    _seed_npu(seed, settings)
    if rm_dropout:
        _remove_dropout(settings)
    if is_enhanced:
        from msprobe.pytorch import _fixed_random

        settings.note("random functions repeat their numbers", _fixed_random.install())
    text = ", ".join(settings.changes) or "no setting was changed"
    _log.log(_log.INFO, f"seed_all({seed}): {text}")
    return settings


def _set_deterministic(mode: bool, settings: SeedSettings) -> None:
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if not mode:
        if enabled:
            _log.log(_log.INFO, "seed_all(mode=False): deterministic algorithms are on already and stay on")
        return
    torch.use_deterministic_algorithms(True)
    if not enabled or warn_only:
        settings.note(
            "deterministic algorithms are on",
            lambda: torch.use_deterministic_algorithms(enabled, warn_only=warn_only),
        )


def _seed_cuda(seed: int, settings: SeedSettings) -> None:
    if not torch.cuda.is_available():
        return
    torch.cuda.manual_seed_all(seed)
    cudnn: Any = torch.backends.cudnn
    settings.attribute(cudnn, "deterministic", True, "cudnn.deterministic is on")
    settings.attribute(cudnn, "benchmark", False, "cudnn.benchmark is off")
    version = torch.version.cuda
    # Either of the two sizes that cuBLAS knows makes it deterministic; a choice of the program stays.
    chosen = os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8")
    if version and tuple(int(p) for p in version.split(".")[:2]) >= (10, 2) and not chosen:
        settings.environment("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def _seed_npu(seed: int, settings: SeedSettings) -> None:
    npu: Any = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    if npu is None or not npu.is_available():
        return
    npu.manual_seed_all(seed)
    for name, value in (
        ("HCCL_DETERMINISTIC", "True"),
        ("LCCL_DETERMINISTIC", "1"),
        ("CLOSE_MATMUL_K_SHIFT", "1"),
        ("ATB_LLM_LCOC_ENABLE", "0"),
    ):
        settings.environment(name, value)


def _without_dropping(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if p < 0.0 or p > 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        return original(input, 0.0, training, inplace)

    dropout.__msprobe_without_dropping__ = True  # type: ignore[attr-defined]
    return dropout


def _remove_dropout(settings: SeedSettings) -> None:
    functional = torch.nn.functional
    for name in ("dropout", "dropout2d", "dropout3d"):
        original = getattr(functional, name)
        if not hasattr(original, "__msprobe_without_dropping__"):
            settings.attribute(functional, name, _without_dropping(original), f"{name} drops nothing")
