"""Helpers of the pre-check's tests: the command line in this process, and small dumps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe import _core

Runner = Callable[..., int]


@pytest.fixture
def msprobe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Runs the command line in this process, in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> int:
        return int(_core.main(["msprobe", *(str(a) for a in args)]))

    return run


def tensor(dtype: str, shape: list[int], low: Any, high: Any, **changes: Any) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": shape, "Max": high, "Min": low}
    return leaf | {"Mean": None, "Norm": None, "requires_grad": False} | changes


def write_dump(path: Path, data: dict[str, Any], **changes: Any) -> Path:
    whole = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data} | changes
    path.write_text(json.dumps({k: v for k, v in whole.items() if v is not None or k == "dump_data_dir"}), "utf-8")
    return path


def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"input_args": list(args), "input_kwargs": kwargs, "output": []}
