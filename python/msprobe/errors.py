"""Exceptions of the package and the closed list of causes."""

from __future__ import annotations

from enum import Enum

__all__ = ["CompareError", "ConfigError", "DumpError", "ErrorCode", "MsprobeError", "PrecheckError"]


class ErrorCode(str, Enum):
    """What went wrong, as the core names it."""

    INVALID_ARGUMENT = "invalid_argument"
    CONFIG = "config"
    NOT_FOUND = "not_found"
    PERMISSION = "permission"
    NOT_REGULAR_FILE = "not_regular_file"
    TOO_LARGE = "too_large"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    MISMATCH = "mismatch"
    PATH_ESCAPE = "path_escape"
    IO = "io"
    NO_SPACE = "no_space"
    NOTHING_TO_DO = "nothing_to_do"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class MsprobeError(Exception):
    """Base of all errors raised by msprobe.

    Attributes:
        code: The cause.
        message: One line with place, cause and what was expected.
        path: The file or option at fault, as the user gave it; None when there is none.
    """

    def __init__(self, code: ErrorCode | str, message: str, path: str | None = None) -> None:
        """Keep cause, message and place; str() is the message."""
        super().__init__(message)
        self.code = ErrorCode(code)
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[type[MsprobeError], tuple[str, str, str | None]]:
        """Rebuild from the three parts, so that errors cross process borders."""
        return type(self), (self.code.value, self.message, self.path)


class ConfigError(MsprobeError):
    """An argument, option or configuration file is wrong."""


class DumpError(MsprobeError):
    """Collection failed or a dump cannot be read or written."""


class CompareError(MsprobeError):
    """A comparison could not be made."""


class PrecheckError(MsprobeError):
    """A pre-check could not be made."""
