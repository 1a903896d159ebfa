"""`--json` of the pre-check: every row and cell of the details csv that the same run wrote."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from precheck_support import Runner, call, msprobe, tensor, write_dump

__all__ = ["msprobe"]  # a fixture

REAL = tensor("float32", [4], -1.0, 1.0)
COMMANDS = ["acc_check", "run_ut", "multi_acc_check", "multi_run_ut"]


def read_lines(text: str) -> list[dict[str, Any]]:
    """Strict JSON lines: a bare NaN or Infinity is an error."""

    def refuse(word: str) -> float:
        raise AssertionError(word)

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def dump(folder: Path) -> Path:
    calls = {
        "Torch.sin.0.forward": call(REAL),
        "Torch.add.0.forward": call(tensor("int16", [4], 0, 9), 1),
        "Torch.no_such_function.0.forward": call(REAL),
    }
    return write_dump(folder / "dump.json", calls)


def arguments(command: str) -> list[str]:
    old = ["-f", "pytorch"] if command.endswith("run_ut") else []
    workers = ["-n", "2"] if command.startswith("multi") else []
    return [*old, command, "-api_info", "dump.json", "-o", "out", "--device", "cpu", *workers]


def check_rows(rows: list[dict[str, Any]], folder: Path, *, english: bool) -> None:
    """Against the one details file of the folder."""
    (path,) = folder.glob("accuracy_checking_details_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as f:
        header, *lines = csv.reader(f)
    assert len(rows) == len(lines) == 3
    for n, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert (row.pop("row"), row.pop("entry"), row.pop("verdict")) == (n, line[0], line[21].lower())
        assert all(key.isascii() for key in row)
        assert not english or list(row) == header
        for (key, value), cell in zip(row.items(), line, strict=True):
            if isinstance(value, (int, float)):
                assert float(cell) == value
            else:
                assert value == cell.strip(), key
        assert "sin" not in line[0] or isinstance(row["Max absolute error"], (int, float))


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_are_those_of_the_details(tmp_path: Path, msprobe: Runner, command: str) -> None:
    dump(tmp_path)
    english = command.endswith("acc_check")
    titles = ["--english"] if english else []
    assert msprobe(*arguments(command), "--json", "ci/rows", *titles) == 0
    check_rows(read_lines((tmp_path / "ci" / "rows").read_text("utf-8")), tmp_path / "out", english=english)
    assert [p.name for p in (tmp_path / "ci").iterdir()] == ["rows"]


def output(folder: Path, *given: str) -> str:
    """Standard output of a process of its own: pytest's is none."""
    done = subprocess.run(
        [sys.executable, "-m", "msprobe", *given], cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_on_standard_output_stand_alone(tmp_path: Path) -> None:
    dump(tmp_path)
    check_rows(read_lines(output(tmp_path, *arguments("acc_check"), "--json", "-")), tmp_path / "out", english=False)
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("command", ["acc_check", "run_overflow_check"])
def test_files_that_cannot_be_rows_are_refused_before_work(tmp_path: Path, msprobe: Runner, command: str) -> None:
    dump(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("")
    given = arguments(command) if command == "acc_check" else [command, "-api_info", "dump.json", "--device", "cpu"]
    for name in ("pipe", "plain/rows", "."):
        assert msprobe(*given, "--json", name) == 2
    assert (tmp_path / "pipe").is_fifo()
    assert not (tmp_path / "out").exists()
    (tmp_path / "dump.json").write_text("[]")
    assert msprobe(*given, "--json", "rows") == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dump.json", "pipe", "plain"]


def test_overflow_rows_say_what_the_lines_say(
    tmp_path: Path, msprobe: Runner, capfd: pytest.CaptureFixture[str]
) -> None:
    dump(tmp_path)
    given = ["run_overflow_check", "-api_info", "dump.json", "--device", "cpu", "--json"]
    assert msprobe(*given, "rows") == 0
    text = (tmp_path / "rows").read_text("utf-8")
    rows = read_lines(text)
    assert [(r["row"], r["entry"], r["verdict"]) for r in rows] == [
        (0, "Torch.sin.0", "normal"),
        (1, "Torch.add.0", "normal"),
        (2, "Torch.no_such_function.0", "skipped"),
    ]
    both = "".join(capfd.readouterr())
    for row in rows:
        kind = "" if row["verdict"] == "skipped" else f"{row['verdict']} overflow: "
        assert f"{row['entry']}: {kind}{row['reason']}\n" in both
    assert output(tmp_path, *given, "-") == text
