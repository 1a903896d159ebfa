"""Collection: start-up, the step with collection against the step without, one small call."""

from __future__ import annotations

import json
from dataclasses import dataclass

from harness import HERE, OURS, THEIRS, Goal, Row, Section, Setup, failures, process_table, share, table, text


def start(setup: Setup) -> Section:
    rows = [
        setup.in_turn("`msprobe --help`", setup.commands(lambda p, _: [str(p.parent / "msprobe"), "--help"])),
        setup.in_turn("`import msprobe`", setup.commands(lambda p, _: [str(p), "-c", "import msprobe"])),
        setup.in_turn("Python alone", setup.commands(lambda p, _: [str(p), "-c", "pass"])),
        setup.in_turn(
            "`import msprobe.pytorch` (with torch)",
            setup.commands(lambda p, _: [str(p), "-c", "import msprobe.pytorch"]),
        ),
        setup.in_turn("`import torch` alone", setup.commands(lambda p, _: [str(p), "-c", "import torch"])),
    ]
    help_row, own, bare = rows[:3]
    imported, theirs = (difference(own.wall(tool), bare.wall(tool)) for tool in (OURS, THEIRS))
    goals = [
        Goal("`msprobe --help`", "≤ 0.1 s", 0.1, help_row.wall(), " s", original=help_row.wall(THEIRS)),
        Goal("the same, memory", "≤ 30 MB", 30, help_row.peak(), " MB", digits=0, original=help_row.peak(THEIRS)),
        Goal("`import msprobe` beyond Python itself", "≤ 0.05 s", 0.05, imported, " s", digits=3, original=theirs),
    ]
    return Section(process_table(rows), goals)


def difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


@dataclass
class Case:
    """One configuration of the step. `limit`: of processor time against the plain step."""

    config: str
    limit: float | None = None
    dtype: str = "float32"
    settings: str = "{}"
    both: bool = True

    @property
    def label(self) -> str:
        name = self.config if self.dtype == "float32" else f"{self.config} {self.dtype}"
        return name if self.settings == "{}" else f"{name} {self.settings}"

    def command(self, python: str, size: list[str]) -> list[str]:
        more = ["--dtype", self.dtype, "--settings", self.settings]
        if "tensor" in self.config:
            more += ["--rounds", "3"]  # 2.8 GB each
        return [python, str(HERE / "dump_step.py"), self.config, *more, *size]


CASES = [
    Case("off"),
    Case("L0:statistics", 1.06),
    Case("L1:statistics", 1.27),
    Case("mix:statistics", 1.33),
    Case("L1:md5", 1.4),
    Case("mix:md5", 1.5),
    Case("L1:hash64", 1.4, both=False),
    Case("mix:hash64", 1.5, both=False),
    Case("mix:statistics", None, settings=json.dumps({"evidence": "none"}), both=False),
    Case("L0:statistics", 1.11, "bfloat16"),
    Case("L1:statistics", 1.32, "bfloat16"),
    Case("mix:statistics", 1.38, "bfloat16"),
    Case("L1:tensor"),
]
QUICK = ("off", "L0:statistics", "L1:statistics", "mix:statistics")


