"""Record the fault corpus, compare every run with its golden run, and print how often the answer is right.

    python run_faults.py [--split tuned|more|blind|fresh|outside|second|all] [--only NAME]... [--upstream PATH]
                         [--keep DIR] [--jobs N] [--json FILE] [--record-only]

Every case is recorded three times, as tensors, as statistics with sketches and as statistics alone, and compared in
each of these modes. Exit status 1 when a case could not be run: such a case counts neither for nor against.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from corpus import SPLITS, complaints
from inject import Case
from models import RANKS
from record import MODES, preload, record, sketch_problem
from resolve import resolve
from score import Outcome, run_compare
from upstream import Upstream

UPSTREAM_MODES = ("tensor", "statistics")


@dataclass
class Result:
    """A case with what was said of it; columns are modes, and those of the original package."""

    case: Case
    split: str
    truth: set[str] = field(default_factory=set)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    def word(self, column: str) -> str:
        """One word for the table."""
        if self.error:
            return "ERROR"
        return self.outcomes[column].word(self.truth, self.case.clean) if column in self.outcomes else "-"


class Corpus:
    """Runs the cases in a folder."""

    def __init__(
        self, folder: Path, modes: tuple[str, ...], keep: bool, upstream: Path | None, compares: bool = True
    ) -> None:
        self.folder = folder
        self.modes = modes
        self.compares = compares
        self.keep = keep
        self.upstream = Upstream(upstream) if upstream else None
        self.golden: dict[str, str] = {}  # name -> why it is missing, or empty
        self.locks: dict[str, threading.Lock] = {}
        self.guard = threading.Lock()

    def golden_of(self, case: Case) -> Path:
        """The golden run of a case, recorded at its first use."""
        # Evidence differs between cases of one golden run: what the richer ones need is recorded apart.
        name = f"{case.golden}-{case.evidence}"
        with self.guard:
            lock = self.locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self.golden:
                try:
                    record(case, "golden", self.modes, self.folder / "golden" / name)
                    self.golden[name] = ""
                except RuntimeError as error:
                    self.golden[name] = str(error)
            if self.golden[name]:
                raise RuntimeError(self.golden[name])
        return self.folder / "golden" / name

    def run(self, case: Case, split: str) -> Result:
        """Record, find the truth, compare."""
        result = Result(case, split)
        where, began = self.folder / "target" / case.name, time.monotonic()
        try:
            golden = self.golden_of(case)
            record(case, "target", self.modes, where)
            if not case.clean:
                result.truth = truth_of(case, where, golden)
            for mode in self.modes if self.compares else ():
                out = where / "report" / mode
                result.outcomes[mode] = run_compare(where / mode, golden / mode, out)
                if self.upstream and mode in UPSTREAM_MODES:
                    loud, quiet = self.upstream.compare(where / mode, golden / mode, where / "original" / mode)
                    result.outcomes[f"original {mode}"] = loud
                    result.outcomes[f"original {mode}, errors"] = quiet
        except Exception as error:  # one case must not end the others; it is shown and the exit status says so
            result.error = f"{error}" if isinstance(error, RuntimeError) else traceback.format_exc()
        finally:
            if not self.keep:
                shutil.rmtree(where, ignore_errors=True)
        result.seconds = time.monotonic() - began
        return result


def truth_of(case: Case, target: Path, golden: Path) -> set[str]:
    """The acceptable names, from what the fault noted on every rank."""
    names: set[str] = set()
    for rank in range(RANKS.get(case.net, 1)):
        notes = json.loads((target / f"tensor.rank{rank}.json").read_text())["truth"]
        if notes:
            names |= set(resolve(notes, target / "tensor", golden / "tensor", rank))
    if not names:
        raise RuntimeError("the fault says nowhere where it is")
    return names


def table(results: list[Result], columns: list[str]) -> list[str]:
    """Every case and what was said of it."""
    lines = [f"| case | net | kind | {' | '.join(columns)} |", "| --- " * (3 + len(columns)) + "|"]
    for r in results:
        group = "" if r.case.clean else r.case.group
        lines.append(f"| {r.case.name} | {r.case.net} | {group} | {' | '.join(r.word(c) for c in columns)} |")
    return lines


def totals(results: list[Result], columns: list[str]) -> list[str]:
    """The counts that the goals speak of."""
    lines = [
        "| | detected | named first | in first three | kind right, of those | clean runs silent |",
        "| --- " * 6 + "|",
    ]
    for column in columns:
        ran = [(r, r.outcomes[column]) for r in results if column in r.outcomes and not r.outcomes[column].error]
        faults = [(r, o) for r, o in ran if not r.case.clean]
        clean = [o for r, o in ran if r.case.clean]
        first = [(r, o) for r, o in faults if o.findings and o.place(r.truth) == 0]
        three = [o for r, o in faults if 0 <= o.place(r.truth) < 3]
        kinds = [o for r, o in first if o.findings[0].get("kind") in r.case.kinds]
        judged = [o for _, o in first if o.findings[0].get("kind")]
        count, kind = len(faults), f"{len(kinds)} / {len(judged)}" if judged else ""
        lines.append(
            f"| {column} | {sum(bool(o.findings) for _, o in faults)} / {count} | {len(first)} / {count} | "
            f"{len(three)} / {count} | {kind} | {sum(o.silent for o in clean)} / {len(clean)} |"
        )
    return lines


def explain(results: list[Result], columns: list[str]) -> list[str]:
    """What was named where the answer was not right."""
    lines = []
    for r in results:
        for column in columns:
            word = r.word(column)
            if word in ("in three", "detected", "missed", "ALARM"):
                named = r.outcomes[column].findings[0].get("entry") if r.outcomes[column].findings else "nothing"
                expected = "silence" if r.case.clean else ", ".join(sorted(r.truth)[:3])
                lines.append(f"  {r.case.name}, {column}: {word}; named {named}, expected {expected}")
    return lines


def errors_of(results: list[Result]) -> list[str]:
    """One line per case that could not be run or compared."""
    lines = []
    for r in results:
        if r.error:
            lines.append(f"error: {r.case.name}: {r.error.splitlines()[-1]}")
        lines.extend(f"error: {r.case.name}, {c}: {o.error}" for c, o in r.outcomes.items() if o.error)
    return lines


def write_json(path: Path, results: list[Result]) -> None:
    """Everything that was said, for programs."""
    rows = [
        {
            "case": r.case.name,
            "what": r.case.what,
            "net": r.case.net,
            "group": r.case.group,
            "kinds": sorted(r.case.kinds),
            "split": r.split,
            "rounding": r.case.rounding,
            "truth": sorted(r.truth),
            "error": r.error,
            "seconds": round(r.seconds, 2),
            "outcomes": {c: asdict(o) | {"word": r.word(c)} for c, o in r.outcomes.items()},
        }
        for r in results
    ]
    path.write_text(json.dumps(rows, indent=1))


def chosen(split: str, only: list[str]) -> list[tuple[str, Case]]:
    """The cases of a split with its clean runs, or those named."""
    clean = f"{split}-clean" if f"{split}-clean" in SPLITS else "clean"
    splits = list(SPLITS) if split == "all" or only else [split, clean]
    cases = [(name, case) for name in splits for case in SPLITS[name]]
    if only:
        unknown = set(only) - {case.name for _, case in cases}
        if unknown:
            raise SystemExit(f"run_faults: no case {', '.join(sorted(unknown))}")
        cases = [(name, case) for name, case in cases if case.name in only]
    return cases


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    splits = ["tuned", "more", "blind", "fresh", "outside", "second", "all"]
    parser.add_argument("--split", choices=splits, default="tuned")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this case (repeat for more)")
    parser.add_argument("--upstream", type=Path, metavar="PATH", help="the original's command, to compare with")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave dumps and reports there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--record-only", action="store_true", help="find each truth, but compare nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every answer there")
    return parser.parse_args()


def run_all(options: argparse.Namespace, modes: tuple[str, ...]) -> list[Result]:
    """All cases, in order."""
    cases = chosen(options.split, options.only)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = options.keep or Path(name)
        if options.keep and options.keep.exists() and any(options.keep.iterdir()):
            raise SystemExit(f"run_faults: {options.keep} is not empty")
        corpus = Corpus(folder, modes, options.keep is not None, options.upstream, not options.record_only)
        try:
            with ThreadPoolExecutor(options.jobs) as pool:
                return list(pool.map(lambda c: corpus.run(c[1], c[0]), cases))
        finally:
            if corpus.upstream:
                corpus.upstream.close()


def main() -> int:
    """Run, print, say whether everything ran."""
    options = arguments()
    for problem in complaints():
        raise SystemExit(f"run_faults: {problem}")
    preload()
    began = time.monotonic()
    modes: tuple[str, ...] = MODES
    without = sketch_problem()
    if without:
        print(f"sketch mode is left out: {without}")
        modes = tuple(m for m in MODES if m != "sketch")
    results = run_all(options, modes)
    columns = list(modes)
    if options.upstream:
        columns += [f"original {m}{tail}" for m in UPSTREAM_MODES for tail in ("", ", errors")]
    if options.record_only:
        print("\n".join(f"{r.case.name}: {', '.join(sorted(r.truth))}" for r in results if not r.error))
        print("\n".join(errors_of(results)), file=sys.stderr)
        return 1 if errors_of(results) or not results else 0
    print("\n".join([*table(results, columns), "", *totals(results, columns), ""]))
    print("\n".join(explain(results, columns)))
    sources = sorted({o.source for r in results for c, o in r.outcomes.items() if c in modes and o.source})
    faults = sum(not r.case.clean for r in results)
    print(f"\nAnswers of compare were read from: {', '.join(sources) or 'nowhere'}.")
    print(f"{faults} faults, {len(results) - faults} clean runs, {time.monotonic() - began:.0f} s.")
    if options.json:
        write_json(options.json, results)
    problems = errors_of(results)
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems or not results else 0


if __name__ == "__main__":
    sys.exit(main())
