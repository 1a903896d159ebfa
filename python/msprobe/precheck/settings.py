"""White and black list and the folder for error data, from the config.json given with -config."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass, field
from typing import Any

from msprobe.errors import ConfigError, ErrorCode
from msprobe.precheck.functions import known_names

ALWAYS_BLACK = frozenset(
    ("to", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format")
)


@dataclass(slots=True)
class Settings:
    """What the section run_ut or acc_check holds."""

    white_list: frozenset[str] = frozenset()
    black_list: frozenset[str] = ALWAYS_BLACK
    error_data_path: str = "./"
    problems: list[str] = field(default_factory=list)

    def skip_reason(self, name: str) -> str:
        """Why the bare name is not run; empty when it is. Black wins over white."""
        if name in self.black_list:
            return f"black_list: {name} is in the black list"
        if self.white_list and name not in self.white_list:
            return f"white_list: {name} is not in the white list"
        return ""


def read_settings(path: str) -> Settings:
    """Read the section of either spelling; defaults when there is none.

    Raises:
        ConfigError: No JSON, a wrong type, a name that no API has, a folder that does not exist.
    """
    if not path:
        return Settings()
    try:
        with open(path, encoding="utf-8-sig") as f:
            document = json.load(f)
    except json.JSONDecodeError as e:
        raise ConfigError(ErrorCode.MALFORMED, f"{path}:{e.lineno}:{e.colno}: no JSON: {e.msg}", path) from None
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(ErrorCode.IO, f"{path}: {e}", path) from None
    if not isinstance(document, dict):
        raise ConfigError(ErrorCode.MALFORMED, f"{path}: holds no object; a config.json is expected", path)
    for name in ("acc_check", "run_ut"):
        section = document.get(name)
        if section is not None:
            return _read_section(path, name, section)
    return Settings()


def _read_section(path: str, name: str, section: Any) -> Settings:
    if not isinstance(section, dict):
        raise ConfigError(ErrorCode.CONFIG, f"{path}:{name}: is no object", path)
    if any(key in section for key in ("is_online", "nfs_path", "host", "port", "rank_list", "tls_path")):
        raise ConfigError(
            ErrorCode.UNSUPPORTED, f"{path}:{name}: the online pre-check no longer exists; remove its keys", path
        )
    folder = section.get("error_data_path", "./")
    if not isinstance(folder, str) or not os.path.isdir(folder or "./"):
        raise ConfigError(
            ErrorCode.NOT_FOUND, f"{path}:{name}.error_data_path: {folder!r} is no folder; make it first", path
        )
    white = _names(path, f"{name}.white_list", section.get("white_list", []))
    black = _names(path, f"{name}.black_list", section.get("black_list", []))
    return Settings(white, black | ALWAYS_BLACK, folder or "./")


def _names(path: str, key: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError(ErrorCode.CONFIG, f"{path}:{key}: should be a list of API names, got {value!r}", path)
    known = known_names()
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "bare names are expected, such as conv2d"
            raise ConfigError(ErrorCode.CONFIG, f"{path}:{key}: no API is called '{name}'; {hint}", path)
    return frozenset(value)
