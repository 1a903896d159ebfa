"""What one command did under attack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Attacked:
    """What one command did."""

    status: int
    out: str
    err: str
    peak_mib: float

    @property
    def said(self) -> str:
        return self.out + self.err
