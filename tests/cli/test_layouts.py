"""`compare --layout` on tensors: joined dumps of unequal sizes against what NumPy joins."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LAYOUT = """target: {{tp: {0}, dp: {1}}}
golden: {{tp: {2}, dp: {3}}}
tensors:
- {{name: 'Module.column.*.output.0', tp: -1, dp: 0}}
- {{name: 'Module.column.*.parameters.weight', tp: 0}}
- {{name: 'Module.row.*.output.0', tp: sum, dp: 0}}
- {{name: 'Module.norm.*', tp: same, dp: 0}}
"""


WEIGHT = "Module.column.ColumnParallelLinear.forward.0.parameters.weight"
HIDDEN = "Module.column.ColumnParallelLinear.forward.0.output.0"


def model() -> dict[str, np.ndarray]:
    """What one device holds: a column-parallel layer, a row-parallel one, and what every rank has whole."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((6, 10)).astype(np.float32)
    weight = rng.standard_normal((8, 10)).astype(np.float32)
    hidden = (x @ weight.T).astype(np.float32)
    back = rng.standard_normal((10, 8)).astype(np.float32)
    return {"weight": weight, "hidden": hidden, "back": back, "norm": np.tanh(hidden @ back.T).astype(np.float32)}


def cut(length: int, parts: int) -> list[slice]:
    """As numpy.array_split: the first ones are longer when parts are unequal."""
    ends = np.cumsum([len(p) for p in np.array_split(np.arange(length), parts)])
    return [slice(int(a), int(b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def leaf(values: np.ndarray, file: str, folder: Path) -> dict[str, Any]:
    """A record with its file."""
    np.save(folder / "dump_tensor_data" / file, values)
    wide = values.astype(np.float64)
    figures = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": np.sqrt((wide**2).sum())}
    head = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape), "requires_grad": False}
    return {**head, **{k: float(v) for k, v in figures.items()}, "data_name": file}


def write(folder: Path, tp: int, dp: int) -> dict[str, list[np.ndarray]]:
    """A dump of tp * dp ranks, neighbours along tp; what each rank holds of each tensor."""
    whole = model()
    held: dict[str, list[np.ndarray]] = {"weight": [], "hidden": [], "row": [], "norm": []}
    columns = cut(8, tp)
    for rank in range(tp * dp):
        rows, part = cut(6, dp)[rank // tp], columns[rank % tp]
        held["weight"].append(whole["weight"][part])
        held["hidden"].append(whole["hidden"][rows, part])
        held["row"].append((whole["hidden"][rows, part] @ whole["back"][:, part].T).astype(np.float32))
        held["norm"].append(whole["norm"][rows])
    for rank in range(tp * dp):
        place = folder / f"rank{rank}"
        (place / "dump_tensor_data").mkdir(parents=True)
        column = {
            "input_args": [],
            "input_kwargs": {},
            "parameters": {"weight": leaf(held["weight"][rank], WEIGHT + ".npy", place)},
            "output": [leaf(held["hidden"][rank], HIDDEN + ".npy", place)],
        }
        data = {"Module.column.ColumnParallelLinear.forward.0": column}
        for name in ("row", "norm"):
            output = [leaf(held[name][rank], f"Module.{name}.Layer.forward.0.output.0.npy", place)]
            data[f"Module.{name}.Layer.forward.0"] = {"input_args": [], "input_kwargs": {}, "output": output}
        head = {"task": "tensor", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
        (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return held


def compared(msprobe, tmp_path: Path, layout: str) -> dict[str, dict[str, str]]:
    """The rows of the report by their names."""
    (tmp_path / "layout.yaml").write_text(layout)
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "--layout", "layout.yaml", "--no-html")
    assert run.status in (0, 1), run.err
    (table,) = (tmp_path / "out").glob("compare_result_*.csv")
    with table.open(newline="", encoding="utf-8-sig") as f:
        return {row["NPU Name"]: row for row in csv.DictReader(f)}


@pytest.mark.parametrize(
    ("target", "golden"),
    [((2, 1), (4, 1)), ((4, 2), (1, 1)), ((1, 2), (2, 4)), ((3, 1), (1, 1)), ((2, 4), (3, 2))],
    ids=["2-against-4", "4x2-against-1", "data-2-against-2x4", "uneven-3", "uneven-both"],
)
def test_every_tensor_is_that_of_one_device(msprobe, tmp_path: Path, target, golden) -> None:
    write(tmp_path / "t", *target)
    write(tmp_path / "g", *golden)
    rows = compared(msprobe, tmp_path, LAYOUT.format(*target, *golden))
    whole = model()
    shapes = {HIDDEN: whole["hidden"].shape, WEIGHT: whole["weight"].shape}
    shapes |= {f"Module.{name}.Layer.forward.0.output.0": (6, 10) for name in ("row", "norm")}
    assert set(rows) == set(shapes)
    for name, shape in shapes.items():
        row = rows[name]
        assert row["NPU Tensor Shape"] == row["Bench Tensor Shape"] == str(list(shape)), name
        # Parts of a sum round on their own; the others are the same bits.
        assert float(row["MaxAbsErr"]) <= (1e-5 if ".row." in name else 0.0), name
        assert float(row["Cosine"]) == pytest.approx(1.0, abs=1e-6), name


def test_an_error_of_one_part_is_that_of_the_whole(msprobe, tmp_path: Path) -> None:
    held = write(tmp_path / "t", 4, 2)
    write(tmp_path / "g", 2, 1)
    # Rank 6 holds the third quarter of the columns of the second half of the rows.
    path = tmp_path / "t" / "rank6" / "dump_tensor_data" / f"{HIDDEN}.npy"
    wrong = held["hidden"][6].copy()
    wrong[1, 0] += 3.0
    np.save(path, wrong)
    rows = compared(msprobe, tmp_path, LAYOUT.format(4, 2, 2, 1))
    joined = model()["hidden"].copy()
    joined[3 + 1, 4] += np.float32(3.0)
    difference = np.abs(joined - model()["hidden"]).max()
    row = rows[HIDDEN]
    assert float(row["MaxAbsErr"]) == pytest.approx(float(difference), rel=1e-5)
    a, b = joined.astype(np.float64).ravel(), model()["hidden"].astype(np.float64).ravel()
    assert float(row["Cosine"]) == pytest.approx(a @ b / np.sqrt((a @ a) * (b @ b)), abs=1e-6)
    assert float(rows["Module.norm.Layer.forward.0.output.0"]["MaxAbsErr"]) == 0.0


def test_parts_in_another_order_are_found_by_no_layout_but_differ(msprobe, tmp_path: Path) -> None:
    held = write(tmp_path / "t", 2, 1)
    write(tmp_path / "g", 1, 1)
    for rank in range(2):
        np.save(tmp_path / "t" / f"rank{rank}" / "dump_tensor_data" / f"{HIDDEN}.npy", held["hidden"][1 - rank])
    rows = compared(msprobe, tmp_path, LAYOUT.format(2, 1, 1, 1))
    swapped = np.concatenate([held["hidden"][1], held["hidden"][0]], axis=1)
    row = rows[HIDDEN]
    assert float(row["MaxAbsErr"]) == pytest.approx(float(np.abs(swapped - model()["hidden"]).max()), rel=1e-5)


def test_a_guess_is_right_where_only_one_way_fits(msprobe, tmp_path: Path) -> None:
    write(tmp_path / "t", 4, 2)
    write(tmp_path / "g", 2, 1)
    rows = compared(msprobe, tmp_path, "target: {tp: 4, dp: 2}\ngolden: {tp: 2, dp: 1}\n")
    for name, row in rows.items():
        assert float(row["MaxAbsErr"]) <= (1e-5 if ".row." in name else 0.0), name
    (found,) = (tmp_path / "out").glob("layout_*.yaml")
    text = found.read_text()
    assert "- {name: 'Module.column.ColumnParallelLinear.forward.*.parameters.weight', tp: 0" in text
    assert "- {name: 'Module.row.Layer.forward.*.output.0', tp: sum, dp: 0}" in text
    assert text.count("# guess") == 4
