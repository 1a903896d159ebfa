"""Processes that are killed, disks that are full, many processes in one tree (decisions.md 8-10, 20)."""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from capture_tools import write_config
from torch import nn

from msprobe import _core
from msprobe.pytorch import PrecisionDebugger

STEPS_KEPT = 400


class Progress:
    """A number that a child counts up and its parent reads, also when the child is dead."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def add(self, n: int) -> None:
        self._memory[:] = struct.pack("<q", self.value + n)

    @property
    def value(self) -> int:
        return struct.unpack("<q", self._memory[:])[0]


def train(config: str, progress: Progress, model: nn.Module | None) -> None:
    """Steps of 40 calls until somebody kills the process; each call that has returned is counted."""
    torch.set_num_threads(1)
    tool = PrecisionDebugger(config_path=config)
    x = torch.ones(64)
    for _ in range(STEPS_KEPT):
        tool.start(model)
        for _ in range(40):
            if model is None:
                torch.add(x, 1.0)
            else:
                model(x)
            progress.add(1)
        tool.stop()
        tool.step()


def killed_after(config: str, calls: int, model: nn.Module | None, moment: random.Random) -> int:
    """Runs `train` in a child and kills it once it has made so many calls; how many it had made."""
    progress = Progress()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            train(config, progress, model)
        finally:
            os._exit(3)
    while progress.value < calls and os.waitpid(child, os.WNOHANG) == (0, 0):
        os.sched_yield()
    for _ in range(moment.randrange(2000)):  # somewhere inside the next calls
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return progress.value


def read_all(root: Path) -> tuple[list[str], list[Path], int]:
    """All entries of all steps by our reader, the tensor files that they name, and how many JSON files are cut off.

    Linux ends a write between two pages when the process is killed in the middle of it. Such a file is cut off until
    somebody reads it together with the journal; only one flush can be under way.
    """
    names, files, torn = [], [], 0
    for step in sorted(root.glob("step*"), key=lambda p: int(p.name[4:])):
        rank = step / "rank"
        if not (rank / "dump.json").exists():
            continue  # killed between the folder and its first file: nothing was recorded yet
        for file in ("dump.json", "stack.json", "construct.json"):
            if (rank / file).exists():
                try:
                    json.loads((rank / file).read_text())
                except ValueError:
                    torn += 1
        for name, value in _core.precheck_read_dump(str(rank / "dump.json"))["data"].items():
            names.append(f"{step.name}/{name}")
            files += [rank / "dump_tensor_data" / f for f in data_names(value)]
    return names, files, torn


def data_names(value):
    if isinstance(value, dict):
        own = [value["data_name"]] if isinstance(value.get("data_name"), str) else []
        return own + [n for v in value.values() for n in data_names(v)]
    return [n for v in value for n in data_names(v)] if isinstance(value, list) else []


def run_kills(tmp_path: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills; of each run every call that had returned must be readable, and every file that is named whole."""
    moment = random.Random(seed)
    counts = {"tried": 0, "calls": 0, "read": 0, "lost": 0, "files": 0, "cut off": 0}
    module = nn.Sequential(nn.ReLU())
    settings = [("L1", "statistics", None, 1), ("L1", "tensor", None, 1), ("mix", "statistics", module, 2)]
    for k in range(kills):
        level, task, model, per_call = settings[k % len(settings)]
        folder = tmp_path / f"run{k}"
        folder.mkdir()
        config = write_config(folder, level, task=task, buffer_size=65536)
        made = killed_after(config, moment.randrange(1, 900), model, moment)
        names, files, torn = read_all(folder / "dump")
        assert torn <= 1
        counts["cut off"] += torn
        for file in files:
            assert torch.load(file, weights_only=True).shape == (64,)
        expected = made * per_call
        counts["tried"] += 1
        counts["calls"] += made
        counts["read"] += len(names)
        counts["lost"] += max(0, expected - len(names))
        counts["files"] += len(files)
        # The call under way when the process died may be there or not.
        assert expected <= len(names) <= expected + per_call, (k, level, task, made, len(names))
        shutil.rmtree(folder)
    return counts


def test_collect_kill_loses_no_call_that_had_returned(tmp_path):
    counts = run_kills(tmp_path, 12, 1)
    assert counts["tried"] == 12 and counts["lost"] == 0


@pytest.mark.slow
def test_collect_240_kills(tmp_path):
    counts = run_kills(tmp_path, 240, 2)
    print(f"\nkill -9: {counts}")
    assert counts["tried"] == 240 and counts["lost"] == 0


# ---- a disk of our own

FILL_DISK = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path=sys.argv[1], task=sys.argv[2], level="L1")
x = torch.ones(1000)
done = 0
for step in range(12):
    tool.start()
    for _ in range(300):
        torch.add(x, 1.0)
        done += 1
    tool.stop()
    tool.step()
print("training did", done)
"""


def on_small_disk(tmp_path: Path, megabytes: int, task: str, before: str = "true") -> tuple[str, Path]:
    """The script's output and a copy of what it left, on a disk of so many megabytes."""
    script, copy, disk = tmp_path / "script.py", tmp_path / "copy", tmp_path / "disk"
    script.write_text(FILL_DISK)
    disk.mkdir()
    command = (
        f"mount -t tmpfs -o size={megabytes}m tmpfs {disk} && {{ {before}; "
        f"{sys.executable} {script} {disk}/dump {task}; code=$?; cp -r {disk} {copy}; exit $code; }}"
    )
    where = {"cwd": tmp_path, "capture_output": True, "text": True}
    run = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command], **where)
    if "unshare failed" in run.stderr or "permission denied" in run.stderr.lower():
        pytest.skip(f"no disk of our own: {run.stderr.strip()}")
    assert run.returncode == 0, run.stderr
    assert "training did 3600" in run.stdout
    return run.stdout, copy / "dump"


