"""What one command did under attack."""

from __future__ import annotations

import os
from dataclasses import dataclass

# What a run may use, whatever a hostile file says: an undisturbed run of two small dumps needs about 10 MiB. Sanitizers
# keep freed memory.
MEMORY_MIB = 2048 if "asan" in os.environ.get("MSPROBE_BIN", "") else 128


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
