"""`compare` and `compare_distributed`: compare two dumps from Python, with columns and files of the 8.x releases."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, overload

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
    "keep_rows",
    "resume",
    "consistent_check",
    "culprit",
    "loss_impact",
)
_KNOWN = frozenset(
    (
        *_FLAGS,
        "suffix",
        "data_mapping",
        "cell_mapping",
        "api_mapping",
        "layer_mapping",
        "ranks",
        "steps",
        "backend",
        "rules",
        "workers",
        "metrics",
    )
)


def compare(
    input_param: Mapping[str, Any], output_path: _Path, **kwargs: Any
) -> _core.CompareResult | _core.DifferenceResult:
    """Compare two dump.json (or debug.json) files and write the report.

    Args:
        input_param: `npu_json_path` and `bench_json_path` (or `npu_path` and `bench_path`): the two files. Optional:
            `stack_json_path` (or `stack_path`), shown with `stack_mode=True`; without it stack.json beside the target
            file is shown when it exists. `is_print_compare_log`: one log line per row.
        output_path: Folder of the reports, made when absent.
        **kwargs: `stack_mode=False`, `auto_analyze=True` (advisor), `fuzzy_match=False`, `highlight=False`,
            `data_mapping` (path of a YAML file or a dict of row names), `suffix=''` (of file names), `workers=0` (all
            cores), `keep_rows=False` (see `RankResult.rows` and `RankResult.arrays`), `resume=False`,
            `api_mapping` (a target of MindSpore: path of a YAML file of its functions, or True: those of like names
            meet), `layer_mapping` (pair by place in the module tree: path of a YAML file of renamed children, or True),
            `metrics` (folder of files `alg_<name>.py`, or a list of names and functions of two NumPy arrays),
            `culprit=False` (search the operator at fault, docs/culprit.md; calls are replayed in this process where
            PyTorch is there), `loss_impact=False` (effects of all introduced errors on the loss),
            `consistent_check=False` with `backend="fsdp"` or `"megatron"`, `rules="default"` (or `"base"`,
            `"upstream"`, the path of a YAML file; docs/compare.md).

    Returns:
        Counts per verdict, the first bad entry and the paths of everything written; rows with `keep_rows=True`. With
        `culprit=True` its `culprit` (kind, entries, figures, source line, sentence) and `culprit_search`. With
        `first_diff_analyze=True` a `DifferenceResult` instead: the entries that differ first.

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
        options.stack_path = _path(stack, "input_param: stack_json_path")
    if isinstance(input_param, dict):
        # Scripts written for the 8.x releases read these two keys afterwards.
        input_param["npu_dump_data_dir"] = os.path.join(os.path.dirname(target), "dump_tensor_data")
        input_param["bench_dump_data_dir"] = os.path.join(os.path.dirname(golden), "dump_tensor_data")
    return _run(options, kwargs)


@overload
def compare_distributed(
    npu_dump_dir: _Path,
    bench_dump_dir: _Path,
    output_path: _Path,
    *,
    first_diff_analyze: Literal[True],
    **kwargs: Any,
) -> _core.DifferenceResult: ...


@overload
def compare_distributed(
    npu_dump_dir: _Path, bench_dump_dir: _Path, output_path: _Path, **kwargs: Any
) -> _core.CompareResult: ...


def compare_distributed(
    npu_dump_dir: _Path,
    bench_dump_dir: _Path,
    output_path: _Path,
    **kwargs: Any,
) -> _core.CompareResult | _core.DifferenceResult:
    """Compare two step folders (or dump roots) rank by rank.

    Args:
        npu_dump_dir: Folder of the dump under test, with `rank`, `rank0`, … or `step0`, … inside.
        bench_dump_dir: Folder of the reference dump.
        output_path: Folder of the reports, made when absent.
        **kwargs: As for `compare`, without `suffix`; and `ranks`, `steps`: only these numbers.

    Returns:
        As `compare`; `partial` is true when a rank failed or is missing on one side.

    Raises:
        ConfigError: An argument is wrong.
        CompareError: No pair of ranks could be compared.
    """
    if kwargs.get("suffix"):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, "suffix: reports of ranks are named by their rank", "suffix")
    row_log = kwargs.pop("is_print_compare_log", False)
    return _run(_options((npu_dump_dir, bench_dump_dir, output_path), kwargs, row_log=row_log), kwargs)


def _run(options: _core.CompareOptions, kwargs: dict[str, Any]) -> _core.CompareResult | _core.DifferenceResult:
    if kwargs.get("first_diff_analyze"):
        return _core.analyze_differences(options)
    return _core.compare(options)


