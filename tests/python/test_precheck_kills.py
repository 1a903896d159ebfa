"""A replay that is killed at any moment and resumed, again and again, ends with the files of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from msprobe import _core

DATA = Path(__file__).resolve().parents[1] / "data" / "precheck"
CANDIDATE = """
import time
def f(name, real, args, kwargs):
    time.sleep(0.02)
    return real(*args, **kwargs)
"""


class Replay:
    """The command in a child that was forked: PyTorch is there already, so that kills fall into the work."""

    def __init__(self, folder: Path, *args: object) -> None:
        (folder / "kill_candidate.py").write_text(CANDIDATE, "utf-8")
        options = ["-api_info", str(DATA / "run_conv_stats" / "dump.json"), "--device", "cpu", "--baseline", "cpu"]
        command = ["msprobe", "acc_check", *options, "--candidate", "kill_candidate:f", *(str(a) for a in args)]
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                os.chdir(folder)
                sys.path.insert(0, str(folder))
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                torch.set_num_threads(1)  # the order of sums in convolutions depends on it
                status = _core.main(command)
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def wait(self) -> int:
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def kill(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)


def records(folder: Path, kind: str) -> list[bytes]:
    """Records of a file of the run, in order."""
    (path,) = folder.glob(f"accuracy_checking_{kind}_[0-9]*.csv")
    return path.read_bytes().split(b"\r\n")


def grown_to(process: Replay, folder: Path, size: int) -> bool:
    """Wait until the three files hold so many bytes together; False when the process ended before."""
    while process.poll() is None:
        if sum(p.stat().st_size for p in folder.glob("accuracy_checking_*.csv")) >= size:
            return True
        time.sleep(0.002)
    return False


def kill_often(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    assert Replay(folder, "-o", "whole").wait() == 0
    kinds = ("result", "details", "details_baseline")
    whole = {kind: records(folder / "whole", kind) for kind in kinds}
    total = sum(p.stat().st_size for p in (folder / "whole").glob("accuracy_checking_*.csv"))
    killed = survived = lost = runs = 0
    while killed < kills:
        out = folder / f"out{runs}"
        runs += 1
        args: list[object] = ["-o", out.name]
        while True:
            process = Replay(folder, *args)
            done = sum(p.stat().st_size for p in out.glob("accuracy_checking_*.csv"))
            # Somewhere behind what is there: a kill before the first new byte would prove little.
            goal = chance.randint(done + 1, max(done, total) + 1)
            ended = killed >= kills or not grown_to(process, out, goal)
            if ended:
                assert process.wait() == 0
                break
            process.kill()
            process.wait()
            killed += 1
            results = list(out.glob("accuracy_checking_result_*.csv"))
            args = ["-csv_path", results[0]] if results and len(list(out.glob("*.csv"))) == 3 else ["-o", out.name]
            if args[0] == "-o":
                for path in out.glob("*"):
                    path.unlink()
        same = all(records(out, kind) == whole[kind] for kind in kinds)
        survived, lost = survived + same, lost + (not same)
    print(f"\nkilled {killed} times in {runs} runs: {survived} runs ended with the same files, {lost} did not")
    assert lost == 0


def test_files_survive_a_few_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, 4, 1)


@pytest.mark.slow
def test_files_survive_many_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, 200, 2)
