"""`msprobe ranks`, and `compare --layout`, as a user runs them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cli_support import write_json


def leaf(values: list[float], shape: list[int] | None = None) -> dict[str, Any]:
    """A record of float32 with the statistics of `values`."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape or [len(values)],
        "Max": max(values),
        "Min": min(values),
        "Mean": sum(values) / len(values),
        "Norm": math.sqrt(sum(v * v for v in values)),
        "requires_grad": False,
    }


def dump(data: dict[str, Any]) -> dict[str, Any]:
    return {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}


def module(weight: list[float], output: list[float]) -> dict[str, Any]:
    return {"input_args": [], "input_kwargs": {}, "parameters": {"weight": leaf(weight)}, "output": [leaf(output)]}


def test_the_odd_replica_is_named_with_both_figures(msprobe, tmp_path: Path) -> None:
    for rank in range(4):
        weight = [1.0, 2.0] if rank != 2 else [1.0, 2.5]
        data = {
            "Module.a.Linear.forward.0": module([3.0, 4.0], [1.0 + rank / 10]),
            "Module.b.Linear.forward.0": module(weight, [1.0 + rank / 10]),
            "Module.c.Linear.forward.0": module([5.0, 4.0], [1.0 + rank / 10]),
        }
        write_json(tmp_path / "step0" / f"rank{rank}" / "dump.json", dump(data))
    run = msprobe("ranks", "-i", "step0", "-o", "out", "--fail-on", "error")
    assert run.status == 3
    assert "Replicas: 0 1 2 3" in run.out
    assert "Odd one: rank 2 (parameter): Module.b.Linear.forward.0 parameters.weight" in run.out
    (path,) = (tmp_path / "out").glob("ranks_summary_*.json")
    summary = json.loads(path.read_text())
    (odd,) = summary["odd"]
    assert (odd["rank"], odd["kind"], odd["places"]) == (2, "parameter", 1)
    assert "Max 2.5" in odd["reason"] and "Max 2.0" in odd["reason"]
    assert summary["counts"]["odd"] == 1


def test_ranks_refuses_what_it_cannot_read(msprobe, tmp_path: Path) -> None:
    write_json(tmp_path / "one" / "rank0" / "dump.json", dump({}))
    assert msprobe("ranks", "-i", "one").status == 1
    assert msprobe("ranks", "-i", "nowhere").status == 2
    assert msprobe("ranks").status == 2
    run = msprobe("ranks", "-i", "one", "--replicas", "0,x")
    assert run.status == 2
    assert "--replicas: has no value '0,x'" in run.err


def test_two_parts_against_one_whole(msprobe, tmp_path: Path) -> None:
    call = {"input_args": [], "input_kwargs": {}}
    for rank, part in enumerate(([1.0, 2.0], [3.0, -4.0])):
        data = {"Functional.linear.0.forward": {**call, "output": [leaf(part, [1, 2])]}}
        write_json(tmp_path / "t" / f"rank{rank}" / "dump.json", dump(data))
    whole = {"Functional.linear.0.forward": {**call, "output": [leaf([1.0, 2.0, 3.0, -4.0], [1, 4])]}}
    write_json(tmp_path / "g" / "rank0" / "dump.json", dump(whole))
    (tmp_path / "layout.yaml").write_text("target: {tp: 2}\ngolden: {tp: 1}\n")
    run = msprobe("compare", "-tp", "t", "-gp", "g", "-o", "out", "--layout", "layout.yaml")
    assert run.status == 0, run.err
    assert "guess: how the ranks hold 1 tensors was not in the layout file" in run.err
    (path,) = (tmp_path / "out").glob("layout_*.yaml")
    assert "- {name: 'Functional.linear.*.forward.output.0', tp: 1}  # guess, 1 tensors, fits" in path.read_text()
    (summary,) = (tmp_path / "out").glob("compare_summary_*.json")
    assert json.loads(summary.read_text())["counts"]["pass"] == 1
    # Said instead of guessed, and wrong: the parts do not add up to the whole.
    (tmp_path / "layout.yaml").write_text("target: {tp: 2}\ngolden: {tp: 1}\ntensors:\n- {name: '*', tp: sum}\n")
    assert msprobe("compare", "-tp", "t", "-gp", "g", "-o", "wrong", "--layout", "layout.yaml").status in (0, 1)
    (summary,) = (tmp_path / "wrong").glob("compare_summary_*.json")
    assert json.loads(summary.read_text())["counts"]["pass"] == 0


def test_layout_and_engine_options_that_cannot_be_are_refused(msprobe, pair: Path) -> None:
    (pair / "layout.yaml").write_text("target: {tp: 2}\ngolden: {tp: 1}\n")
    files = ("-tp", "t/dump.json", "-gp", "g/dump.json")
    run = msprobe("compare", *files, "--layout", "layout.yaml")
    assert (run.status, "joins the ranks of step folders" in run.err) == (2, True)
    run = msprobe("compare", *files, "-da", "--layout", "layout.yaml")
    assert (run.status, "-da: has no effect beside --layout" in run.err) == (2, True)
    run = msprobe("compare", *files, "--engine", "dask")
    assert (run.status, "--engine: has no value 'dask'" in run.err) == (2, True)
