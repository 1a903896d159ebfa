"""Collection of dumps from PyTorch programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe.pytorch._random_save import random_save
from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.seed import seed_all
from msprobe.pytorch.unit import module_dump, module_dump_end

if TYPE_CHECKING:
    from msprobe._compare import compare, compare_distributed

__all__ = [
    "PrecisionDebugger",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "random_save",
    "seed_all",
]


def __getattr__(name: str) -> Any:
    if name in ("compare", "compare_distributed"):
        from msprobe import _compare

        return getattr(_compare, name)
    raise AttributeError(f"module 'msprobe.pytorch' has no attribute {name!r}")
