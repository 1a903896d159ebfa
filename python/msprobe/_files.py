"""Files and folders of results: the user's umask decides, and nobody outside the group may write, whatever it is."""

from __future__ import annotations

import os
from typing import IO, Any


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o664)


def create(path: str, *, binary: bool = False) -> IO[Any]:
    """Open a file for writing, new or emptied; a link in its place is an OSError."""
    if binary:
        return open(path, "wb", opener=_opener)
    return open(path, "w", encoding="utf-8", opener=_opener)


def make_folder(path: str, mode: int = 0o775) -> None:
    """Make a folder of this mode with its parents, where they are missing. OSError when that cannot be."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent:
        make_folder(parent)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
