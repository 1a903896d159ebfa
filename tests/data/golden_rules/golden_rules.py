# ruff: noqa
# fmt: off
"""The rules by which check_golden.py judges one run of one golden case (README.md of this folder says them in words)."""
import json
import math
import os
import re
import zlib

METRICS = {"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio", "Max diff", "Min diff", "Mean diff", "L2norm diff",
           "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"}
STATS = [f"{side} {s}" for side in ("NPU", "Bench") for s in ("max", "min", "mean", "l2norm")]
VERDICTS = ("Accuracy Reached or Not", "Result")
NOT_COMPARED = {"unmatched", "not compared"}
LEGAL = {"new": {"pass", "warning", "error"} | NOT_COMPARED,
         "old": {"Yes", "No", "None", "Unmatched", "N/A", "Warning", "pass", "Different", "", None} | NOT_COMPARED}
with open(os.path.dirname(os.path.abspath(__file__)) + "/messages.json", encoding="utf-8") as f:
    TEXT = json.load(f)
# Where the decisions (design/decisions.md) settle the outcome of a run and no cell is recorded for it. report: exit 0 and a report; fail: exit not 0 and one line
# of reason; any: either of the two. Keys: case, then part of the run's id.
DECIDED = {
    "e_inputs": {"evilname": "report", "evilvalue": "report", "toodeep": "report", "structure": "fail", "empty-ok": "fail", "ok-empty": "any", "badshape": "any", "other": "any",
                 "equals-sign": "any", "abbreviation": "any", "empty-dirs": "any",
                 "bom": "fail", "ok-tensor": "any", "md5-ok": "any"},                        # D24 D26 D28, decisions 1, 4, 28; modes may be mixed
    "s_ranks_count": {"": "partial"},                                                          # decision 30: the others are compared, status 1
    "s_proc": {"old": "any"}, "t_cell_mapping": {"new-lm-ignored": "any"},                     # one engine for both faces; D34
    "s_diff_analyze": {"new-files": "json"},                                                   # D12, decision 31
}


def number(x):
    """the cell as a float (percent texts as fractions), or None"""
    if isinstance(x, bool) or x is None:
        return None
    s = str(x).strip()
    try:
        return float(s[:-1]) / 100 if s.endswith("%") else float(s)
    except ValueError:
        return None


def same_number(column, a, b):
    if a == b or (a != a and b != b):
        return True
    if math.isinf(a) or math.isinf(b):
        return False
    if column == "Cosine":
        return abs(a - b) <= 1e-9
    if column in METRICS:
        return abs(a - b) <= max(1e-9 * max(abs(a), abs(b)), 1e-12)      # cells carry 12 decimals
    return abs(a - b) <= 2e-15 * max(abs(a), abs(b))                     # workbooks carry 16 digits


def same_cell(column, want, got, exact):
    """`exact`: text stays text and type stays type, as recorded; else the meaning counts ("1" is 1.0, None is empty)"""
    if isinstance(want, str) and want.startswith("@crc32:"):
        return isinstance(got, str) and want == "@crc32:%08x:%d" % (zlib.crc32(got.encode()), len(got))
    if type(want) is type(got) and want == got:
        return True
    a, b = number(want), number(got)
    if exact:
        text = isinstance(want, str)
        if text != isinstance(got, str) or a is None or b is None or (text and column not in METRICS):
            return False
        return same_number(column, a, b)
    if a is not None and b is not None:
        return same_number(column, a, b)
    return str("" if want is None else want).strip() == str("" if got is None else got).strip()


def same_message(ids, cell, generation):
    """does the Err_message cell say what the list of ids says?"""
    ids = [i for x in ids for i in [x.split("*")[0]] * int((x.split("*") + ["1"])[1])]
    if generation == "new" and not any(i[0] in "gdcsfa" for i in ids):
        try:
            return json.loads(cell or "[]") == [TEXT[i] for i in ids]
        except (TypeError, ValueError):
            return False
    parts = [("\n?" if i[0] == "H" else "") + ".*?".join(map(re.escape, TEXT[i].rstrip(None if n == len(ids) - 1 else "\0").split("~"))) for n, i in enumerate(ids)]
    return re.fullmatch("".join(parts), str(cell or "").rstrip(), re.S) is not None


def once(ids):
    """every message once, in order of first appearance: upstream's repetitions (d0 16 times, H texts per input) need not be copied"""
    return list(dict.fromkeys(i.split("*")[0] for i in ids))


