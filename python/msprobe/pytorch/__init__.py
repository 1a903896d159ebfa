"""Collection of dumps from PyTorch programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe.errors import ErrorCode, MsprobeError
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


# Names that other releases export. Importing them works, so that scripts start; using them says what there is instead.
_ELSEWHERE = {
    "TrainerMon": 'the monitor of training is not part of this tool; parameter gradients are recorded at level "L0"',
    "set_fx_dump_config": "dumping of FX graphs needs an NPU build of PyTorch and is not part of this tool",
    "set_ge_dump_config": "dumping of GE graphs needs an NPU build of PyTorch and is not part of this tool",
}
_MISSING_EXTENSIONS = ("acl_save", "AclGraphDumper")  # None there too when their extension is missing


def _elsewhere(name: str) -> Any:
    def use(*_: Any, **__: Any) -> Any:
        raise MsprobeError(ErrorCode.UNSUPPORTED, f"{name}: {_ELSEWHERE[name]}")

    use.__name__ = use.__qualname__ = name
    return use


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return _elsewhere(name)
    if name in _MISSING_EXTENSIONS:
        return None
    if name in ("compare", "compare_distributed"):
        from msprobe import _compare

        return getattr(_compare, name)
    raise AttributeError(f"module 'msprobe.pytorch' has no attribute {name!r}")
