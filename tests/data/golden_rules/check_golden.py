# ruff: noqa
# fmt: off
"""Run a msprobe command over the golden compare cases and check every answer (reading rules: README.md of this folder).

    check_golden.py --tool .venv/bin/msprobe                  # the product: recorded cells, corrected by `ours`
    check_golden.py --as new --new OTHER_VENV/bin/msprobe     # an upstream release against its own recorded answers
    check_golden.py --tool ... --only t_scalars s_rules -v --dir FOLDER

Needs openpyxl. One line per case, totals last; exit 1 if any run differs. A *note* is an accepted deviation (-v shows them).
The rules are in golden_rules.py, the texts behind message ids in messages.json.
"""
import argparse
import csv
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import openpyxl

sys.dont_write_bytecode = True
from golden_rules import Check  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"FFFF0000": "red", "00FFFF00": "yellow"}


def read_output(out):
    found = {"files": [], "tables": {}, "json": {}, "advisor": {}}
    for path in sorted(glob.glob(out + "/**/*", recursive=True)):
        if os.path.isdir(path):
            continue
        shown = re.sub(r"20\d{12}", "{timestamp}", re.sub(r"\d{19}", "{time_ns}", os.path.relpath(path, out)))
        found["files"].append(shown)
        if path.endswith(".csv"):
            with open(path, newline="", encoding="utf-8-sig") as f:
                rows = list(csv.reader(f)) or [[]]
            found["tables"][shown] = {"columns": rows[0], "rows": rows[1:], "colours": {}, "sheet": None}
        elif path.endswith(".xlsx"):
            book = openpyxl.load_workbook(path)
            for ws in book.worksheets:
                cells = list(ws.iter_rows()) or [[]]
                colours = {}
                for n, row in enumerate(cells[1:]):
                    fills = {c.fill.fgColor.rgb for c in row if c.fill.fill_type == "solid"}
                    if fills:
                        colours[str(n)] = COLOURS.get(fills.pop(), "?") if len(fills) == 1 and all(c.fill.fill_type == "solid" for c in row) else "part of the row"
                key = shown if len(book.worksheets) == 1 else f"{shown}#{ws.title}"
                found["tables"][key] = {"columns": [c.value for c in cells[0]], "rows": [[c.value for c in r] for r in cells[1:]], "colours": colours, "sheet": ws.title}
        elif path.endswith(".json"):
            with open(path, encoding="utf-8") as f:
                found["json"][shown] = json.load(f)
        elif shown.startswith("advisor"):
            text = open(path, encoding="utf-8").read()
            got = [re.search(rf"{word}:[ \t]*(.*)", text) for word in ("Line", "Suspect Nodes")] + [re.search(r"Expert Advice:\s*(.*)", text, re.S)]
            found["advisor"][shown] = dict(zip(("line", "node", "advice"), [m.group(1).strip() if m else None for m in got]))
    return found


def run_case(folder, a, tools):
    with open(folder + "/expected.json", encoding="utf-8") as f:
        case = json.load(f)
    tmp = tempfile.mkdtemp(prefix="golden-")
    work, results = f"{tmp}/{os.path.basename(folder)}", {}
    shutil.copytree(folder, work, ignore=shutil.ignore_patterns("expected.json", "out"))
    try:
        for run in case["runs"]:
            if run["generation"] not in tools:
                continue
            out = f"{tmp}/out_{run['id']}".replace(":", "_")
            os.makedirs(out)
            args = [out if x == "out" else f"{tmp}/{x}" if x.startswith("out_") else x for x in run["command"].split()[1:]]
            if a.as_ == "ours" and "compare" in args:
                args += shlex.split(a.extra)
            try:
                p = subprocess.run(shlex.split(tools[run["generation"]]) + args, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=a.timeout)
                code, log = p.returncode, p.stdout.decode(errors="replace")
            except subprocess.TimeoutExpired:
                code, log = 124, "error: time limit"
            try:
                got = read_output(out)
            except Exception as e:            # a damaged report is a difference, not a fault of this script
                got = {"files": [f"unreadable: {e}"], "tables": {}, "json": {}, "advisor": {}}
            got["exit"] = code
            check = Check(case, run, a.as_, got, log, case["runs"])
            check.all()
            results[run["id"]] = {"diffs": check.diffs, "notes": check.notes, "exit": code, "log_tail": log[-400:] if check.diffs else ""}
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    return case["case"], results


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--as", dest="as_", choices=("ours", "new", "old"), default="ours", help="whose answers are expected (default ours: recorded ones corrected by `ours`)")
    ap.add_argument("--tool", help="command for both spellings")
    ap.add_argument("--old", help="command for `msprobe -f pytorch ...` runs")
    ap.add_argument("--new", help="command for `msprobe compare ...` runs")
    ap.add_argument("--only", nargs="+", default=[], help="names of cases")
    ap.add_argument("--dir", nargs="+", default=[HERE], help="folders of cases (default: this one)")
    ap.add_argument("--extra", default="--rules base", help="added to every compare command with --as ours (default: %(default)r)")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--timeout", type=float, default=300, help="seconds per command")
    ap.add_argument("--json", help="write everything found to this file")
    ap.add_argument("-v", action="store_true", help="all differences and the notes")
    a = ap.parse_args()
    tools = {g: c for g, c in (("old", a.old or a.tool), ("new", a.new or a.tool)) if c and a.as_ in ("ours", g)}
    tools = {g: shlex.join([os.path.abspath(c)] if os.path.exists(c) else shlex.split(c)) for g, c in tools.items()}
    if not tools:
        ap.error("no command given: --tool, or the one of --old and --new that --as needs")
    folders = [f for d in a.dir for f in sorted(os.path.dirname(p) for p in glob.glob(d + "/*/expected.json")) if not a.only or os.path.basename(f) in a.only]
    if not folders:
        ap.error("no such cases")
    found, equal, total = {}, 0, 0
    with ThreadPoolExecutor(a.jobs) as pool:
        for name, results in pool.map(lambda f: run_case(f, a, tools), folders):
            if not results:
                continue
            found[name] = results
            bad = [i for i, r in results.items() if r["diffs"]]
            equal, total = equal + (not bad), total + 1
            print(f"{'DIFF ' if bad else 'equal'} {name}: {len(results) - len(bad)}/{len(results)} runs", flush=True)
            for i in results if a.v else bad:
                for text in results[i]["diffs"][:None if a.v else 3]:
                    print(f"      {i}: {text}"[:None if a.v else 240])
                if len(results[i]["diffs"]) > 3 and not a.v:
                    print(f"      {i}: and {len(results[i]['diffs']) - 3} more")
                for text in results[i]["notes"] if a.v else []:
                    print(f"      {i}: note: {text}")
    runs = [r for c in found.values() for r in c.values()]
    totals = {"cases": total, "equal": equal, "runs": len(runs), "runs_equal": sum(not r["diffs"] for r in runs), "differences": sum(len(r["diffs"]) for r in runs)}
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"as": a.as_, "totals": totals, "cases": found}, f, indent=1, ensure_ascii=False, default=str)
    print(f"{equal}/{total} cases equal, {totals['runs_equal']}/{totals['runs']} runs, {totals['differences']} differences, {sum(len(r['notes']) for r in runs)} notes")
    return 0 if equal == total and total else 1


if __name__ == "__main__":
    sys.exit(main())