def entry_of(name):
    """the entry a row belongs to: everything before the state word that follows forward/backward and its number"""
    m = re.match(r"(.*?\.(?:forward|backward)(?:\.\d+)?)\.(?:input|output|parameters)(?:\.|$)", str(name))
    return m.group(1) if m else str(name)


class Check:
    """one run of one case: recorded answer, our answer, and where they part"""

    def __init__(self, case, run, mode, got, log, siblings):
        self.name, self.run, self.ours, self.got, self.log = case["case"].removesuffix("_b"), run, mode == "ours", got, log
        self.id, self.gen = run["id"], "new" if run["generation"] == "new" else "old"
        self.fixes = {}
        for o in case.get("ours", []) if self.ours else []:
            if o["run"] == self.id:
                self.fixes.setdefault(o["row"], {})[o["column"]] = o["ours"]
        # the same rows in the new release's answer: architecture 5 gives both faces one engine and one set of formulas
        new = next((r for r in siblings if r["id"] == "new"), {}) if self.gen == "old" and self.ours else {}
        self.twin = {r[0]: dict(zip(t["columns"], r)) for t in new.get("tables", {}).values() for r in t["rows"]} if len(new.get("tables", {})) == 1 else {}
        self.twin_json = new.get("json", {})
        self.changed = {entry_of(r) for r, f in self.fixes.items() if set(f) & METRICS or "Bench Name" in f}
        self.diffs, self.notes = [], []

    def diff(self, text):
        self.diffs.append(text)

    def all(self):
        decided = [v for k, v in DECIDED.get(self.name, {}).items() if k in self.id] if self.ours else []
        if "Traceback (most recent call last)" in self.log and self.ours:
            self.diff("Python traceback")
        if decided:
            self.decided(decided[0])
        elif not self.ours or not self.in_words():
            self.exit_and_files()
            if self.ours and self.run["exit"]:
                return
            for kind in ("tables", "json"):
                for key, want in self.run.get(kind, {}).items():
                    if key not in self.got[kind]:
                        self.diff(f"no {key}")
                    elif kind == "tables":
                        self.table(key, want, self.got[kind][key])
                    else:
                        self.json(key, want, self.got[kind][key], self.twin_json.get(key))
            for key, want in self.run.get("advisor", {}).items():
                self.advisor(key, want)
            for key, want in self.run.get("verdicts", {}).items():
                self.tally(key, want)

    # ------------------------------------------------------------ exit status, files, decided outcomes

    def failed_well(self):
        if not self.got["exit"]:
            return self.diff("exit 0, a failure was expected")
        if not re.search(r"error", self.log, re.I):
            self.diff("failed without a line of reason")

    def decided(self, outcome):
        code, reports = self.got["exit"], [t for k, t in self.got["tables"].items() if "compare_result" in k]
        self.notes.append(f"decided: {outcome}")
        if outcome == "json":
            if code or not any(k.startswith("diff_analyze") for k in self.got["json"]):
                self.diff(f"exit {code}, files {self.got['files']}; a diff_analyze JSON was expected (D12)")
        elif outcome in ("fail", "partial") or (outcome == "any" and code):
            self.failed_well()
            if outcome != "partial" and reports and outcome == "fail":
                self.diff("a report although it failed")
        elif code or not reports:
            self.diff(f"exit {code}, {len(reports)} reports; a report was expected")

    def in_words(self):
        """`ours_text`: True when the words replace the recorded answer"""
        rows = [dict(zip(t["columns"], r)) for t in [t for k, t in self.got["tables"].items() if "compare_result" in k] for r in t["rows"]]
        def result(r):
            return next((r[v] for v in VERDICTS if v in r), None)
        if self.name in ("s_fuzzy", "m_fuzzy") or (self.name, self.id) == ("t_grad_names", "new-mixed"):
            bad = [r["NPU Name"] for r in rows if r["Bench Name"] in ("N/A", None) or r["NPU Name"] in ("N/A", None) or result(r) in NOT_COMPARED
                   or (self.name == "m_fuzzy" and result(r) != "pass")]
            if self.got["exit"] or not rows or bad:
                self.diff(f"exit {self.got['exit']}, {len(rows)} rows, without partner or not as said in ours_text: {bad[:3]}")
            return True
        if (self.name, self.id) == ("m_xor", "new-crc"):
            if not self.got["exit"] and [r for r in rows if result(r) not in NOT_COMPARED]:
                self.diff("crc against xor: rows judged although the checksums are of different kinds")
            return True
        if self.name == "t_fp8" and self.gen == "old":
            if self.got["exit"] or len(rows) < len(self.twin):
                self.diff(f"exit {self.got['exit']}, {len(rows)} rows; the figures of the new run were expected")
            for r in rows:
                self.figures(r["NPU Name"], self.twin.get(r["NPU Name"], {}), r)
            return True
        if self.name == "s_ranks_shifted" and not re.search(r"warn[^\n]*rank|rank[^\n]*(position|common)", self.log, re.I):
            self.diff("no warning that no rank number is common")
        return False

    def exit_and_files(self):
        want, got = self.run["exit"], self.got["exit"]
        if self.ours and want:
            self.failed_well()
        elif want != got:
            self.diff(f"exit {got}, recorded {want}")
        files = list(self.got["files"])
        if self.ours:           # decisions 3 and 35: a summary and an HTML report come along
            files = [f for f in files if not re.search(r"summary.*\.json$|\.html$", f)]
        if sorted(self.run["files"]) != sorted(files) and not (self.ours and want):
            self.diff(f"files {files}, recorded {self.run['files']}")

    # ------------------------------------------------------------ tables

    def table(self, key, want, got):
        extra = [c for c in got["columns"] if c not in want["columns"]]
        if [c for c in got["columns"] if c in want["columns"]] != want["columns"] or (extra and not self.ours):
            return self.diff(f"{key}: columns {got['columns']}, recorded {want['columns']}")
        if extra:
            self.notes.append(f"{key}: more columns {extra}")
        if want.get("sheet") != got["sheet"]:
            self.diff(f"{key}: sheet {got['sheet']}, recorded {want.get('sheet')}")
        wanted = [dict(zip(want["columns"], r)) for r in want["rows"]]
        rows = [dict(zip(got["columns"], r)) for r in got["rows"]]
        if self.ours:
            pairs = self.align(key, wanted, rows)
        else:
            pairs = [(i, i, w, r) for i, (w, r) in enumerate(zip(wanted, rows))]
            if len(wanted) != len(rows):
                self.diff(f"{key}: {len(rows)} rows, recorded {len(wanted)}")
        for i, j, w, r in pairs:
            self.row(w, r)
            self.colour(w, want.get("colours", {}).get(str(i)), got["colours"].get(str(j)))

    def align(self, key, wanted, rows):
        """pairs of recorded and our rows by NPU Name; the rows that only we show must be announced by the case"""
        def name(r):
            return r.get("NPU Name") if r.get("NPU Name") not in ("N/A", None) else ("golden", r.get("Bench Name"))
        places, pairs, last = {}, [], -1
        for j, r in enumerate(rows):
            places.setdefault(name(r), []).append(j)
        for i, w in enumerate(wanted):
            if not places.get(name(w)):
                self.diff(f"{key}: no row {name(w)}")
                continue
            j = places[name(w)].pop(0)
            if j < last:
                self.diff(f"{key}: row {name(w)} is out of order")
            last = max(last, j)
            pairs.append((i, j, w, rows[j]))
        lost, golden_only = self.run.get("rows_upstream_loses", []), self.run.get("golden_only_rows", [])
        shown, listed = {r.get("Bench Name"): r for r in rows}, set(lost)
        alone = set(golden_only) | {w["NPU Name"] for w in wanted if w.get("Bench Name") == "N/A"}      # the same name may stand alone on both sides
        for n in golden_only:
            if n not in shown:
                self.diff(f"{key}: golden-only row {n} is not listed (D2)")
            elif shown[n].get("NPU Name") in ("N/A", None) and self.verdict_of(shown[n]) in ("pass", "Yes", ""):
                self.diff(f"{key}: golden-only row {n} is shown as {self.verdict_of(shown[n])!r}")
        for left in places.values():
            for j in left:
                n = rows[j].get("NPU Name")
                if n in listed:
                    listed.discard(n)
                    self.figures(n, self.twin.get(n, {}), rows[j])
                elif not (n in ("N/A", None) and rows[j].get("Bench Name") in alone) and n not in self.twin:
                    self.diff(f"{key}: unexpected row {name(rows[j])}")
        for n in listed:
            self.diff(f"{key}: row {n} is missing (lost by upstream)")
        return pairs

    def verdict_of(self, row):
        return next((row[v] for v in VERDICTS if v in row), None)

    def figures(self, name, want, got):
        for c in METRICS & set(want) & set(got):
            if not same_cell(c, want[c], got[c], False):
                self.diff(f"{name} | {c}: {got[c]!r}, the new release gives {want[c]!r}")

    def row(self, want, got):
        name, fixes = str(want.get("NPU Name")), self.fixes.get(want.get("NPU Name"), {})
        twin, one_sided, borrowed = self.twin.get(name), want.get("Bench Name") == "N/A", False
        if self.ours and one_sided and got.get("Bench Name") not in ("N/A", None):
            self.notes.append(f"{name}: paired with {got['Bench Name']} where upstream had no partner")
            if twin and twin["Bench Name"] == got["Bench Name"]:
                self.figures(name, twin, got)
            elif got["Bench Name"] != name and got["Bench Name"] not in (self.run.get("golden_only_rows", [])):
                self.diff(f"{name}: paired with {got['Bench Name']}, recorded as unmatched")
            return
        single = want.get("EucDist") == "unsupported" and number(want.get("MaxAbsErr")) is not None
        for c in want:
            w, g = fixes.get(c, want[c]), got.get(c)
            if c in VERDICTS and self.ours:
                self.verdict(name, c, want, got, fixes, borrowed)
            elif c == "Err_message":
                if not (self.ours and (fixes or one_sided or borrowed or entry_of(name) in self.changed)) and not same_message(want[c], g, self.gen) \
                        and not (self.ours and same_message(once(want[c]), g, self.gen)):
                    self.diff(f"{name} | Err_message: {g!r}, recorded ids {want[c]}")
            elif same_cell(c, w, g, not self.ours):
                pass
            elif self.ours and c in METRICS and (twin and c in twin and same_cell(c, twin[c], g, False) or (single and c in METRICS - {"Cosine"} and number(g) is not None)
                                                 or ("Bench Name" in fixes and c not in fixes)):
                borrowed = True
                self.notes.append(f"{name} | {c}: {g!r} (recorded {want[c]!r}; the new release's figure, a one-element tensor or another partner)")
            elif not (self.ours and ((one_sided and c == "Requires_grad Consistent") or ("Bench Name" in fixes and c.startswith(("Bench", "Data_name"))))):
                self.diff(f"{name} | {c}: {g!r}, {'expected' if c in fixes else 'recorded'} {w!r}")

    def verdict(self, name, c, want, got, fixes, borrowed):
        w, g = fixes.get(c, want[c]), got.get(c)
        free = entry_of(name) in self.changed or borrowed or ".output." in entry_of(name) + "."       # rule 7; D13
        if (w in NOT_COMPARED and g in NOT_COMPARED) or same_cell(c, w, g, False):
            return
        allowed = False
        if self.gen == "old" and "Cosine" in want:                     # decision 24: never Yes for what was not compared
            allowed = w in ("None", "Unmatched", "N/A") and (g in NOT_COMPARED | {"No", "None"} or (g == "Yes" and number(got.get("MaxAbsErr")) is not None))
        elif self.gen == "old" and "Max diff" in want:                 # D14: documented rule instead of the signed maximum
            allowed = (w in ("N/A", None, "") and g in NOT_COMPARED) or (w != "N/A" and g == ("Warning" if self.documented_warning(want) else None)) \
                or (w != "N/A" and g == "" and not self.documented_warning(want))
        elif self.gen == "old":
            allowed = w == "N/A" and g in NOT_COMPARED | {"No"}
        if not ((free and g in LEGAL[self.gen]) or allowed):
            return self.diff(f"{name} | {c}: {g!r}, {'expected' if c in fixes else 'recorded'} {w!r}")
        self.notes.append(f"{name} | {c}: {g!r} for {w!r}")

    @staticmethod
    def documented_warning(row):
        for s in STATS[:4]:
            a, b = number(row[s]), number(row[s.replace("NPU", "Bench")])
            if (a is None) != (b is None) or (a is not None and math.isfinite(a) != math.isfinite(b)):
                return True
            if a is not None and math.isfinite(a) and abs(a - b) / (abs(b) + 1e-10) > 0.5:
                return True
        return False

    def colour(self, want_row, want, got):
        if want == got:
            return
        name = want_row.get("NPU Name")
        odd = any(str(want_row.get(s)).strip().lower() in ("nan", "inf", "-inf") for s in STATS)
        if self.ours and (name in self.fixes or entry_of(name) in self.changed or want_row.get("Bench Name") == "N/A" or odd or any(n.startswith(f"{name} |") for n in self.notes)):
            return self.notes.append(f"{name}: colour {got}, recorded {want} (D7, D13-D15)")
        self.diff(f"{name}: colour {got}, recorded {want}")

    # ------------------------------------------------------------ JSON, advisor, counts

    def json(self, where, want, got, twin=None, column=""):
        if column == "Err_message" and isinstance(want, list):
            text = got if isinstance(got, str) else json.dumps(got)
            if not same_message(want, text, self.gen) and not (self.ours and self.gen == "old"):
                self.diff(f"{where}: {got!r}, recorded ids {want}")
        elif isinstance(want, dict) and isinstance(got, dict):
            missing, extra = [k for k in want if k not in got], [k for k in got if k not in want]
            if missing or (extra and not self.ours):
                self.diff(f"{where}: keys missing {missing}, more {extra}")
            for k in want:
                if k in got:
                    self.json(f"{where}/{k}", want[k], got[k], twin.get(k) if isinstance(twin, dict) else None, k)
        elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
            for i, (w, g) in enumerate(zip(want, got)):
                self.json(f"{where}[{i}]", w, g, twin[i] if isinstance(twin, list) and i < len(twin) else None, column)
        elif isinstance(want, (dict, list)) or isinstance(got, (dict, list)):
            self.diff(f"{where}: {str(got)[:80]!r}, recorded {str(want)[:80]!r}")
        elif not (same_cell(column, want, got, False) or (twin is not None and same_cell(column, twin, got, False)) or (self.ours and column in VERDICTS and self.gen == "old")):
            self.diff(f"{where}: {got!r}, recorded {want!r}")

    def advisor(self, key, want):
        got = self.got["advisor"].get(key)
        if not got or None in got.values():
            return self.diff(f"{key}: absent or without Line, Suspect Nodes, Expert Advice")
        line, node = (got["line"] if not str(got["line"]).isdigit() else int(got["line"])), got["node"]
        table = self.got["tables"].get(key.replace("advisor", "compare_result").replace(".txt", ".xlsx"))
        if self.ours and table and self.own_verdicts(table):
            # a corrected or added row may fail first, and restored rows shift the count: then it must be our own first failing row
            first = next((i for i, v in enumerate(self.own_verdicts(table)) if v in ("No", "Different", "Warning")), "NA")
            if line != want["line"] and (line, node) == (first, table["rows"][first][0] if first != "NA" else "NA"):
                return self.notes.append(f"{key}: line {line} {node}, recorded {want['line']} {want['node']}")
        if line != want["line"] or node != want["node"]:
            self.diff(f"{key}: line {line} {node}, recorded {want['line']} {want['node']}")
        deterministic = bool(re.search("seed_all|determinis", got["advice"], re.I))
        if want["advice"] == "2" and not deterministic:
            self.diff(f"{key}: advice does not name deterministic computing (step 2)")
        elif want["advice"] in ("1a", "1c", "none") and deterministic:
            self.diff(f"{key}: advice names deterministic computing, recorded step {want['advice']}")
        elif want["advice"] not in ("2", "none"):
            self.notes.append(f"{key}: step {want['advice']} cannot be recognised by program, wording is free")

    @staticmethod
    def own_verdicts(table):
        column = next((table["columns"].index(v) for v in VERDICTS if v in table["columns"]), None)
        return [] if column is None else [r[column] for r in table["rows"]]

    def tally(self, key, want):
        words = [str(v) for v in self.own_verdicts(self.got["tables"].get(key, {"columns": []}))]
        counts = {w: words.count(w) for w in set(words)}
        if not self.ours and counts != want:
            self.diff(f"{key}: verdicts {counts}, recorded {want}")
        elif self.ours and key not in self.run.get("tables", {}):     # only counts were recorded; rows lost by upstream may add to them
            for w in ("No", "Different", "Warning", "error", "warning"):
                if counts.get(w, 0) < want.get(w, 0):
                    self.diff(f"{key}: {counts.get(w, 0)} rows {w}, recorded {want[w]}")
