"""Comparison: tensors, statistics, many ranks and rows."""

from __future__ import annotations

import os
from pathlib import Path

from harness import (
    HERE,
    OURS,
    THEIRS,
    WORK,
    Goal,
    Row,
    Section,
    Setup,
    own_table,
    process_table,
    run,
    share,
    table,
    text,
)

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


def on_cores(count: int, commands: dict[str, list[str]]) -> dict[str, list[str]]:
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:count])
    return {tool: ["taskset", "-c", cores, *command] for tool, command in commands.items()}


def into_page_cache(folder: Path) -> int:
    """Read every tensor file once; returns their bytes."""
    return sum(len(path.read_bytes()) for path in folder.glob("*/dump_tensor_data/*"))


def tensors(setup: Setup) -> Section:
    folder, rows, speeds = make_inputs(setup, [*TENSORS, "long"]), [], []
    rate: dict[tuple[str, str], float | None] = {}
    for name, label in TENSORS.items():
        size = into_page_cache(folder / name)
        row = setup.in_turn(label, compare_command(setup, folder / name))
        rows.append(row)
        for tool in setup.pythons:
            per_cpu, per_wall = (share(size / 1e9, seconds) for seconds in (row.cpu(tool), row.wall(tool)))
            speeds.append([label, tool, text(per_cpu, 3), text(per_wall, 3)])
            rate[name, tool] = per_cpu
    own = setup.ours()
    one, two = (
        own.in_turn(
            f"16 pairs of 100 MB, on {n} core{'s' * (n > 1)}", on_cores(n, compare_command(own, folder / "long"))
        )
        for n in (1, 2)
    )
    lines = [
        "Files in the page cache; start-up included; `--no-html --no-culprit`, since the original has neither.",
        "",
        *process_table([*rows, one, two]),
        "",
        *table(["what", "tool", "GB per cpu second (a core)", "GB per second"], speeds),
    ]
    goals = [
        Goal(
            f"compare, {TENSORS[name]}",
            f"≥ {limit} GB/s per core",
            limit,
            rate[name, OURS],
            " GB/s",
            at_least=True,
            original=rate.get((name, THEIRS)),
        )
        for name, limit in (("big", 3), ("half", 2))
    ]
    many = rows[2]
    goals += [
        Goal("compare, two cores against one", "≥ 1.8x", 1.8, share(one.wall(), two.wall()), "x", at_least=True),
        Goal(f"compare, {TENSORS['many']}", "≤ 0.3 s", 0.3, many.wall(), " s", original=many.wall(THEIRS)),
    ]
    return Section(lines, goals)


def statistics(setup: Setup) -> Section:
    pair = make_inputs(setup, ["stats"]) / "stats"
    csv = setup.in_turn("60,000 rows, csv", compare_command(setup, pair))
    xlsx = setup.in_turn("60,000 rows, xlsx", compare_command(setup, pair, "--xlsx"))
    goals = [
        Goal("compare, 60,000 statistics rows, csv", "≤ 0.6 s", 0.6, csv.wall(), " s", original=csv.wall(THEIRS)),
        Goal("the same, xlsx", "≤ 3 s", 3, xlsx.wall(), " s", original=xlsx.wall(THEIRS)),
        Goal(
            "the same, memory",
            "≤ 300 MB",
            300,
            highest(OURS, csv, xlsx),
            " MB",
            digits=0,
            original=highest(THEIRS, csv, xlsx),
        ),
    ]
    return Section(["`--no-html --no-culprit`.", "", *process_table([csv, xlsx])], goals)


def highest(tool: str, *rows: Row) -> float | None:
    peaks = [row.peak(tool) for row in rows]
    return None if None in peaks else max(p for p in peaks if p is not None)


def many_rows(setup: Setup) -> Section:
    """Many ranks, and reports of more rows than a sheet holds; ours alone."""
    own = setup.ours()
    folder = make_inputs(own, ["ranks", "stats", "million"])
    fewer = own.in_turn("60,000 rows, csv", compare_command(own, folder / "stats"))
    million = own.in_turn("1,000,020 rows, csv", compare_command(own, folder / "million"))
    rows = [
        own.in_turn("8 ranks of 7,500 rows, csv", compare_command(own, folder / "ranks", path="")),
        own.in_turn("8 ranks of 7,500 rows, xlsx", compare_command(own, folder / "ranks", "--xlsx", path="")),
        fewer,
        million,
    ]
    growth = share(share(million.cpu(), 1_000_020), share(fewer.cpu(), 60_000))
    goals = [
        Goal("compare, 1,000,000 rows csv, memory", "≤ 1 GB", 1024, million.peak(), " MB", digits=0),
        Goal("the same, processor time per row against 60,000", "linear", 1.25, growth, "x"),
    ]
    return Section(["Statistics dumps; `--no-html`; ours alone.", "", *own_table(rows)], goals)
