"""`random_save`: a row for every call of a random function (dump.md 2.5)."""

from __future__ import annotations

import csv
import functools
import io
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from msprobe._files import make_folder
from msprobe.errors import ConfigError, ErrorCode
from msprobe.pytorch import _environment, _log
from msprobe.pytorch._fixed_random import NUMPY_RANDOM, PYTHON_RANDOM, TENSOR_RANDOM, TORCH_RANDOM


class _Rows:
    """The csv of this process; a forked child writes one of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._counts: dict[str, int] = {}
        self._path: str | None = None
        self._known_rank = False
        self._pid = os.getpid()
        self._failed = False

    def __call__(self, group: str, name: str) -> None:
        if getattr(self._inside, "on", False) or self._failed:
            return
        self._inside.on = True
        try:
            stack = "".join(traceback.format_list(traceback.extract_stack()[:-2]))
            with self._lock:
                self._write(f"{group}.{name}", stack)
        except OSError as error:  # the script goes on
            self._failed = True
            _log.log(_log.ERROR, f"random_save stops: {error}")
        finally:
            self._inside.on = False

    def _place(self) -> str:
        if self._pid != os.getpid():
            self._pid, self._path, self._known_rank = os.getpid(), None, False
            self._counts.clear()
        rank = None if self._known_rank else _environment.detect_rank()
        if self._path is not None and rank is None:
            return self._path
        who = f"rank{rank}" if rank is not None else f"proc{self._pid}"
        path = self._free(f"random_{who}_")
        if self._path is None:
            make_folder(self._folder, 0o750)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o664)
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write("api_name,stack\n")
        else:
            os.rename(self._path, path)
        self._path, self._known_rank = path, rank is not None
        return path

    def _free(self, start: str) -> str:
        now = time.time()
        while True:
            stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now))
            path = os.path.join(self._folder, f"{start}{stamp}.csv")
            if not os.path.exists(path):
                return path
            now += 1

    def _write(self, name: str, stack: str) -> None:
        path = self._place()
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow([f"{name}.{number}", stack])
        with open(path, "a", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(row.getvalue())


def _noted(function: Callable[..., Any], rows: _Rows, group: str, name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rows(group, name)
        return function(*args, **kwargs)

    call.__msprobe_noted__ = rows  # type: ignore[attr-defined]
    return call


def random_save(output_path: str = "./output") -> None:
    """Write a row of a csv for each call of a random function of Python, NumPy and torch, with its stack.

    Args:
        output_path: Folder of `random_rank{R}_{time}.csv` (`random_proc{pid}_...` while the rank is unknown).

    Raises:
        ConfigError: `output_path` is no str.
    """
    if not isinstance(output_path, str):
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT,
            f"random_save(output_path=...): a str was expected, got {type(output_path).__name__}",
            "output_path",
        )
    rows = _Rows(output_path)
    owners: list[tuple[Any, str, tuple[str, ...]]] = [
        (random, "python_random", PYTHON_RANDOM),
        (torch, "torch_random", TORCH_RANDOM),
        (torch.Tensor, "tensor_random", TENSOR_RANDOM),
    ]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        owners.append((numpy.random, "numpy_random", NUMPY_RANDOM))
    for owner, group, names in owners:
        for name in names:
            function = getattr(owner, name, None)
            if function is not None and not hasattr(function, "__msprobe_noted__"):
                setattr(owner, name, _noted(function, rows, group, name))
