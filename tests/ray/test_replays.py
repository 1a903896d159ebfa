"""The pre-check on two nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ray_support import run, tables

pytestmark = pytest.mark.no_sanitizer


def record(shape: list[int], low: float, high: float) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "Max": high, "Min": low}
    return leaf | {"Mean": None, "Norm": None, "requires_grad": False}


def write_calls(folder: Path, calls: dict[str, list[Any]]) -> None:
    data = {name: {"input_args": args, "input_kwargs": {}, "output": []} for name, args in calls.items()}
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}))


def check(folder: Path, out: str, *args: str) -> tuple[int, dict[str, bytes]]:
    shared = ("-api_info", "dump.json", "--device", "cpu", "--no-html", "-q", "-o", out)
    done = run("multi_acc_check", *shared, *args, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, tables(folder / out)


@pytest.mark.slow
def test_calls_give_the_same_rows_on_two_nodes(tmp_path: Path, cluster: str) -> None:
    x = record([4, 4], -2, 2)
    write_calls(
        tmp_path, {f"Torch.{api}.{i}.forward": [x] for i, api in enumerate(["relu", "exp", "tanh", "abs", "sin"])}
    )
    status, local = check(tmp_path, "local", "-n", "1")
    assert status == 0
    ray = ("--engine", "ray", "--ray-address", cluster, "--workers", "2")
    assert check(tmp_path, "ray", *ray) == (0, local)


@pytest.mark.slow
def test_calls_that_kill_their_process_or_their_task_are_skipped_with_the_reason(tmp_path: Path, cluster: str) -> None:
    write_calls(
        tmp_path, {f"Torch.{api}.{i}.forward": [record([4], -2, 2)] for i, api in enumerate(["relu", "exp", "tanh"])}
    )
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "def candidate(full_name, real, args, kwargs):\n"
        "    if 'exp' in full_name:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    if 'tanh' in full_name:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return real(*args, **kwargs)\n"
    )
    shared = ("--engine", "ray", "--ray-address", cluster, "--workers", "1", "--candidate", "deadly:candidate")
    status, found = check(tmp_path, "ray", *shared)
    assert status == 1
    (result,) = (v.decode() for k, v in found.items() if k.startswith("accuracy_checking_result"))
    lines = {line.split(",")[0]: line for line in result.splitlines()}
    assert "pass" in lines["Torch.relu.0"]
    assert "the process died twice on this call (signal 9)" in lines["Torch.exp.1"]
    assert "its worker was lost each of the 3 times it was tried" in lines["Torch.tanh.2"]


def test_a_custom_accelerator_is_claimed(cluster: str) -> None:
    from msprobe.scale.cluster import connect
    from msprobe.scale.replays import claim

    ray = connect(cluster, 0)
    try:

        @ray.remote(**claim("npu"))
        def assigned() -> dict[str, Any]:
            return dict(ray.get_runtime_context().get_assigned_resources())

        assert ray.get(assigned.remote())["NPU"] == 1.0
        assert claim("cuda") == {"num_gpus": 1}
    finally:
        ray.shutdown()


def test_a_device_that_no_node_has_is_refused(tmp_path: Path, cluster: str) -> None:
    write_calls(tmp_path, {"Torch.relu.0.forward": [record([4], -2, 2)]})
    done = run(
        "multi_acc_check", "-api_info", "dump.json", "--device", "cuda", "-o", "out", "--engine", "ray",
        "--ray-address", cluster, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no node of the Ray cluster offers a GPU" in done.stderr
    assert os.listdir(tmp_path) == ["dump.json"] or not (tmp_path / "out").exists()