def _path_of(params: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = params.get(key)
        if value:
            return _path(value, f"input_param: {key}")
    raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"input_param: {keys[0]} is missing or empty", keys[0])


def _path(value: Any, name: str) -> str:
    """A path as text; bytes are decoded as the file system's names are."""
    try:
        return os.fsdecode(value)
    except TypeError:
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT, f"{name} should be a path, got {type(value).__name__}", name
        ) from None


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**16:
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"{name} should be a count of threads, got {value!r}", name)
    return value


def _options(paths: tuple[_Path, _Path, _Path], kwargs: dict[str, Any], *, row_log: Any) -> _core.CompareOptions:
    unknown = sorted(set(kwargs) - _KNOWN)
    if unknown:
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"unknown argument {unknown[0]!r}", unknown[0])
    flags = {name: kwargs[name] for name in _FLAGS if name in kwargs} | {"is_print_compare_log": row_log}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"{name} should be a bool, got {value!r}", name)
    _check_mappings(kwargs)
    names = ("the target path", "the golden path", "output_path")
    options = _core.CompareOptions(*(_path(p, name) for p, name in zip(paths, names, strict=True)))
    options.stack_mode = kwargs.get("stack_mode", False)
    options.advisor = kwargs.get("auto_analyze", True)
    options.highlight = kwargs.get("highlight", False)
    options.fuzzy = kwargs.get("fuzzy_match", False)
    options.row_log = row_log
    options.data_mapping = _mapping(kwargs.get("data_mapping"), "data_mapping")
    options.cell_mapping = _mapping(kwargs.get("cell_mapping"), "cell_mapping")
    if kwargs.get("api_mapping"):
        options.set_api_mapping(_flag_or_path(kwargs["api_mapping"], "api_mapping"))
    if kwargs.get("layer_mapping"):
        options.set_layer_mapping(_flag_or_path(kwargs["layer_mapping"], "layer_mapping"))
    suffix = kwargs.get("suffix") or ""
    if not isinstance(suffix, str):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"suffix should be a text, got {type(suffix).__name__}", "suffix")
    options.suffix = suffix
    options.resume = kwargs.get("resume", False)
    options.ranks = _numbers(kwargs.get("ranks"), "ranks")
    options.steps = _numbers(kwargs.get("steps"), "steps")
    if kwargs.get("consistent_check"):
        backend = kwargs.get("backend")
        if backend not in ("fsdp", "megatron"):
            raise ConfigError(
                ErrorCode.INVALID_ARGUMENT, f"backend should be 'fsdp' or 'megatron', got {backend!r}", "backend"
            )
        options.backend = backend
    if kwargs.get("rules") is not None:
        options.rules = _path(kwargs["rules"], "rules")
    options.workers = _count(kwargs.get("workers", 0), "workers")
    options.keep_rows = kwargs.get("keep_rows", False)
    options.culprit = kwargs.get("culprit")
    options.loss_impact = kwargs.get("loss_impact", False)
    if kwargs.get("metrics") is not None:
        for other in ("first_diff_analyze", "consistent_check"):
            if kwargs.get(other):
                raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"metrics has no effect beside {other}", "metrics")
        options.set_metrics(kwargs["metrics"])
    return options


def _check_mappings(kwargs: Mapping[str, Any]) -> None:
    """Refuse mappings that change nothing beside another one, as the command line does."""
    idle = [("api_mapping", other) for other in ("fuzzy_match", "data_mapping", "layer_mapping", "consistent_check")]
    idle += [("layer_mapping", other) for other in ("fuzzy_match", "data_mapping", "cell_mapping", "consistent_check")]
    for name, other in idle:
        if kwargs.get(name) and kwargs.get(other):
            raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"{name} has no effect beside {other}", name)


def _flag_or_path(value: Any, name: str) -> str:
    """The path of a mapping file, or "" for True: the mapping without a file."""
    return "" if value is True else _path(value, name)


def _numbers(value: Any, name: str) -> list[int]:
    items: list[Any] = []
    if isinstance(value, Iterable):
        items = list(value)
    elif value is not None:
        items = [value]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in items):
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"{name} should be numbers from 0 on, got {value!r}", name)
    return items


def _mapping(value: Any, name: str) -> list[tuple[str, str]] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return [(str(k), str(v)) for k, v in value.items()]
    if isinstance(value, (str, bytes, os.PathLike)):
        return _core.read_name_map(_path(value, name))
    raise ConfigError(
        ErrorCode.INVALID_ARGUMENT, f"{name} should be a path or a dict, got {type(value).__name__}", name
    )
