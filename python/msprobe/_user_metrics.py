"""Metrics of the user's own for `compare`: a folder of files `alg_<name>.py`, or functions."""

from __future__ import annotations

import importlib.util
import numbers
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from msprobe.errors import ConfigError, ErrorCode

Metric: TypeAlias = "tuple[str, Callable[[Any, Any], Any]]"
_NAME = re.compile(r"alg_\w+\.py")


def load(source: Any) -> list[Metric]:
    """The metrics of a folder (in order of file names), or of a list of names and functions.

    The files of the folder are run: they are the user's own code.

    Raises:
        ConfigError: There are none, a file cannot be imported, or lacks `column_name` or `compare`.
    """
    if isinstance(source, (str, bytes, os.PathLike)):
        return _folder(Path(os.fsdecode(source)))
    if not isinstance(source, Iterable):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"metrics: a folder or a list, got {type(source).__name__}")
    found = list(source)
    for item in found:
        pair = isinstance(item, (tuple, list)) and len(item) == 2
        if not pair or not isinstance(item[0], str) or not callable(item[1]):
            raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"metrics: {item!r} is not a name and a function")
    return [(name, function) for name, function in found]


def _folder(folder: Path) -> list[Metric]:
    if not folder.is_dir():
        raise ConfigError(ErrorCode.NOT_FOUND, f"metrics: {folder}: no such folder", str(folder))
    files = sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.name))
    if not files:
        raise ConfigError(ErrorCode.NOT_FOUND, f"metrics: {folder}: no file alg_<name>.py", str(folder))
    return [_file(path) for path in files]


def _file(path: Path) -> Metric:
    name = f"_msprobe_metric_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as e:  # whatever the user's file raises
        raise ConfigError(ErrorCode.CONFIG, f"metrics: {path}: {_described(e)}", str(path)) from None
    for wanted in ("column_name", "compare"):
        if not callable(getattr(module, wanted, None)):
            raise ConfigError(ErrorCode.CONFIG, f"metrics: {path}: has no function {wanted}()", str(path))
    try:
        column = module.column_name()
    except (Exception, SystemExit) as e:
        raise ConfigError(ErrorCode.CONFIG, f"metrics: {path}: column_name(): {_described(e)}", str(path)) from None
    if not isinstance(column, str):
        raise ConfigError(ErrorCode.CONFIG, f"metrics: {path}: column_name() is no text: {column!r}", str(path))
    return column, module.compare


def _described(e: BaseException) -> str:
    lines = str(e).splitlines()
    return f"{type(e).__name__}: {lines[0]}" if lines else type(e).__name__


_Tensor: TypeAlias = "tuple[str, list[int], bytes]"


def evaluate(np: Any, metrics: list[Metric], target: _Tensor, golden: _Tensor) -> list[tuple[float, str, str]]:
    """A number, or a text and its reason, for every metric; `np` is NumPy. Every call gets arrays of its own."""

    def array(tensor: _Tensor) -> Any:
        dtype, shape, data = tensor
        return np.frombuffer(data, dtype).reshape(shape).copy()

    out: list[tuple[float, str, str]] = []
    for _, function in metrics:
        try:
            value = function(array(target), array(golden))
            if isinstance(value, np.ndarray) and value.ndim == 0:
                value = value[()]
            if isinstance(value, (numbers.Real, np.bool_)):
                out.append((float(value), "", ""))
            else:
                kind = type(value).__name__
                out.append((0.0, f"error: {kind}", f"gave {kind}, which is no number"))
        except (Exception, SystemExit) as e:  # the user's own code: a cell, never the end of the run
            out.append((0.0, f"error: {type(e).__name__}", _described(e)))
    return out
