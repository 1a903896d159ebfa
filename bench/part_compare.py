"""Comparison: tensors, statistics, many ranks and rows."""

from __future__ import annotations

import os
from pathlib import Path

from harness import HERE, OURS, WORK, Goal, Row, Section, Setup, own_table, process_table, run, share, table, text

TENSORS = {
    "big": "4 pairs of 100 MB float32",
    "half": "200 pairs of 2 MB bfloat16",
    "many": "3,000 pairs of 4 kB float32",
}


def make_inputs(setup: Setup, names: list[str]) -> Path:
    folder = WORK / ("inputs_small" if setup.small else "inputs")
    missing = [n for n in names if not any((folder / n / "golden").rglob("construct.json"))]
    if missing:
        small = ["--small"] if setup.small else []
        print(f"  making inputs: {' '.join(missing)}", flush=True)
        run([str(setup.pythons[OURS]), str(HERE / "gen_inputs.py"), str(folder), *missing, *small])
    return folder


def compare_command(setup: Setup, pair: Path, *options: str, path: str = "dump.json") -> dict[str, list[str]]:
    """`path` is below each side. The page and the search for the operator at fault are off: the original has none."""

    def make(python: Path, tool: str) -> list[str]:
        sides = ["-tp", str(pair / "target" / path), "-gp", str(pair / "golden" / path)]
        command = [str(python.parent / "msprobe"), "compare", *sides, "-o", str(WORK / "reports" / tool), *options]
        return [*command, "--no-html", "--no-culprit"] if tool == OURS else command

    return setup.commands(make)


def on_one_core(commands: dict[str, list[str]]) -> dict[str, list[str]]:
    return {tool: ["taskset", "-c", str(min(os.sched_getaffinity(0))), *c] for tool, c in commands.items()}


def tensors(setup: Setup) -> Section:
    folder, rows, speeds = make_inputs(setup, list(TENSORS)), [], []
    rate: dict[str, float | None] = {}
    for name, label in TENSORS.items():
        size = sum(p.stat().st_size for p in (folder / name).glob("*/dump_tensor_data/*"))
        row = setup.in_turn(label, compare_command(setup, folder / name))
        rows.append(row)
        for tool in setup.pythons:
            per_cpu, per_wall = (share(size / 1e9, seconds) for seconds in (row.cpu(tool), row.wall(tool)))
            speeds.append([label, tool, text(per_cpu, 3), text(per_wall, 3)])
            if tool == OURS:
                rate[name] = per_cpu
    one = setup.ours().in_turn(
        f"{TENSORS['big']}, on one core", on_one_core(compare_command(setup.ours(), folder / "big"))
    )
    lines = [
        "Files in the page cache; start-up included; `--no-html --no-culprit`, since the original has neither.",
        "",
        *process_table([*rows, one]),
        "",
        *table(["what", "tool", "GB per cpu second (a core)", "GB per second"], speeds),
    ]
    goals = [
        Goal(f"compare, {TENSORS['big']}", "≥ 3 GB/s per core", 3, rate["big"], " GB/s", at_least=True),
        Goal(f"compare, {TENSORS['half']}", "≥ 2 GB/s per core", 2, rate["half"], " GB/s", at_least=True),
        Goal("compare, two cores against one", "≥ 1.8x", 1.8, share(one.wall(), rows[0].wall()), "x", at_least=True),
        Goal(f"compare, {TENSORS['many']}", "≤ 0.3 s", 0.3, rows[2].wall(), " s"),
    ]
    return Section(lines, goals)


def statistics(setup: Setup) -> Section:
    pair = make_inputs(setup, ["stats"]) / "stats"
    csv = setup.in_turn("60,000 rows, csv", compare_command(setup, pair))
    xlsx = setup.in_turn("60,000 rows, xlsx", compare_command(setup, pair, "--xlsx"))
    goals = [
        Goal("compare, 60,000 statistics rows, csv", "≤ 0.6 s", 0.6, csv.wall(), " s"),
        Goal("the same, xlsx", "≤ 3 s", 3, xlsx.wall(), " s"),
        Goal("the same, memory", "≤ 300 MB", 300, highest(csv, xlsx), " MB", digits=0),
    ]
    return Section(["`--no-html --no-culprit`.", "", *process_table([csv, xlsx])], goals)


def highest(*rows: Row) -> float | None:
    peaks = [row.peak() for row in rows]
    return None if None in peaks else max(p for p in peaks if p is not None)


def many_rows(setup: Setup) -> Section:
    """Many ranks, and reports of more rows than a sheet holds; ours alone."""
    own = setup.ours()
    folder = make_inputs(own, ["ranks", "million"])
    million = own.in_turn("1,000,020 rows, csv", compare_command(own, folder / "million"))
    rows = [
        own.in_turn("8 ranks of 7,500 rows, csv", compare_command(own, folder / "ranks", path="")),
        own.in_turn("8 ranks of 7,500 rows, xlsx", compare_command(own, folder / "ranks", "--xlsx", path="")),
        million,
    ]
    goals = [Goal("compare, 1,000,000 rows csv, memory", "≤ 1 GB", 1024, million.peak(), " MB", digits=0)]
    return Section(["Statistics dumps; `--no-html`; ours alone.", "", *own_table(rows)], goals)
