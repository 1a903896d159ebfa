"""Pre-check: replay of recorded APIs, workers, the final verdict."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from harness import HERE, OURS, ROOT, THEIRS, WORK, Goal, Section, Setup, own_table, process_table, share

DUMP = ROOT / "tests" / "data" / "precheck" / "run_apis_stats" / "dump.json"


def replay(setup: Setup) -> Section:
    """204 calls of small tensors, and ten times as many: what one more call costs, the call itself included."""
    calls = [name for name in json.loads(DUMP.read_text())["data"] if name.endswith(".forward")]
    many = WORK / "precheck_many" / "dump.json"
    write_repeated(many, 10)

    def make(dump: Path) -> dict[str, list[str]]:
        def command(python: Path, tool: str) -> list[str]:
            out = str(WORK / "precheck" / tool)
            if tool == THEIRS:
                return [str(python), str(HERE / "upstream_cpu.py"), "acc_check", "-api_info", str(dump), "-o", out]
            program = str(python.parent / "msprobe")
            return [program, "acc_check", "-api_info", str(dump), "-o", out, "--device", "cpu"]

        return setup.commands(command)

    row = setup.in_turn(f"{len(calls)} calls", make(DUMP), 1 if THEIRS in setup.pythons else None)
    own = {OURS: make(many)[OURS]}
    tenfold = setup.in_turn(f"{10 * len(calls)} calls", own)
    torch = setup.in_turn("`import torch` alone", {OURS: [str(setup.pythons[OURS]), "-c", "import torch"]})
    beyond = difference(row.cpu(), torch.cpu())
    each = difference(tenfold.cpu(), row.cpu())
    theirs = row.cpu(THEIRS)
    their_each = None if theirs is None else 1000 * theirs / len(calls)  # start-up included: seconds of minutes
    goals = [
        Goal(f"pre-check, {len(calls)} calls, beyond importing torch", "≤ 2 s of processor time", 2, beyond, " s"),
        Goal(
            "pre-check, one more API, itself included",
            "≤ 1 ms",
            1,
            share(each, 9 * len(calls) / 1000),
            " ms",
            original=their_each,
        ),
    ]
    lines = [
        "Forward and backward of small tensors from a statistics dump, details and result written, on the CPU. The",
        "original runs with the CPU in the place of its accelerator (bench/upstream_cpu.py).",
        "",
        *process_table([row, tenfold, torch]),
    ]
    return Section(lines, goals)


def difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def write_repeated(path: Path, times: int) -> None:
    """The dump with every call so many times, under numbers of its own."""
    dump = json.loads(DUMP.read_text())
    data = {}
    for n in range(times):
        for name, entry in dump["data"].items():
            kind, number, rest = re.fullmatch(r"(.*?)\.(\d+)\.(.*)", name).groups()  # type: ignore[union-attr]
            data[f"{kind}.{int(number) + 1000 * n}.{rest}"] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**dump, "data": data}))


def verdict(setup: Setup) -> Section:
    """api_precision_compare on two details files; the original only on the small ones."""

    def commands(rows: int, tools: list[str]) -> dict[str, list[str]]:
        script = str(HERE / "precision_rows.py")
        own = str(setup.pythons[OURS])
        return {t: [own, script, str(setup.pythons[t].parent / "msprobe"), str(rows)] for t in tools}

    small = setup.in_turn("4,000 rows", commands(4_000, list(setup.pythons)))
    large = setup.ours().in_turn("1,000,000 rows", commands(10_000 if setup.small else 1_000_000, [OURS]), 1)
    body = []
    for row in (small, large):
        for tool in setup.pythons:
            if row.cells.get(tool):
                cells = (row.extra(key, tool) or 0 for key in ("wall", "cpu", "peak_mb"))
                body.append("| {} | {} | {:.2f} | {:.2f} | {:.0f} |".format(row.label, tool, *cells))
    head = ["| what | tool | wall s | cpu s | peak MB |", "| --- | --- | --- | --- | --- |"]
    goals = [
        Goal(
            "api_precision_compare, 4,000 rows",
            "≤ 0.05 s",
            0.05,
            small.extra("wall"),
            " s",
            original=small.extra("wall", THEIRS),
        ),
        Goal("api_precision_compare, 1,000,000 rows", "≤ 10 s", 10, large.extra("wall"), " s"),
    ]
    return Section([*head, *body], goals)


def workers(setup: Setup) -> Section:
    """Heavy calls by one worker on one core and by two on two; ours alone."""
    own = setup.ours()
    dump = WORK / "heavy" / "dump.json"
    write_heavy(dump, 4 if setup.small else 72)

    def command(count: int) -> dict[str, list[str]]:
        out = ["-o", str(WORK / "precheck" / "heavy"), "--device", "cpu"]
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:count])
        return {
            OURS: [
                "taskset",
                "-c",
                cores,
                own.msprobe(),
                "multi_acc_check",
                "-api_info",
                str(dump),
                "-n",
                str(count),
                *out,
            ]
        }

    one, two = (own.in_turn(f"heavy calls, {n} worker{'s' * (n > 1)}", command(n)) for n in (1, 2))
    goals = [
        Goal("pre-check, two workers against one", "≥ 1.7x", 1.7, share(one.wall(), two.wall()), "x", at_least=True)
    ]
    lines = ["Products of 1,024 x 1,024 and convolutions; a core for each worker, start-up included.", ""]
    return Section([*lines, *own_table([one, two])], goals)


def write_heavy(path: Path, calls: int) -> None:
    def leaf(*shape: int) -> dict[str, object]:
        numbers = {"Max": 3.0, "Min": -3.0, "Mean": 0.0, "Norm": 1000.0}
        return {
            "type": "torch.Tensor",
            "dtype": "torch.float32",
            "shape": list(shape),
            **numbers,
            "requires_grad": True,
        }

    data = {}
    for i in range(calls):
        data[f"Torch.matmul.{i}.forward"] = {
            "input_args": [leaf(1024, 1024), leaf(1024, 1024)],
            "input_kwargs": {},
            "output": [leaf(1024, 1024)],
        }
        data[f"Functional.conv2d.{i}.forward"] = {
            "input_args": [leaf(8, 32, 64, 64), leaf(64, 32, 3, 3)],
            "input_kwargs": {},
            "output": [leaf(8, 64, 62, 62)],
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**head, "data": data}))
