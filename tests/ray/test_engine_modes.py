"""`--engine ray`: other kinds of dumps, other numbers of workers, collectives, and clusters that are not there."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_support import compare, leaf, run, summary, tables, write_pair

pytestmark = pytest.mark.no_sanitizer


def write_checksums(folder: Path, *, wrong: bool) -> None:
    """Two ranks that know checksums only; rank 1 is wrong at its last call on one side."""
    for rank in range(2):
        data = {}
        for i in range(4):
            content = f"{rank} {i} {wrong and rank == 1 and i == 3}"
            record = {
                "type": "torch.Tensor",
                "dtype": "torch.float32",
                "shape": [2],
                "md5": hashlib.md5(content.encode()).hexdigest()[:8],
            }
            data[f"Functional.relu.{i}.forward"] = {"input_args": [], "input_kwargs": {}, "output": [record]}
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        (place / "dump.json").write_text(json.dumps({**head, "data": data}))


def test_checksums_are_the_same_on_two_nodes(tmp_path: Path, cluster: str) -> None:
    write_checksums(tmp_path / "target", wrong=True)
    write_checksums(tmp_path / "golden", wrong=False)
    compare(tmp_path, "local")
    compare(tmp_path, "ray", "--engine", "ray", "--ray-address", cluster)
    assert tables(tmp_path / "ray") == tables(tmp_path / "local")
    assert summary(tmp_path / "ray") == summary(tmp_path / "local")
    first = [r["first_bad"] for r in summary(tmp_path / "ray")["ranks"]]
    assert first[0] is None
    assert first[1]["entry"] == "Functional.relu.3.forward"


def test_one_task_at_a_time_gives_what_two_give(tmp_path: Path, cluster: str) -> None:
    write_pair(tmp_path, 4, entries=6, elements=64)
    found = []
    for out, extra in (
        ("here-1", ["--workers", "1"]),
        ("here-2", ["--workers", "2"]),
        ("ray-1", ["--engine", "ray", "--ray-address", cluster, "--workers", "1"]),
        ("ray-2", ["--engine", "ray", "--ray-address", cluster, "--workers", "2"]),
    ):
        compare(tmp_path, out, "--no-html", *extra)
        found.append((tables(tmp_path / out), summary(tmp_path / out)))
    assert len(found[0][0]) == 4
    assert found[1:] == found[:1] * 3


def write_collective(folder: Path, given: list[list[float]], received: list[list[float]]) -> None:
    """A step in which every rank makes one all_reduce."""
    for rank, (x, y) in enumerate(zip(given, received, strict=True)):
        place = folder / f"rank{rank}"
        (place / "dump_tensor_data").mkdir(parents=True)

        def record(name: str, values: list[float], place: Path = place) -> dict[str, Any]:
            array = np.array(values, np.float32)
            np.save(place / "dump_tensor_data" / f"{name}.npy", array)
            return leaf(array, f"{name}.npy")

        entry = {"input_args": [record("given", x)], "input_kwargs": {}, "output": [record("received", y)]}
        head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": "dump_tensor_data"}
        data = {"Distributed.all_reduce.0.forward": entry}
        (place / "dump.json").write_text(json.dumps({**head, "data": data, "msprobe": {"world_size": len(given)}}))


def test_a_collective_is_judged_from_all_ranks_on_two_nodes(tmp_path: Path, cluster: str) -> None:
    # 1 + 3 and 2 + 5: what rank 1 received is not the sum.
    write_collective(tmp_path / "golden", [[1, 2], [3, 5]], [[4, 7], [4, 7]])
    write_collective(tmp_path / "target", [[1, 2], [3, 5]], [[4, 7], [4, 8]])
    compare(tmp_path, "local", "--culprit")
    compare(tmp_path, "ray", "--culprit", "--engine", "ray", "--ray-address", cluster)
    there = summary(tmp_path / "ray")
    culprits = [r["culprit"] for r in there["ranks"]]
    assert culprits[0]["findings"] == []
    assert [(f["entry"], f["kind"], f["rule"]) for f in culprits[1]["findings"]] == [
        ("Distributed.all_reduce.0.forward", "introduced", 9)
    ]
    assert culprits[1]["collectives"] == {"from_all_ranks": 1, "by_growth": {}}
    here = summary(tmp_path / "local")
    for document in (here, there):
        for r in document["ranks"]:
            r["culprit"].pop("seconds", None)
    assert there == here
    assert tables(tmp_path / "ray") == tables(tmp_path / "local")


def test_no_cluster_and_no_ray_are_told_in_a_line(tmp_path: Path) -> None:
    write_pair(tmp_path, 2, entries=2)
    args = ("compare", "-tp", "target", "-gp", "golden", "-o", "out", "-q", "--engine", "ray")
    done = run(*args, "--ray-address", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 2  # refused before any work
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(*args, "--ray-address", "no address", cwd=tmp_path)
    assert done.returncode == 2
    assert "no address" in done.stderr
    assert "Traceback" not in done.stderr
    without = tmp_path / "without"
    without.mkdir()
    (without / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    path = os.pathsep.join([str(without), *(p for p in sys.path if p)])
    done = run(*args, cwd=tmp_path, environment={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'msprobe-native[ray]'" in done.stderr
    assert "Traceback" not in done.stderr
