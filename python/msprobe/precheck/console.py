"""What a person sees of a command of the pre-check."""

from __future__ import annotations

import os
import sys
import time

from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome


class Console:
    """What a person sees: closing lines on stdout as scripts expect them, the rest on stderr."""

    def __init__(self, options: Options) -> None:
        """Progress is shown only when stderr is a terminal."""
        self._quiet = options.quiet
        self._verbose = options.verbose or options.debug
        self._progress = sys.stderr.isatty() and not options.quiet
        self._begin = time.monotonic()
        self._shown = 0.0
        self.messages: list[str] = []

    def info(self, text: str) -> None:
        """A line in the log format of earlier releases."""
        if not self._quiet:
            self.closing(text)

    def closing(self, text: str) -> None:
        """The same, shown with -q too."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"{stamp} ({os.getpid()}) [INFO] {visible(text)}", flush=True)

    def warning(self, text: str) -> None:
        """A warning; kept for the summary."""
        self.messages.append(text)
        self.line(f"warning: {text}")

    def error(self, text: str) -> None:
        """An error line."""
        self.line(f"error: {text}")

    def line(self, text: str) -> None:
        """A line on stderr, shown always."""
        self._clear()
        print(f"msprobe: {visible(text)}", file=sys.stderr, flush=True)

    def skip(self, outcome: Outcome) -> None:
        """With -v: why a call was not run."""
        if self._verbose and outcome.forward == "SKIP":
            self.line(f"{outcome.name}: SKIP {outcome.message}")

    def progress(self, done: int, total: int) -> None:
        """A bar that is redrawn at most ten times a second."""
        now = time.monotonic()
        if not self._progress or (now - self._shown < 0.1 and done < total):
            return
        self._shown = now
        elapsed = now - self._begin
        left = elapsed / done * (total - done) if done else 0.0
        end = "\n" if done == total else ""
        print(f"\rProcessing {done}/{total} [{elapsed:.0f}s<{left:.0f}s]\033[K", end=end, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._progress and self._shown:
            print("\r\033[K", end="", file=sys.stderr)


def visible(text: str) -> str:
    """Control characters and bidirectional overrides spelled out."""
    return "".join(c if c.isprintable() or c in "\t " else f"\\u{ord(c):04x}" for c in text)
