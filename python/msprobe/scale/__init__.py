"""Work on many hosts, by Ray: the driver of `--engine ray`, and collection in actors.

Importing this package does not import Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.scale.actors import attach
    from msprobe.scale.engine import run_items, slots

__all__ = ["attach", "run_items", "slots"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'msprobe.scale' has no attribute {name!r}")
    import importlib

    home = "msprobe.scale.actors" if name == "attach" else "msprobe.scale.engine"
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
