"""`compare --metrics`: columns of the user's own, from functions of two NumPy arrays."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import Run, dump, entry, executable, write_json

TARGET = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
GOLDEN = np.array([[1.0, 2.0], [4.0, 8.0]], np.float32)

# |3-4| + |5-8| = 4; the functions are told apart from each other and from a swap of the sides.
L1 = "import numpy as np\ndef column_name():\n    return 'L1'\ndef compare(n, b):\n    return np.abs(n - b).sum()\n"
SIGNED = "def column_name():\n    return 'Signed'\ndef compare(n, b):\n    n -= b\n    return float(n.sum())\n"
RAISES = "def column_name():\n    return 'Bad'\ndef compare(n, b):\n    raise ValueError('no such thing')\n"
WORD = "def column_name():\n    return 'Word'\ndef compare(n, b):\n    return 'fine'\n"


def python_command() -> list[str]:
    return [sys.executable, "-m", "msprobe"]


@pytest.fixture
def python_msprobe(tmp_path: Path) -> Callable[..., Run]:
    """The command line inside Python, as the console script runs it."""
    pytest.importorskip("msprobe")

    def run(*args: str) -> Run:
        done = subprocess.run(
            [*python_command(), *args], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        return Run(done.returncode, done.stdout, done.stderr, tmp_path)

    return run


def tensors(folder: Path) -> None:
    """Three rows: figures, shapes that differ, a file that is missing."""
    files = {"t": {"x.npy": TARGET, "y.npy": TARGET}, "g": {"x.npy": GOLDEN, "y.npy": GOLDEN[:, :1]}}
    for side, arrays in files.items():
        data_folder = folder / side / "dump_tensor_data"
        data_folder.mkdir(parents=True)
        leaves: list[dict[str, Any]] = []
        for name, array in arrays.items():
            np.save(data_folder / name, array)
            leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(array.shape)}
            leaves.append(leaf | {"requires_grad": False, "data_name": name})
        leaves.append(leaves[0] | {"data_name": "gone.npy"})
        whole = dump({"Torch.add.0.forward": entry(output=leaves)}, task="tensor", dump_data_dir=str(data_folder))
        write_json(folder / side / "dump.json", whole)


def metrics(folder: Path, **files: str) -> Path:
    where = folder / "metrics"
    where.mkdir()
    for name, text in files.items():
        (where / f"alg_{name}.py").write_text(text, encoding="utf-8")
    return where


def report(folder: Path) -> tuple[list[str], list[dict[str, str]]]:
    (path,) = (folder / "out").glob("compare_result_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        return list(reader.fieldnames or ()), rows


NEW = ("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html")


def test_columns_stand_behind_the_six(tmp_path, python_msprobe):
    tensors(tmp_path)
    metrics(tmp_path, a_l1=L1, b_signed=SIGNED)
    (tmp_path / "metrics" / "helper.py").write_text("raise SystemExit('not a metric')")
    done = python_msprobe(*NEW, "--metrics", "metrics", "--json", "rows.jsonl")
    assert done.status == 0, done.err
    columns, rows = report(tmp_path)
    last = columns.index("Five Thousandths Err Ratio")
    assert columns[last + 1 : last + 4] == ["L1", "Signed", "NPU max"]
    assert [(r["L1"], r["Signed"]) for r in rows] == [
        ("4.0", "-4.0"),
        ("shape unmatched", "shape unmatched"),
        ("unsupported", "unsupported"),
    ]
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [line["L1"] for line in lines] == [4.0, "shape unmatched", "unsupported"]


def test_what_fails_is_a_cell_and_one_warning(tmp_path, python_msprobe):
    tensors(tmp_path)
    for side in ("t", "g"):  # the second pair has figures too: still one warning per metric
        np.save(tmp_path / side / "dump_tensor_data" / "y.npy", TARGET)
        np.save(tmp_path / side / "dump_tensor_data" / "gone.npy", TARGET)
    metrics(tmp_path, bad=RAISES, l1=L1, word=WORD)
    done = python_msprobe(*NEW, "--metrics", "metrics")
    assert done.status == 0, done.err
    _, rows = report(tmp_path)
    assert rows[0]["Bad"] == "error: ValueError"
    assert rows[0]["Word"] == "error: str"
    assert rows[0]["L1"] == "4.0"
    assert done.err.count("metric Bad: ValueError: no such thing; first in row x") == 1
    assert done.err.count("metric Bad") == 1
    assert done.err.count("metric Word: gave str, which is no number") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def compare(n, b):\n    return 0\n", "has no function column_name()"),
        ("def column_name():\n    return 'A'\n", "has no function compare()"),
        (
            "def column_name():\n    return 'Cosine'\ndef compare(n, b):\n    return 0\n",
            "'Cosine' is the name of another",
        ),
        ("def column_name():\n    return '=1+1'\ndef compare(n, b):\n    return 0\n", "starts as a formula"),
        ("def column_name():\n    return ''\ndef compare(n, b):\n    return 0\n", "has no characters"),
        ("def column_name():\n    return 'a\\nb'\ndef compare(n, b):\n    return 0\n", "has control characters"),
        ("def column_name():\n    return 3\ndef compare(n, b):\n    return 0\n", "is no text: 3"),
        ("raise KeyError('x')\n", "KeyError: 'x'"),
    ],
)
def test_refused_before_any_work(tmp_path, python_msprobe, text, said):
    tensors(tmp_path)
    metrics(tmp_path, a=text)
    done = python_msprobe(*NEW, "--metrics", "metrics")
    assert done.status == 2
    assert len(done.errors()) == 1
    assert said in done.errors()[0]
    assert not (tmp_path / "out").exists()


def test_two_files_with_one_name_and_folders_without_files(tmp_path, python_msprobe):
    tensors(tmp_path)
    assert "no such folder" in python_msprobe(*NEW, "--metrics", "metrics").errors()[0]
    metrics(tmp_path)
    assert "no file alg_<name>.py" in python_msprobe(*NEW, "--metrics", "metrics").errors()[0]
    for name in ("a", "b"):
        (tmp_path / "metrics" / f"alg_{name}.py").write_text(L1)
    assert "'L1' is the name of another column" in python_msprobe(*NEW, "--metrics", "metrics").errors()[0]
    assert "no effect beside -da" in python_msprobe(*NEW, "--metrics", "metrics", "-da").errors()[0]


def test_the_executable_without_python_says_so(tmp_path, msprobe):
    if Path(executable()[0]).read_bytes()[:4] != b"\x7fELF":
        pytest.skip("the command under test is not the native executable")
    tensors(tmp_path)
    metrics(tmp_path, a=L1)
    done = msprobe(*NEW, "--metrics", "metrics")
    assert done.status == 2
    assert len(done.errors()) == 1
    assert "runs Python files, and this executable is without Python" in done.errors()[0]


def test_python_functions_and_both_faces(tmp_path):
    compare = pytest.importorskip("msprobe._compare").compare
    tensors(tmp_path)
    paths = {"npu_path": str(tmp_path / "t" / "dump.json"), "bench_path": str(tmp_path / "g" / "dump.json")}
    given = [("Largest", lambda n, b: np.abs(n - b).max()), ("Nothing", lambda n, b: np.float64("nan"))]
    rank = compare(paths, tmp_path / "out", metrics=given, keep_rows=True).ranks[0]
    at = rank.columns.index("Largest")
    assert rank.columns[at - 1] == "Five Thousandths Err Ratio"
    assert [row[at] for row in rank.rows()] == [3.0, "shape unmatched", "unsupported"]
    assert rank.rows()[0][at + 1] == "Nan"
    figures = rank.arrays()["Largest"]
    assert figures[0] == 3.0
    assert np.isnan(figures[1:]).all()


def test_bfloat16_comes_as_float32(tmp_path):
    torch = pytest.importorskip("torch")
    compare = pytest.importorskip("msprobe._compare").compare
    for side, values in (("t", [1.0, 2.5]), ("g", [1.0, 2.0])):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        torch.save(torch.tensor(values, dtype=torch.bfloat16), folder / "x.pt")
        leaf = {"type": "torch.Tensor", "dtype": "torch.bfloat16", "shape": [2], "requires_grad": False}
        whole = dump({"Torch.a.0.forward": entry(output=[leaf | {"data_name": "x.pt"}])}, task="tensor")
        write_json(tmp_path / side / "dump.json", whole | {"dump_data_dir": str(folder)})
    seen = []

    def total(n: Any, b: Any) -> float:
        seen.append((n.dtype, n.shape, b.dtype))
        return float((n - b).sum())

    paths = {"npu_path": str(tmp_path / "t" / "dump.json"), "bench_path": str(tmp_path / "g" / "dump.json")}
    rank = compare(paths, tmp_path / "out", metrics=[("Total", total)], keep_rows=True).ranks[0]
    assert rank.arrays()["Total"].tolist() == [0.5]
    assert seen == [(np.float32, (2,), np.float32)]