def written_by_log(log: str) -> dict[str, int]:
    """Step -> entries that the closing line counts as written."""
    found = {}
    for line in log.splitlines():
        if "] step " in line and ": written " in line:
            step, _, rest = line.partition("] step ")[2].partition(": written ")
            found[f"step{step}"] = int(rest.split(",")[0])
    return found


@pytest.mark.parametrize(("task", "megabytes"), [("statistics", 1), ("tensor", 5)])
def test_collect_full_disk_is_one_line_and_counts_stay_true(tmp_path, task, megabytes):
    log, dump = on_small_disk(tmp_path, megabytes, task)
    errors = [line for line in log.splitlines() if "[ERROR]" in line]
    # One for each kind of thing that no longer fits.
    assert len([e for e in errors if "tensors are not saved" in e]) == (task == "tensor"), log
    assert len(errors) <= 2 and (task == "tensor" or len(errors) == 1), log
    written = written_by_log(log)
    assert written
    readable = {}
    for rank in dump.glob("step*/rank"):
        for file in rank.glob("*.json"):
            json.loads(file.read_text())
        entries = _core.precheck_read_dump(str(rank / "dump.json"))["data"]
        readable[rank.parent.name] = len(entries)
        for value in entries.values():
            for name in data_names(value):
                torch.load(rank / "dump_tensor_data" / name, weights_only=True)
    assert readable == written
    assert all(any(step.iterdir()) for step in dump.glob("step*")), "an empty folder was left"


def test_collect_disk_that_was_full_from_the_start(tmp_path):
    fill = "head -c 20m /dev/zero > disk/fill 2>/dev/null"
    log, dump = on_small_disk(tmp_path, 2, "statistics", fill)
    errors = [line for line in log.splitlines() if "[ERROR]" in line]
    assert len(errors) == 1 and "is not collected" in errors[0], log
    assert "12 steps were not collected" in log
    assert not list(dump.glob("step*"))


# ---- many processes

RANK = """
import os, sys, torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="statistics")
rank = int(sys.argv[2])
for step in range(5):
    tool.start(rank_id=rank)
    for _ in range(20):
        torch.add(torch.ones(3), float(rank))
    tool.stop()
    tool.step()
"""


def test_collect_eight_processes_make_one_tree(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    for _ in range(2):  # the second run finds the dumps of the first
        children = [
            subprocess.Popen(
                [sys.executable, script, tmp_path / "dump", str(rank)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(8)
        ]
        logs = [child.communicate()[0] for child in children]
        assert [c.returncode for c in children] == [0] * 8, logs
        assert not [line for log in logs for line in log.splitlines() if "[ERROR]" in line]
    tree = sorted(str(p.relative_to(tmp_path / "dump")) for p in (tmp_path / "dump").glob("step*/*"))
    assert tree == [f"step{s}/rank{r}" for s in range(5) for r in range(8)]
    moved = list((tmp_path / "dump").glob("replaced-*"))
    assert len(list((tmp_path / "dump").glob("replaced-*/step*/rank*"))) == 40
    assert len(moved) == 1
    for rank in range(8):
        dump = json.loads((tmp_path / "dump" / "step4" / f"rank{rank}" / "dump.json").read_text())
        assert len(dump["data"]) == 20
        assert dump["data"]["Torch.add.7.forward"]["input_args"][1]["value"] == float(rank)


EXITS = """
import os, signal, sys, torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="statistics")
tool.start()
for _ in range(30):
    torch.add(torch.ones(3), 1.0)
if sys.argv[2] == "exit":
    sys.exit(0)
if sys.argv[2] == "error":
    raise RuntimeError("the training failed")
if sys.argv[2] == "term":
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


@pytest.mark.parametrize(("way", "status", "complete"), [("exit", 0, True), ("error", 1, True), ("term", -15, None)])
def test_collect_ends_of_a_process_without_stop(tmp_path, way, status, complete):
    run = subprocess.run([sys.executable, "-c", EXITS, tmp_path / "dump", way], capture_output=True, text=True)
    assert run.returncode == status, run.stderr
    dump = json.loads((tmp_path / "dump" / "step0" / "rank" / "dump.json").read_text())
    assert len(dump["data"]) == 30
    assert dump.get("msprobe", {}).get("complete") is complete


KILLED = """
import os, signal, sys, torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="statistics")
tool.start()
for _ in range(30):
    torch.add(torch.ones(3), 1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_collect_dump_without_its_journal_says_where_the_entries_are(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "dump"], check=False)
    rank = tmp_path / "dump" / "step0" / "rank"
    assert json.loads((rank / "dump.json").read_text())["data"] == {}
    copy = tmp_path / "copy" / "dump.json"
    copy.parent.mkdir()
    shutil.copy(rank / "dump.json", copy)
    for path, status in ((rank / "dump.json", 0), (copy, 1)):
        command = [sys.executable, "-m", "msprobe", "compare", "-tp", path, "-gp", path, "-o", tmp_path / "report"]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == status, run.stderr
        assert ("30 entries come from the journal" in run.stderr) == (status == 0)
        assert (".msprobe_journal beside the file: copy the whole folder" in run.stderr) == (status == 1)
