"""--memory-limit of the pre-check: what a call needs, what becomes of calls beyond it, and workers counted together."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from precheck_golden import table
from precheck_support import Runner, call, msprobe, tensor, write_dump

from msprobe.precheck import workers
from msprobe.precheck.devices import Device
from msprobe.precheck.dump import Call, Dump
from msprobe.precheck.memory import MOST_ELEMENTS, elements, needed_bytes
from msprobe.precheck.options import Options
from msprobe.precheck.settings import Settings

__all__ = ["msprobe"]  # a fixture

MIB = 1 << 20
HUGE = [2**62] * 1000


def add(side: int) -> dict[str, Any]:
    """A call of two matrices of float32: with the result, 16 bytes times three per element on the CPU."""
    return call(*[tensor("float32", [side, side], -1.0, 1.0)] * 2) | {
        "output": [tensor("float32", [side, side], -2.0, 2.0)]
    }


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([], 1), ([2, 3], 6), ([0, 2**70], 0), ([-1], 0), ([True], 0), (["2"], 0), (None, 0), (HUGE, MOST_ELEMENTS)],
)
def test_memory_elements_of_a_recorded_shape(shape: Any, expected: int) -> None:
    assert elements(shape) == expected


def test_memory_that_a_call_needs() -> None:
    # float32: 4 recorded, 4 on the CPU as device, 8 in the reference; three tensors of 6 elements.
    one = Call("Torch.add.0", call(*[tensor("float32", [2, 3], 0, 1)] * 2) | {"output": [tensor("float32", [6], 0, 1)]})
    assert needed_bytes(one, on_cpu=True, always_f64=False) == 3 * 6 * 16
    assert needed_bytes(one, on_cpu=False, always_f64=False) == 3 * 6 * 12
    # bfloat16: 2, 2 and 4 (8 with --reference f64); int64: 8 each time; the gradients count as well.
    half, whole = tensor("bfloat16", [10], 0, 1), tensor("int64", [5], 0, 1)
    two = Call("Torch.f.0", call([half], index=whole), {"input": [half], "output": [half, None]})
    assert needed_bytes(two, on_cpu=True, always_f64=False) == 3 * 10 * 8 + 5 * 24
    assert needed_bytes(two, on_cpu=True, always_f64=True) == 3 * 10 * 12 + 5 * 24


@pytest.mark.parametrize("command", ["acc_check", "multi_acc_check"])
def test_memory_limit_makes_larger_calls_skips(command: str, msprobe: Runner, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.json", {f"Torch.add.{i}.forward": add(8 << i) for i in range(6)})
    more = ["-n", "2"] if command.startswith("multi") else []
    assert msprobe(command, "-api_info", dump, "-o", "out", "--device", "cpu", "--memory-limit", "1M", *more) == 0
    rows = table(tmp_path / "out", "result")
    # 48 bytes times 128 squared are 0.75 MiB; times 256 squared 3 MiB.
    assert [row[1] for row in rows.values()] == ["pass"] * 5 + ["SKIP"]
    assert list(rows.values())[5][3] == "memory_limit: its tensors take 3 MiB, more than the 1 MiB of --memory-limit"
    assert list(rows) == [f"Torch.add.{i}" for i in range(6)]


def test_memory_of_the_machine_is_the_limit_when_none_is_given(msprobe: Runner, tmp_path: Path) -> None:
    beyond = call(tensor("float32", [1 << 16, 1 << 16, 1 << 12], 0, 1))
    dump = write_dump(tmp_path / "dump.json", {"Torch.relu.0.forward": beyond})
    assert msprobe("acc_check", "-api_info", dump, "-o", "out", "--device", "cpu") == 0
    message = table(tmp_path / "out", "result")["Torch.relu.0"][3]
    assert message.startswith("memory_limit: its tensors take 268,435,456 MiB, more than the ")
    assert message.endswith(" of this machine")


@pytest.mark.parametrize("size", ["1", "1023K", "2T", "M", "-1G", "1g", "12Q", "1.5G"])
def test_memory_limit_sizes_that_are_refused(
    size: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump = write_dump(tmp_path / "dump.json", {})
    assert msprobe("acc_check", "-api_info", dump, f"--memory-limit={size}") == 2
    said = capfd.readouterr().err
    assert "--memory-limit" in said and "from 1M to 1T" in said


def test_memory_limit_counts_workers_together() -> None:
    """Calls wait until there is room for them; one that can never have room is given to a worker to be refused."""
    options = Options("multi_acc_check", False, True, "dump.json", "out", workers=3, memory_limit=MIB)
    pool = workers._Pool(workers.Job(options, Settings(), Dump("", [], False), ""), Device("cpu", 0), 1)
    ends = [multiprocessing.Pipe() for _ in range(3)]
    pool.workers = [workers._Worker(None, here, i) for i, (here, _) in enumerate(ends)]
    calls = [Call(f"Torch.add.{i}", add(side)) for i, side in enumerate((128, 128, 8, 4096))]
    queue = deque(range(4))

    def handed() -> list[int | None]:
        workers._hand_out(pool, queue, calls, 100)
        return [w.task for w in pool.workers]

    assert handed() == [0, None, None]  # two of 0.75 MiB are too much for 1 MiB
    assert handed() == [0, None, None]
    pool.workers[0].task = None
    assert handed() == [1, 2, 3]  # 0.75 MiB, 3 KiB, and one of 768 MiB that takes nothing
    assert [there.recv().name for _, there in ends] == ["Torch.add.0", "Torch.add.2", "Torch.add.3"]


def test_memory_shapes_that_are_none_end_in_skips_with_workers(msprobe: Runner, tmp_path: Path) -> None:
    shapes: list[list[Any]] = [[-3, -3], [2**62, 2**62], HUGE, [-(10**300)], [10**300], [2, 2]]
    data = {
        f"Torch.matmul.{i}.forward": call(*[tensor("float32", shape, 0.0, 1.0)] * 2) for i, shape in enumerate(shapes)
    }
    dump = write_dump(tmp_path / "dump.json", data)
    assert msprobe("multi_acc_check", "-api_info", dump, "-o", "out", "--device", "cpu", "-n", 1) == 0
    assert [row[1] for row in table(tmp_path / "out", "result").values()] == ["SKIP"] * 5 + ["pass"]


def test_memory_of_files_that_hold_more_than_their_record_says(msprobe: Runner, tmp_path: Path) -> None:
    """A view of one element two billion times over is a file of a kilobyte."""
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    torch.save(torch.zeros(1).expand(1 << 31), folder / "x.pt")
    assert (folder / "x.pt").stat().st_size < 4096
    told = call(tensor("float32", [4], 0.0, 0.0, data_name="x.pt"))
    untold = call(tensor("float32", [4], 0.0, 0.0, data_name="x.pt") | {"shape": None})
    dump = write_dump(
        tmp_path / "dump.json",
        {"Torch.relu.0.forward": told, "Torch.relu.1.forward": untold},
        task="tensor",
        dump_data_dir=str(folder),
    )
    assert msprobe("acc_check", "-api_info", dump, "-o", "out", "--device", "cpu", "--memory-limit", "1G") == 0
    rows = table(tmp_path / "out", "result")
    for name, most in (("Torch.relu.0", 64 * MIB), ("Torch.relu.1", 1024 * MIB)):
        assert rows[name][1] == "SKIP"
        assert rows[name][3].startswith("bad_data_file: ")
        assert f"holds a tensor of {1 << 33} bytes; at most {most} are expected" in rows[name][3]


CANDIDATE = """
import os, signal, torch
def f(full_name, real, args, kwargs):
    if full_name == "Torch.relu.1":
        torch.empty(1 << 58)  # more than any address space holds
    if full_name == "Torch.relu.2":
        os.kill(os.getpid(), signal.SIGKILL)  # as a kernel does that has no memory left
    return real(*args, **kwargs)
"""


def test_memory_that_a_worker_does_not_get_costs_its_call_only(
    msprobe: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hungry_candidate.py").write_text(CANDIDATE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    dump = write_dump(
        tmp_path / "dump.json", {f"Torch.relu.{i}.forward": call(tensor("float32", [4], -1.0, 1.0)) for i in range(4)}
    )
    options = ["-o", "out", "--device", "cpu", "-n", "2", "--candidate", "hungry_candidate:f"]
    assert msprobe("multi_acc_check", "-api_info", dump, *options) == 1  # a call was lost to a dead worker
    rows = table(tmp_path / "out", "result")
    assert [row[1] for row in rows.values()] == ["pass", "SKIP", "SKIP", "pass"]
    assert rows["Torch.relu.1"][3].startswith("out_of_memory: ")
    assert rows["Torch.relu.2"][3] == "worker_died: the process died twice on this call (signal 9)"
