"""`module_dump` and `module_dump_end`: one module recorded as one unit (dump.md 2.3)."""

from __future__ import annotations

from typing import Any

from torch import nn

from msprobe.errors import ConfigError, ErrorCode
from msprobe.pytorch.debugger import PrecisionDebugger


def module_dump(module: Any, dump_name: Any) -> None:
    """From now on record only `module`, as `Module.{dump_name}.{class}`, without its children and inner calls.

    Its hooks stay away from the module after `module_dump_end()` or `stop()`. A module that the debugger records
    already (levels L0 and mix) is left as it is.

    Args:
        module: The module.
        dump_name: Its name in the dump; a module that was given a name before keeps that one.

    Raises:
        ConfigError: An argument has the wrong type.
        MsprobeError: There is no debugger.
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT,
            f"module_dump(module=...): a torch.nn.Module was expected, got {type(module).__name__}",
            "module",
        )
    if not isinstance(dump_name, str):
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT,
            f"module_dump(dump_name=...): a str was expected, got {type(dump_name).__name__}",
            "dump_name",
        )
    PrecisionDebugger._begin_unit(module, dump_name)


def module_dump_end() -> None:
    """Record everything again that the level asks for.

    Raises:
        MsprobeError: There is no debugger.
    """
    PrecisionDebugger._end_unit()