def step(setup: Setup) -> Section:
    size = ["--layers", "2", "--width", "64", "--length", "32"] if setup.small else []
    cases = [c for c in CASES if not setup.quick or c.label in QUICK]
    rows = []
    for case in cases:
        who = setup if case.both else setup.ours()
        rows.append(setup.in_turn(case.label, who.commands(lambda p, _, c=case: c.command(str(p), size))))
    lines = [
        "Llama-shaped net (hidden 512, 8 layers, sequence 512, batch 1), forward and backward, one thread; float32",
        "unless said. Ratios are processor time of a step with collection to one in a process without the tool, made",
        "just before it: the median of seven such rounds. Idle: the debugger exists and is stopped. Relu and shape:",
        "nanoseconds of one small call, before the tool and after `stop()`. Evidence is as by default (`light`) unless",
        "said.",
        "",
        *table(
            [
                "configuration",
                "tool",
                "plain s",
                "idle",
                "collecting",
                "entries",
                "dump MB",
                "relu ns",
                "shape ns",
                "MB",
            ],
            [step_cells(row, tool) for row in rows for tool in (OURS, THEIRS) if row.cells.get(tool)],
        ),
        *failures(rows),
    ]
    by_label = {row.label: row for row in rows}
    goals = [
        Goal(
            f"step, {c.label}",
            f"≤ {c.limit:.2f}x",
            c.limit,
            times(by_label[c.label], "collect"),
            "x",
            original=times(by_label[c.label], "collect", THEIRS),
        )
        for c in cases
        if c.limit
    ]
    if l1 := by_label.get("L1:statistics"):
        idle = (times(l1, "idle", tool) for tool in (OURS, THEIRS))
        goals.insert(0, Goal("step, constructed and stopped", "1.00x", 1.03, next(idle), "x", original=next(idle)))
        added, theirs = (difference(l1.peak(tool), by_label["off"].peak(tool)) for tool in (OURS, THEIRS))
        goals.append(Goal("memory added at L1", "≤ 50 MB", 50, added, " MB", digits=0, original=theirs))
    if tensor := by_label.get("L1:tensor"):
        ours, theirs = (against_writer(tensor, tool) for tool in (OURS, THEIRS))
        what = "tensor task, wall, against step + one sequential writer"
        goals.append(Goal(what, "≤ 1.3x", 1.3, ours, "x", original=theirs))
        lines += [
            "",
            f"One sequential writer of the same bytes: {text(tensor.extra('writer_wall'))} s of wall clock;",
            f"the step without the tool {text(tensor.extra('plain_wall'))} s,",
            f"with it {text(tensor.extra('collect_wall'))} s.",
        ]
    return Section(lines, goals)


def times(row: Row, key: str, tool: str = OURS) -> float | None:
    return row.extra(f"{key}_ratio", tool)


def against_writer(row: Row, tool: str) -> float | None:
    if row.extra("writer_wall", tool) is None:
        return None
    return row.median(tool, lambda s: s.extra["collect_wall"] / (s.extra["plain_wall"] + s.extra["writer_wall"]))


def step_cells(row: Row, tool: str) -> list[str]:
    def ratio_of(key: str) -> str:
        value = times(row, key, tool)
        return "–" if value is None else f"{value:.2f}x"

    size = None
    if row.extra("json_bytes", tool) is not None:
        size = ((row.extra("json_bytes", tool) or 0) + (row.extra("tensor_bytes", tool) or 0)) / 1e6
    calls = []
    for name in ("relu", "shape"):
        after = row.extra(f"{name}_after_ns", tool)
        calls.append(text(row.extra(f"{name}_ns", tool), 0) + ("" if after is None else f" / {after:.0f}"))
    cells = [row.label, tool, text(row.extra("plain", tool)), ratio_of("idle"), ratio_of("collect")]
    return [*cells, text(row.extra("entries", tool), 0), text(size, 1), *calls, text(row.peak(tool), 0)]


def call(setup: Setup) -> Section:
    """One small intercepted call: `torch.add` on 64 float32 at L1, statistics; the original only to call 20,000."""
    calls = {OURS: 2_000 if setup.small else 200_000, THEIRS: 2_000 if setup.small or setup.quick else 20_000}
    row = setup.in_turn(
        "one call", setup.commands(lambda p, tool: [str(p), str(HERE / "call_cost.py"), str(calls[tool])]), 1
    )
    head = ["tool", "calls", "without the tool µs", "first block µs", "last block µs", "added, last block µs"]
    body = []
    for tool in setup.pythons:
        plain, first, last = (row.extra(key, tool) for key in ("plain_us", "first_us", "last_us"))
        added = difference(last, plain)
        body.append([tool, f"{calls[tool]:,}", text(plain), text(first), text(last), text(added)])
    lines = ["`torch.add` on 64 float32, level L1, statistics, one step; microseconds of processor time, blocks of a"]
    lines += ["tenth of the calls each.", "", *table(head, body), *failures([row])]
    added, theirs = (difference(row.extra("last_us", tool), row.extra("plain_us", tool)) for tool in (OURS, THEIRS))
    growth, their_growth = (share(row.extra("last_us", t), row.extra("first_us", t)) for t in (OURS, THEIRS))
    goals = [
        Goal("one small intercepted call, added", "≤ 8 µs", 8, added, " µs", digits=1, original=theirs),
        Goal("the same, last block against first", "flat", 1.1, growth, "x", original=their_growth),
    ]
    return Section(lines, goals)
