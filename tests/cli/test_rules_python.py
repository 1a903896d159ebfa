"""Rule sets and the cost of a row in the Python functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import dump, entry, tensor, write_json

msprobe = pytest.importorskip("msprobe")

from msprobe import _compare  # noqa: E402


def dumps(folder: Path, calls: int, off: float = 0.0) -> dict[str, Any]:
    for side, value in (("t", 1.0 + off), ("g", 1.0)):
        data = {f"Functional.layer_norm.{i}.forward": entry(tensor(), output=[tensor(Max=value)]) for i in range(calls)}
        write_json(folder / side / "dump.json", dump(data))
    return {"npu_path": str(folder / "t" / "dump.json"), "bench_path": str(folder / "g" / "dump.json")}


def test_rules_of_the_python_functions(tmp_path):
    paths = dumps(tmp_path, 1, off=1e-3)
    assert _compare.compare(paths, tmp_path / "a").first_bad["entry"] == "Functional.layer_norm.0.forward"
    assert _compare.compare(paths, tmp_path / "b", rules="base").first_bad is None
    (tmp_path / "r.yaml").write_text("limits: [{api: layer_norm, rounding: 1e5}]")
    assert _compare.compare(paths, tmp_path / "c", rules=tmp_path / "r.yaml").first_bad is None
    (tmp_path / "r.yaml").write_text("limits: 3")
    with pytest.raises(msprobe.ConfigError, match="limits: not a list"):
        _compare.compare(paths, tmp_path / "d", rules=tmp_path / "r.yaml")


def test_rows_cost_no_python(tmp_path):
    """D44: the number of Python calls does not depend on the number of rows."""
    counts = []
    for calls in (1, 500):
        paths = dumps(tmp_path / str(calls), calls)
        seen = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            result = _compare.compare(paths, tmp_path / f"out{calls}", stack_mode=True)
        finally:
            sys.setprofile(None)
        assert result.counts["total"] == 2 * calls
        counts.append(seen)
    assert counts[1] < counts[0] + 100
