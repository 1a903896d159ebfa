"""Find the operator that makes a model's numbers differ between devices, versions and precisions.

Importing the package is cheap and does not import torch; `msprobe.pytorch` does.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing for it would be half of what the command takes to start
if TYPE_CHECKING:
    from typing import Any

    from msprobe._compare import compare, compare_distributed
    from msprobe._core import __version__
    from msprobe.errors import CompareError, ConfigError, DumpError, ErrorCode, MsprobeError, PrecheckError

__all__ = [
    "CompareError",
    "ConfigError",
    "DumpError",
    "ErrorCode",
    "MsprobeError",
    "PrecheckError",
    "__version__",
    "compare",
    "compare_distributed",
]

_HOMES = {
    "compare": "msprobe._compare",
    "compare_distributed": "msprobe._compare",
    "__version__": "msprobe._core",
    "CompareError": "msprobe.errors",
    "ConfigError": "msprobe.errors",
    "DumpError": "msprobe.errors",
    "ErrorCode": "msprobe.errors",
    "MsprobeError": "msprobe.errors",
    "PrecheckError": "msprobe.errors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'msprobe' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
