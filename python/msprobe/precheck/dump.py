"""Reading dump.json: the calls to replay, in file order, and dropping repeated ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msprobe import _core
from msprobe.errors import ErrorCode, PrecheckError
from msprobe.precheck.names import words

Record = Any  # a value of the JSON document

MAX_BYTES = 10 << 30
_STATISTICS = words(
    "Max Min Mean Norm data_name datapath md5 nan inf finite_max finite_min Max_except_inf_nan Min_except_inf_nan"
)


@dataclass(slots=True)
class Call:
    """One recorded call. `forward` is None for a key that has no known form; `problem` says so."""

    name: str  # Torch.matmul.0
    forward: dict[str, Record] | None
    backward: dict[str, Record] | None = None
    problem: str = ""


@dataclass(slots=True)
class Dump:
    """The calls of one dump.json."""

    path: str
    calls: list[Call]
    has_data_files: bool  # dump_data_dir is set: tensors lie in dump_tensor_data beside the file
    warnings: list[str] = field(default_factory=list)  # of a dump that was cut short

    @property
    def data_folder(self) -> str:
        """Where tensor files are, whatever path the file names: a dump that was moved works."""
        return os.path.join(os.path.dirname(os.path.abspath(self.path)), "dump_tensor_data")


def read_dump(path: str) -> Dump:
    """Read a dump.json of any release. One that a killed run left is read as far as it goes, with its journal.

    Raises:
        PrecheckError: The file cannot be read, is no JSON, or lacks `data`; `framework` names another framework.
    """
    _check_size(path)
    document = _core.precheck_read_dump(path)
    framework = str(document["framework"] or "pytorch").lower()
    if framework not in ("pytorch", "pt"):
        raise PrecheckError(
            ErrorCode.UNSUPPORTED,
            f"{path}:framework: '{framework}' dumps cannot be replayed; a PyTorch dump is expected",
        )
    if not document["has_data"]:
        raise PrecheckError(
            ErrorCode.MALFORMED, f"{path}:data: is missing or no object; a dump.json holds its entries there", path
        )
    dump = Dump(path, list(_calls(document["data"])), document["has_data_files"])
    if document["tear"]:
        dump.warnings.append(f"the dump ends early ({document['tear']}); its {len(dump.calls)} complete calls are run")
    if document["journal_entries"]:
        dump.warnings.append(
            f"{document['journal_entries']} entries come from the journal that a killed collection left"
        )
    return dump


def _check_size(path: str) -> None:
    try:
        size = os.path.getsize(path)
    except OSError as e:
        code = ErrorCode.NOT_FOUND if isinstance(e, FileNotFoundError) else ErrorCode.IO
        raise PrecheckError(code, f"{path}: {e.strerror or e}", path) from None
    if size > MAX_BYTES:
        raise PrecheckError(ErrorCode.TOO_LARGE, f"{path}: more than {MAX_BYTES >> 30} GiB", path)


def _calls(data: dict[str, Record]) -> Iterator[Call]:
    for key, entry in data.items():
        if key.startswith(("Module.", "Cell.")):
            continue
        name, _, direction = key.rpartition(".")
        if direction == "backward" and name:
            continue
        if direction != "forward" or not name:
            yield Call(key, None, problem="odd_name: the key does not end in .forward or .backward")
        elif not isinstance(entry, dict):
            yield Call(name, None, problem="bad_entry: the entry is no object")
        else:
            backward = data.get(f"{name}.backward")
            yield Call(name, entry, backward if isinstance(backward, dict) else None)


def without_repeats(calls: list[Call], *, base_rules: bool) -> list[Call]:
    """Drop calls that repeat an earlier one of the same API.

    Default: arguments are equal when they agree but for statistics and file names, inside lists too. Base rules compare
    as earlier releases do: keyword arguments as a whole, positional ones but for Max and Min, lists not at all.
    """
    seen: set[str] = set()
    kept: list[Call] = []
    for call in calls:
        if call.forward is None:
            kept.append(call)
            continue
        key = _signature(call, base_rules)
        if key not in seen:
            seen.add(key)
            kept.append(call)
    return kept


def _signature(call: Call, base_rules: bool) -> str:
    assert call.forward is not None
    name = call.name.rpartition(".")[0]
    args = call.forward.get("input_args") or []
    kwargs = call.forward.get("input_kwargs") or {}
    if base_rules:
        args = [{k: v for k, v in a.items() if k not in ("Max", "Min")} if isinstance(a, dict) else None for a in args]
    else:
        args, kwargs = _without_statistics(args), _without_statistics(kwargs)
    return json.dumps([name, args, kwargs], sort_keys=True)


def _without_statistics(value: Record) -> Record:
    if isinstance(value, list):
        return [_without_statistics(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_statistics(v) for k, v in value.items() if k not in _STATISTICS or "dtype" not in value}
