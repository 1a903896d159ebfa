"""Log lines on standard output in the format of dump.md 2.7."""

from __future__ import annotations

import os
import re
import sys
import time

_WORDS = ("DEBUG", "INFO", "WARNING", "ERROR")
# Control characters, bidirectional overrides and their percent-encodings could forge a line.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]|%0[adAD]")

DEBUG, INFO, WARNING, ERROR = range(4)


def _threshold() -> int:
    value = os.environ.get("MSPROBE_LOG_LEVEL", "1")
    return int(value) if value in ("0", "1", "2", "3", "4") else INFO


def _rank() -> str:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return f"[rank {distributed.get_rank()}] "
    except Exception:
        pass
    return ""


def log(level: int, message: str) -> None:
    """Print one message (0 debug, 1 info, 2 warning, 3 error) unless MSPROBE_LOG_LEVEL hides it."""
    if level < _threshold():
        return
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    text = _UNSAFE.sub("_", message)
    print(f"{stamp} ({os.getpid()}) {_rank()}[{_WORDS[level]}] {text}", flush=True)
