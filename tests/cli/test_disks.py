"""Disks that are full, limited, read-only or gone, and two runs in one place: what is there under a report's name is
whole, the reason is one line, and nothing else is left."""

from __future__ import annotations

import csv
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_support import dump, entry, executable, tensor, write_json

COMPARE = ("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
COMMANDS = {
    "csv": (*COMPARE, "--no-html"),
    "xlsx and html": (*COMPARE, "--xlsx", "--html"),
    "old face": ("-f", "pytorch", "compare", "-i", "compare.json", "-o", "out"),
    "inspect": ("diff", "t/dump.json", "g/dump.json"),
}


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two dumps of 3000 calls: reports of some hundred kilobytes."""
    for side, norm in (("t", 1.0), ("g", 2.0)):
        data = {f"Torch.add.{i}.forward": entry(output=[tensor(Norm=norm + i % 7)]) for i in range(3000)}
        write_json(tmp_path / side / "dump.json", dump(data))
    write_json(
        tmp_path / "compare.json",
        {"npu_path": "t/dump.json", "bench_path": "g/dump.json", "is_print_compare_log": False},
    )
    return tmp_path


def left(folder: Path) -> list[str]:
    """Files below the folder, with the time in their names taken out."""
    names = (re.sub(r"\d{14}", "TIME", str(p.relative_to(folder))) for p in folder.rglob("*") if p.is_file())
    return sorted(names)


def whole_sizes(where: Path, command: tuple[str, ...]) -> dict[str, int]:
    """What an undisturbed run leaves: name without time -> size."""
    run = subprocess.run([*executable(), *command], cwd=where, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    out = where / "out"
    sizes = {re.sub(r"\d{14}", "TIME", p.name): p.stat().st_size for p in out.iterdir()}
    shutil.rmtree(out)
    return sizes


def check_refusal(run: subprocess.CompletedProcess[str], words: tuple[str, ...]) -> None:
    """Ended by itself with status 1 or 2, and the reason stands in lines of its own, once each."""
    assert run.returncode in {1, 2}, (run.returncode, run.stderr)
    errors = [
        line
        for line in run.stderr.splitlines()
        if "error" in line.lower() and any(w.lower() in line.lower() for w in words)
    ]
    assert errors, run.stderr
    assert len(errors) == len(set(errors)), run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("command", ["csv", "xlsx and html", "old face"])
@pytest.mark.parametrize("kilobytes", [0, 4, 100])
def test_disk_limit_on_the_size_of_files_is_an_error_not_a_signal(dumps: Path, command: str, kilobytes: int) -> None:
    """Quotas need a file system made for them; a limit of the process is met at the same place."""
    sizes = whole_sizes(dumps, COMMANDS[command])
    assert max(sizes.values()) > 100 << 10, sizes

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

    (dumps / "said").touch()
    run = subprocess.run(
        [*executable(), *COMMANDS[command]],
        cwd=dumps,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        preexec_fn=limited,
        restore_signals=False,
    )
    check_refusal(run, ("File too large", "cannot write a temporary file"))
    if (dumps / "out").exists():
        for path in (dumps / "out").iterdir():
            name = re.sub(r"\d{14}", "TIME", path.name)
            assert name in sizes, f"left behind: {path.name}"
            if path.suffix != ".json":  # the summary says what failed
                assert path.stat().st_size == sizes[name], f"half a report: {path.name}"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which needs root")


@pytest.fixture
def disk(tmp_path: Path):
    """Mounts a file system in memory at out: disk("size=64k")."""
    (tmp_path / "out").mkdir()
    mounted = []

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", "out"]
        if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount here")
        mounted.append("out")
        return tmp_path / "out"

    yield mount
    for name in mounted:
        subprocess.run(["umount", name], cwd=tmp_path, check=True)


@needs_root
@pytest.mark.parametrize("command", ["csv", "xlsx and html", "old face"])
@pytest.mark.parametrize("kilobytes", [4, 64, 256])
def test_disk_that_is_full_leaves_whole_files_only(
    dumps: Path, disk: Callable[[str], Path], command: str, kilobytes: int
) -> None:
    (dumps / "out").rmdir()
    sizes = whole_sizes(dumps, COMMANDS[command])
    (dumps / "out").mkdir()
    out = disk(f"size={kilobytes}k")
    run = subprocess.run([*executable(), *COMMANDS[command]], cwd=dumps, capture_output=True, text=True, check=False)
    check_refusal(run, ("No space left on device", "cannot write a temporary file"))
    for path in out.iterdir():
        name = re.sub(r"\d{14}", "TIME", path.name)
        assert name in sizes, f"left behind: {path.name}"
        if path.suffix != ".json":
            assert path.stat().st_size == sizes[name], f"half a report: {path.name}"


@needs_root
@pytest.mark.parametrize("command", ["csv", "xlsx and html", "old face"])
def test_disk_that_is_read_only_is_named(dumps: Path, disk: Callable[[str], Path], command: str) -> None:
    out = disk("size=1m,ro")
    run = subprocess.run([*executable(), *COMMANDS[command]], cwd=dumps, capture_output=True, text=True, check=False)
    check_refusal(run, ("Read-only file system",))
    assert left(out) == []


# ---- folders that vanish while the command works: it is stopped, the folder goes, it goes on


@pytest.fixture
def stopped(tmp_path: Path):
    """A comparison of 300 pairs of one megabyte, stopped by SIGSTOP when some are done."""
    values = np.arange(1 << 18, dtype=np.float32)
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1 << 18], "requires_grad": False}
    for side in ("t", "g"):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        np.save(folder / "0.npy", values)
        data = {}
        for i in range(2000):
            if i > 0:
                os.link(folder / "0.npy", folder / f"{i}.npy")
            data[f"Torch.a.{i}.forward"] = entry(output=[leaf | {"data_name": f"{i}.npy"}])
        write_json(tmp_path / side / "dump.json", dump(data, task="tensor", dump_data_dir=str(folder)))
    command = [*executable(), *COMPARE, "--no-html"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not list((tmp_path / "out").glob(".msprobe_resume_*")):
        assert process.poll() is None and time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGSTOP)
    yield process
    process.kill()
    process.wait()


def test_disk_output_folder_that_vanishes_is_named(stopped: subprocess.Popen[str], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "out")
    stopped.send_signal(signal.SIGCONT)
    _, said = stopped.communicate(timeout=100)
    check_refusal(subprocess.CompletedProcess([], stopped.returncode, stderr=said), ("No such file or directory",))


def test_disk_tensor_files_that_vanish_are_rows_without_a_figure(
    stopped: subprocess.Popen[str], tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "t" / "dump_tensor_data")
    stopped.send_signal(signal.SIGCONT)
    _, said = stopped.communicate(timeout=100)
    assert stopped.returncode in {0, 1}, said
    (report,) = (tmp_path / "out").glob("compare_result_*.csv")
    with report.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2000
    gone = [row for row in rows if row["Result"] == "unmatched"]
    assert 0 < len(gone) < 2000
    assert all("No such file or directory" in row["Err_message"] or "not" in row["Err_message"] for row in gone)


def test_disk_files_that_shrink_while_they_are_read_are_rows_not_signals(
    stopped: subprocess.Popen[str], tmp_path: Path
) -> None:
    """All names are links to one file: it is cut while threads read it."""
    with (tmp_path / "t" / "dump_tensor_data" / "0.npy").open("r+b") as file:
        file.truncate(5000)
    stopped.send_signal(signal.SIGCONT)
    _, said = stopped.communicate(timeout=100)
    assert stopped.returncode in {0, 1}, said
    (report,) = (tmp_path / "out").glob("compare_result_*.csv")
    with report.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert 0 < sum(row["Result"] == "unmatched" for row in rows) < 2000 == len(rows)


def test_disk_sigterm_ends_in_an_orderly_way(stopped: subprocess.Popen[str], tmp_path: Path) -> None:
    stopped.send_signal(signal.SIGTERM)
    stopped.send_signal(signal.SIGCONT)
    stopped.communicate(timeout=100)
    assert stopped.returncode in {-signal.SIGTERM, 130, 143}
    assert list((tmp_path / "out").glob("compare_result_*")) == [], "half a report"
    again = subprocess.run(
        [*executable(), *COMPARE, "--no-html", "--resume"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0 and "resumed: the figures of" in again.stderr, again.stderr


# ---- several runs, and clocks


def test_disk_runs_in_one_folder_at_once_do_not_meet(dumps: Path) -> None:
    sizes = whole_sizes(dumps, COMMANDS["csv"])
    command = [*executable(), *COMMANDS["csv"]]
    runs = [subprocess.Popen(command, cwd=dumps, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    said = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 6, said
    reports = sorted((dumps / "out").glob("compare_result_*.csv"))
    assert len(reports) == 6
    assert {path.stat().st_size for path in reports} == {sizes["compare_result_TIME.csv"]}
    assert len(list((dumps / "out").iterdir())) == 6 * len(sizes)


def test_disk_clock_that_went_back_changes_nothing(dumps: Path) -> None:
    """Inputs and earlier reports are of the next century."""
    sizes = whole_sizes(dumps, COMMANDS["csv"])
    (dumps / "out").mkdir()
    old = dumps / "out" / "compare_result_21260101000000.csv"
    old.write_text("of later")
    for path in (old, dumps / "t" / "dump.json", dumps / "g" / "dump.json"):
        os.utime(path, (4922380800, 4922380800))
    run = subprocess.run([*executable(), *COMMANDS["csv"]], cwd=dumps, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert old.read_text() == "of later"
    new = [path for path in (dumps / "out").glob("compare_result_*.csv") if path != old]
    assert [path.stat().st_size for path in new] == [sizes["compare_result_TIME.csv"]]
