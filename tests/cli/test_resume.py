"""Tensor comparisons that are interrupted or killed keep what they have and go on with --resume."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from cli_support import dump, entry, executable, tensor, write_json

PAIRS = 240
COMMAND = ["compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html"]


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """Two tensor dumps whose files are links to one file of 8 MiB a side: much to read, little to store."""
    generator = np.random.default_rng(0)
    base = generator.standard_normal(2 << 20).astype(np.float32)
    for side, values in (("t", base), ("g", base + np.float32(1e-3) * generator.standard_normal(2 << 20, np.float32))):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        np.save(folder / "0.npy", values)
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2 << 20], "requires_grad": False}
        data = {}
        for i in range(PAIRS):
            if i > 0:
                os.link(folder / "0.npy", folder / f"{i}.npy")
            data[f"Torch.a.{i}.forward"] = entry(output=[leaf | {"data_name": f"{i}.npy"}])
        write_json(tmp_path / side / "dump.json", dump(data, task="tensor", dump_data_dir=str(folder)))
    return tmp_path


def start(where: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*executable(), *COMMAND, *more], cwd=where, stderr=subprocess.PIPE, text=True)


def journal_of(where: Path) -> list[Path]:
    """The journals that hold something: the file is made a moment before its first records are written."""
    return [p for p in (where / "out").glob(".msprobe_resume_*") if p.stat().st_size > 0]


def stop_in_the_middle(where: Path, how: signal.Signals) -> tuple[int, str]:
    """Sends the signal once some pairs are done and on disk."""
    process = start(where)
    try:
        deadline = time.monotonic() + 100
        while not journal_of(where) and process.poll() is None and time.monotonic() < deadline:
            os.sched_yield()
        process.send_signal(how)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
    return process.returncode, err


def report_of(where: Path) -> str:
    (path,) = (where / "out").glob("compare_result_*.csv")
    return path.read_text(encoding="utf-8")


def fresh_report(where: Path) -> str:
    command = [*executable(), *COMMAND]
    command[command.index("out")] = "fresh"
    subprocess.run(command, cwd=where, capture_output=True, check=True)
    (path,) = (where / "fresh").glob("compare_result_*.csv")
    return path.read_text(encoding="utf-8")


def resume(where: Path) -> str:
    process = start(where, "--resume")
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return err


def test_interrupted_run_keeps_a_partial_report_and_resumes_to_an_equal_one(big):
    status, err = stop_in_the_middle(big, signal.SIGINT)
    assert status == 130
    assert "--resume goes on from there" in err
    (partial,) = (big / "out").glob("partial_compare_result_*.csv")
    assert list((big / "out").glob("compare_result_*")) == []
    with partial.open(newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == PAIRS
    done = [r for r in rows if r["Result"] != "unmatched"]
    left = [r for r in rows if r["Result"] == "unmatched"]
    assert 0 < len(done) < PAIRS
    assert {r["Err_message"] for r in left} == {'["The comparison was interrupted before this row."]'}
    (summary,) = (big / "out").glob("compare_summary_*.json")
    (rank,) = json.loads(summary.read_text())["ranks"]
    assert rank["status"] == "interrupted"
    assert rank["not_compared"][0]["reason"] == "interrupted before this row"
    assert rank["not_compared"][0]["rows"] == len(left)

    err = resume(big)
    taken = re.search(r"resumed: the figures of (\d+) pieces", err)
    assert taken is not None
    assert int(taken.group(1)) == len(done)
    assert journal_of(big) == []
    assert report_of(big) == fresh_report(big)


def test_killed_run_resumes_to_an_equal_report(big):
    status, _ = stop_in_the_middle(big, signal.SIGKILL)
    assert status == -signal.SIGKILL
    (journal,) = journal_of(big)
    with journal.open("ab") as f:
        f.write(b"torn")
    err = resume(big)
    assert re.search(r"resumed: the figures of [1-9]\d* pieces", err)
    assert [p.name.split("_")[1] for p in sorted((big / "out").iterdir())] == ["result", "summary"]
    assert report_of(big) == fresh_report(big)


def test_a_changed_file_is_compared_again(big):
    stop_in_the_middle(big, signal.SIGKILL)
    values = np.load(big / "t" / "dump_tensor_data" / "0.npy")
    for i in range(PAIRS):
        (big / "t" / "dump_tensor_data" / f"{i}.npy").unlink()
    np.save(big / "t" / "dump_tensor_data" / "0.npy", values * 2)
    for i in range(1, PAIRS):
        os.link(big / "t" / "dump_tensor_data" / "0.npy", big / "t" / "dump_tensor_data" / f"{i}.npy")
    resume(big)
    assert report_of(big) == fresh_report(big)


def test_ranks_that_were_done_are_not_compared_again(big):
    for side in ("t", "g"):
        (big / f"{side}r").mkdir()
        (big / side).rename(big / f"{side}r" / "rank1")
        small = big / f"{side}r" / "rank0"
        (small / "dump_tensor_data").mkdir(parents=True)
        np.save(small / "dump_tensor_data" / "x.npy", np.ones(5, np.float32))
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [5], "requires_grad": False}
        call = entry(output=[leaf | {"data_name": "x.npy"}])
        write_json(small / "dump.json", dump({"Torch.b.0.forward": call}, task="tensor"))
    command = [*executable(), "compare", "-tp", "tr", "-gp", "gr", "-o", "out", "--no-html"]
    process = subprocess.Popen(command, cwd=big, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 100
        while not (journal_of(big) and list((big / "out").glob("compare_result_rank0_*.csv"))):
            assert process.poll() is None
            assert time.monotonic() < deadline
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130
    assert len(journal_of(big)) == 2
    done = subprocess.run([*command, "--resume"], cwd=big, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "[rank0] resumed: the figures of 1 pieces" in done.stderr
    assert re.search(r"\[rank1\] resumed: the figures of [1-9]", done.stderr)
    assert journal_of(big) == []


def test_interrupted_search_keeps_the_ranks_that_were_done(big):
    """Of two ranks the small one is done when the signal comes: it is searched, the other is named."""
    for side in ("t", "g"):
        (big / f"{side}r").mkdir()
        (big / side).rename(big / f"{side}r" / "rank1")
        norm = 2.0 if side == "t" else 1.0
        write_json(
            big / f"{side}r" / "rank0" / "dump.json",
            dump({"Torch.b.0.forward": entry(output=[tensor(Norm=norm)])}),
        )
    command = [*executable(), "compare", "-tp", "tr", "-gp", "gr", "-o", "out", "-da"]
    process = subprocess.Popen(command, cwd=big, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 100
        while not list((big / "out").glob("compare_result_rank0_*.json")) and time.monotonic() < deadline:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "only the ranks that were finished were searched" in err
    (path,) = (big / "out").glob("diff_analyze_summary_*.json")
    summary = json.loads(path.read_text())
    assert [(r["rank"], r.get("problem")) for r in summary["ranks"]] == [("rank0", None), ("rank1", "interrupted")]
    (found,) = (big / "out").glob("diff_analyze_[0-9]*.json")
    assert list(json.loads(found.read_text())) == ["rank_0"]


def test_resume_without_an_interrupted_run_says_so(tmp_path, msprobe):
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3],
        "requires_grad": False,
        "data_name": "x.npy",
    }
    (tmp_path / "t" / "dump_tensor_data").mkdir(parents=True)
    np.save(tmp_path / "t" / "dump_tensor_data" / "x.npy", np.ones(3, np.float32))
    write_json(tmp_path / "t" / "dump.json", dump({"Torch.a.0.forward": entry(output=[leaf])}, task="tensor"))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "t/dump.json", "-o", "out", "--resume")
    assert run.status == 0
    assert "nothing to resume in out" in run.err
    assert journal_of(tmp_path) == []
