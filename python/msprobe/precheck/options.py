"""The options of one run, as the command line hands them over."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(slots=True)
class Options:
    """Checked options; names are those of the command line."""

    command: str
    old_face: bool
    multi: bool
    api_info: str
    out_path: str
    csv_path: str = ""
    config_path: str = ""
    save_error_data: bool = False
    jit_compile: bool = False
    filter_api: bool = False
    device: str = ""
    device_ids: list[int] = field(default_factory=lambda: [0])
    workers: int = 1
    timeout: int = 0
    memory_limit: int = 0  # bytes; 0: this machine's
    seed: int = 1234
    standard: str = "new"
    rules: str = "default"
    small_values: str = "original"
    digits: int = -1
    fail_on_error: bool = False
    fail_on_warning: bool = False
    fail_on_skip: bool = False
    reference: str = "auto"
    candidate: str = ""
    baseline: str = ""
    rows_path: str = ""
    reproduce: str = ""
    ray: bool = False
    ray_address: str = ""
    english: bool = False
    retry_skips: bool = False
    tf32: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    echo: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read the text that the command line made."""
        return cls(**json.loads(text))
