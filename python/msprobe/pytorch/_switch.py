"""The switch `dump_enable`: config.json is read again when it changes (dump.md 18)."""

from __future__ import annotations

import os


class ConfigWatch:
    """Notices that a file has changed, by time of change, size and identity."""

    def __init__(self, path: str) -> None:
        """The file as it is now counts as seen."""
        self._path = path
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            info = os.stat(self._path)
        except OSError:
            return None
        return info.st_mtime_ns, info.st_size, info.st_ino

    def changed(self) -> bool:
        """Whether it is another one than at the last call; a file that is gone for a moment is no change."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        return True
