"""What `PrecisionDebugger.save` takes (dump.md 2.2)."""

from __future__ import annotations

from typing import Any

import torch

_MAX_DEPTH = 400


def _variable_problem(variable: Any, depth: int) -> str | None:
    if isinstance(variable, torch.Tensor | int | float | str):
        return None
    if not isinstance(variable, list | tuple | dict):
        return (
            f"variable: a {type(variable).__name__} was found; tensors, int, float, str, list, tuple and dict are saved"
        )
    if depth == _MAX_DEPTH:
        return f"variable: nested deeper than {_MAX_DEPTH}"
    if isinstance(variable, dict):
        for key in variable:
            if not isinstance(key, str):
                return f"variable: the keys of a dict have to be str, {key!r} is not"
        variable = list(variable.values())
    for item in variable:
        problem = _variable_problem(item, depth + 1)
        if problem is not None:
            return problem
    return None


def problem(variable: Any, name: Any, save_backward: Any) -> str | None:
    """Why `save()` cannot take these arguments; None when it can."""
    if not isinstance(name, str):
        return f"name: a str was expected, got {type(name).__name__}"
    if not isinstance(save_backward, bool):
        return f"save_backward: a bool was expected, got {type(save_backward).__name__}"
    return _variable_problem(variable, 0)
