"""Judges a replay by the golden record of a run case (form: run_*/expected.json).

`new` is what the 26.x release answered; `ours` lists the APIs where this tool must differ, with the allowed statuses. A
list of statuses or of filled columns holds the alternatives seen over several seeds. Holds for `--rules base`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

COLUMNS = (
    "bench_dtype device_dtype shape cosine_sim max_abs_err rel_err_hundredth rel_err_thousandth rel_err_ten_thousandth"
    " error_rate eb rmse small_value_err_ratio max_rel_error mean_rel_error inf_nan_error_ratio rel_err_ratio"
    " abs_err_ratio max_ulp_error mean_ulp_error ulp_error_proportion"
)
KEYS = tuple(COLUMNS.split())
# The shape of their results depends on the random inputs: the recorded one is an accident of the recorder's generator.
DATA_DEPENDENT = ("masked_select", "nonzero")


def table(folder: Path, kind: str) -> dict[str, list[str]]:
    """Records of accuracy_checking_{kind}_*.csv by their first cell, in order."""
    (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as f:
        rows = list(csv.reader(f))[1:]
    return {row[0].removeprefix("'"): row for row in rows}


def _allowed(value: Any) -> list[str]:
    return [v.lower() for v in (value if isinstance(value, list) else [value])]


def differences(case: Path, out: Path, apis_that_count: list[str] | None = None) -> list[str]:
    """What a run in `out` got wrong; empty when nothing."""
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    apis = expected["new"]["apis"] | expected["ours"]
    if apis_that_count is not None:
        apis = {name: apis[name] for name in apis_that_count}
    results = table(out, "result")
    bad = []
    if list(apis) != [name for name in results if name in apis]:
        bad.append(f"APIs missing or in another order: {[name for name in apis if name not in results]}")
    for name, answer in apis.items():
        for column, way in ((1, "forward"), (2, "backward")):
            if name in results and results[name][column].lower() not in _allowed(answer[way]):
                bad.append(f"{name} {way}: {results[name][column]!r}, expected {answer[way]}")
    details = table(out, "details")
    for name, answer in expected["new"]["rows"].items():
        api = name.rsplit(".", 3)[0]
        if api in apis and api not in expected["ours"]:
            bad += _row_differences(name, answer, details)
    return bad


def _row_differences(name: str, answer: dict[str, Any], details: dict[str, list[str]]) -> list[str]:
    if name not in details:
        return [f"row missing: {name}"]
    row = details[name]
    bad = []
    free_shape = name.split(".")[1] in DATA_DEPENDENT
    if row[1 : 3 if free_shape else 4] != answer["dtypes"][: 2 if free_shape else 3]:
        bad.append(f"{name}: {row[1:4]} instead of {answer['dtypes']}")
    if row[21].lower() not in _allowed(answer["status"]):
        bad.append(f"{name}: status {row[21]}, expected {answer['status']}")
    filled = [key for key, cell in zip(KEYS, row[1:21], strict=True) if cell.strip()][3 if row[1].strip() else 0 :]
    filled = [key for key in filled if key != "inf_nan_error_ratio" or key in str(answer["filled"])]
    allowed = answer["filled"] if answer["filled"] and isinstance(answer["filled"][0], list) else [answer["filled"]]
    if filled not in allowed:
        bad.append(f"{name}: filled {filled}, expected {answer['filled']}")
    return bad
