"""`compare` and `compare_distributed`: compare two dumps from Python, with columns and files of the 8.x releases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from msprobe import _core
from msprobe.errors import ConfigError, ErrorCode

_Path: TypeAlias = "str | os.PathLike[str]"
_FLAGS = (
    "stack_mode",
    "auto_analyze",
    "fuzzy_match",
    "highlight",
    "is_print_compare_log",
    "first_diff_analyze",
    "xlsx",
)
_KNOWN = frozenset(
    (
        *_FLAGS,
        "suffix",
        "data_mapping",
        "cell_mapping",
        "api_mapping",
        "layer_mapping",
        "consistent_check",
        "backend",
        "workers",
        "keep_rows",
    )
)


def compare(input_param: Mapping[str, Any], output_path: _Path, **kwargs: Any) -> _core.CompareResult:
    """Compare two dump.json (or debug.json) files and write the report.

    Args:
        input_param: `npu_json_path` and `bench_json_path` (or `npu_path` and `bench_path`): the two files. Optional:
            `stack_json_path` (or `stack_path`), shown with `stack_mode=True`; without it stack.json beside the target
            file is shown when it exists. `is_print_compare_log`: one log line per row.
        output_path: Folder of the reports, made when absent.
        **kwargs: `stack_mode=False`, `auto_analyze=True` (advisor), `fuzzy_match=False`, `highlight=False`,
            `data_mapping` (path of a YAML file or a dict of row names), `suffix=''` (of file names), `workers=0` (all
            cores), `keep_rows=False`.

    Returns:
        Counts per verdict, the first bad entry and the paths of everything written; rows with `keep_rows=True`.

    Raises:
        ConfigError: An argument is wrong.
        CompareError: The dumps cannot be compared, or hold nothing to compare.
    """
    if not isinstance(input_param, Mapping):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"input_param should be a dict, got {type(input_param).__name__}")
    target = _path_of(input_param, "npu_json_path", "npu_path")
    golden = _path_of(input_param, "bench_json_path", "bench_path", "gpu_path")
    stack = input_param.get("stack_json_path", input_param.get("stack_path"))
    row_log = input_param.get("is_print_compare_log", kwargs.pop("is_print_compare_log", False))
    options = _options((target, golden, output_path), kwargs, row_log=row_log)
    if stack is not None:
        options.stack_path = os.fspath(stack)
    if isinstance(input_param, dict):
        # Scripts written for the 8.x releases read these two keys afterwards.
        input_param["npu_dump_data_dir"] = os.path.join(os.path.dirname(target), "dump_tensor_data")
        input_param["bench_dump_data_dir"] = os.path.join(os.path.dirname(golden), "dump_tensor_data")
    return _core.compare(options)


def compare_distributed(
    npu_dump_dir: _Path,
    bench_dump_dir: _Path,
    output_path: _Path,
    **kwargs: Any,
) -> _core.CompareResult:
    """Compare two step folders (or dump roots) rank by rank.

    Args:
        npu_dump_dir: Folder of the dump under test, with `rank`, `rank0`, … or `step0`, … inside.
        bench_dump_dir: Folder of the reference dump.
        output_path: Folder of the reports, made when absent.
        **kwargs: As for `compare`, without `suffix`.

    Returns:
        As `compare`; `partial` is true when a rank failed or is missing on one side.

    Raises:
        ConfigError: An argument is wrong.
        CompareError: No pair of ranks could be compared.
    """
    if kwargs.get("suffix"):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, "suffix: reports of ranks are named by their rank", "suffix")
    row_log = kwargs.pop("is_print_compare_log", False)
    return _core.compare(_options((npu_dump_dir, bench_dump_dir, output_path), kwargs, row_log=row_log))


def _path_of(params: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = params.get(key)
        if value:
            return str(os.fspath(value))
    raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"input_param: {keys[0]} is missing or empty", keys[0])


def _options(paths: tuple[_Path, _Path, _Path], kwargs: dict[str, Any], *, row_log: Any) -> _core.CompareOptions:
    unknown = sorted(set(kwargs) - _KNOWN)
    if unknown:
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"unknown argument {unknown[0]!r}", unknown[0])
    flags = {name: kwargs[name] for name in _FLAGS if name in kwargs} | {"is_print_compare_log": row_log}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"{name} should be a bool, got {value!r}", name)
    for name in ("first_diff_analyze", "consistent_check", "api_mapping"):
        if kwargs.get(name):
            raise ConfigError(ErrorCode.UNSUPPORTED, f"{name}: this build does not have it for PyTorch dumps yet", name)
    options = _core.CompareOptions(*(os.fspath(p) for p in paths))
    options.stack_mode = kwargs.get("stack_mode", False)
    options.advisor = kwargs.get("auto_analyze", True)
    options.highlight = kwargs.get("highlight", False)
    options.fuzzy = kwargs.get("fuzzy_match", False)
    options.row_log = row_log
    options.data_mapping = _mapping(kwargs.get("data_mapping"), "data_mapping")
    options.cell_mapping = _mapping(kwargs.get("cell_mapping"), "cell_mapping")
    options.suffix = str(kwargs.get("suffix") or "")
    options.workers = int(kwargs.get("workers", 0))
    options.keep_rows = bool(kwargs.get("keep_rows", False))
    return options


def _mapping(value: Any, name: str) -> list[tuple[str, str]] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return [(str(k), str(v)) for k, v in value.items()]
    if isinstance(value, (str, os.PathLike)):
        return _core.read_name_map(os.fspath(value))
    raise ConfigError(
        ErrorCode.INVALID_ARGUMENT, f"{name} should be a path or a dict, got {type(value).__name__}", name
    )
