"""The corpus itself: its truths hold, its runs differ or do not, and compare names what it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import SPLITS, complaints
from inject import KINDS, Case, key_of
from low import in_pieces
from models import Options, batch, build, loss_of
from models_outside import MAKERS
from record import MODES
from run_faults import chosen
from score import Outcome, flagged, read_summary

HERE = Path(__file__).parent
SOME = ["norm-too-large", "weight-transposed", "activation-before-norm", "attention-scale", "gelu-gradient-too-large"]
QUIET = ["rerun-conv", "one-unit"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "run_faults.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A few cases, run once with everything kept."""
    folder = tmp_path_factory.mktemp("faults")
    only = [part for name in SOME + QUIET for part in ("--only", name)]
    done = run(*only, "--keep", str(folder / "kept"), "--json", str(folder / "answers.json"))
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "kept", json.loads((folder / "answers.json").read_text())


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("tensor/step*/*/dump_tensor_data/*.pt"))
    return {f"{p.parent.parent.parent.name}/{p.name}": torch.load(p, weights_only=True) for p in files}


def golden_of(kept: Path, case: Case) -> Path:
    return kept / "golden" / f"{case.golden}-{case.evidence}"


def case_of(name: str) -> Case:
    return next(case for cases in SPLITS.values() for case in cases if case.name == name)


def test_corpus_is_as_large_as_promised_and_covers_every_kind() -> None:
    assert complaints() == []
    tuned, blind, fresh, clean = (SPLITS[name] for name in ("tuned", "blind", "fresh", "clean"))
    assert len(tuned) >= 22
    assert len(blind) >= 22
    assert len(fresh) >= 32
    assert len(clean) >= 24
    for half in (tuned, blind, fresh):
        assert {case.group for case in half} == set("abcde")
    every = [*tuned, *blind, *fresh]
    assert len({case.net for case in every}) >= 7
    assert sum(case.rounding != "none" for case in every) >= 0.8 * len(every)


def test_faults_from_outside_cover_every_kind_and_their_own_nets() -> None:
    outside, clean = SPLITS["outside"], SPLITS["outside-clean"]
    assert len(outside) >= 48
    assert len(clean) >= 24
    assert all(case.clean for case in clean)
    assert {case.group for case in outside} == set("abcde")
    assert set().union(*(case.kinds for case in outside)) == set(KINDS)
    assert sum(case.net in MAKERS for case in outside) >= 0.5 * len(outside)
    assert sum(case.rounding != "none" for case in outside) >= 0.8 * len(outside)
    assert {split for split, _ in chosen("outside", [])} == {"outside", "outside-clean"}
    assert {split for split, _ in chosen("blind", [])} == {"blind", "clean"}
    assert {split for split, _ in chosen("all", [])} == set(SPLITS)


@pytest.mark.parametrize("net", sorted(MAKERS))
def test_nets_from_outside_are_the_same_by_their_parts(net: str) -> None:
    losses = []
    for parts in (False, True):
        options = Options(parts=parts, dtype=torch.float64)
        model = build(net, options)
        torch.manual_seed(1)
        losses.append(float(loss_of(net, model, batch(net, 0, options)).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_products_of_16_bits_are_right_and_rounded_otherwise() -> None:
    torch.manual_seed(2)
    a, b, c = (torch.randn(n, dtype=torch.bfloat16) for n in ((8, 33), (33, 8), (8,)))
    aten = torch.ops.aten
    for func, args in ((aten.mm.default, (a, b)), (aten.addmm.default, (c, a, b))):
        result, wide = in_pieces(func, args, {}), func(*(x.double() for x in args))
        assert result.dtype == torch.bfloat16
        assert (result.double() - wide).norm() < 0.01 * wide.norm()
        assert not torch.equal(result, wide.bfloat16())
    assert in_pieces(aten.mm.default, (a.float(), b.float()), {}) is None


def test_truth_of_each_fault_is_an_entry_and_the_target_differs_there(
    some: tuple[Path, list[dict[str, Any]]],
) -> None:
    kept, answers = some
    for answer in answers:
        case = case_of(answer["case"])
        if case.clean:
            continue
        names: set[str] = set()
        differs = False
        target, golden = kept / "target" / case.name, golden_of(kept, case)
        for side in (target, golden):
            for file in side.glob("tensor/step*/*/dump.json"):
                names |= set(json.loads(file.read_text())["data"])
        left, right = tensors(target), tensors(golden)
        for name in left.keys() | right.keys():
            if any(name.split("/")[1].startswith(f"{entry}.") for entry in answer["truth"]):
                same = name in left and name in right and left[name].shape == right[name].shape
                differs |= not (same and torch.equal(left[name], right[name]))
        assert answer["truth"], case.name
        assert set(answer["truth"]) <= names, case.name
        # Another argument alone changes no tensor that goes in, but what comes out.
        assert differs, case.name


def test_an_identical_rerun_is_identical_and_another_rounding_is_not(
    some: tuple[Path, list[dict[str, Any]]],
) -> None:
    kept, _ = some
    for name, equal in (("rerun-conv", True), ("one-unit", False)):
        left, right = tensors(kept / "target" / name), tensors(golden_of(kept, case_of(name)))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left) is equal


def test_dumps_of_all_modes_are_complete(some: tuple[Path, list[dict[str, Any]]]) -> None:
    kept, answers = some
    modes = [mode for mode in MODES if mode in answers[0]["outcomes"]]
    assert len(modes) >= 2
    for answer in answers:
        case = case_of(answer["case"])
        for mode in modes:
            files = sorted((kept / "target" / case.name / mode).glob("step*/*/dump.json"))
            assert len(files) == case.steps
            for file in files:
                footer = json.loads(file.read_text())["msprobe"]
                assert footer["complete"] is True
                assert footer["counts"]["failed"] == 0


def test_some_faults_are_named_first_and_clean_runs_are_silent(some: tuple[Path, list[dict[str, Any]]]) -> None:
    for answer in some[1]:
        for mode, outcome in answer["outcomes"].items():
            expected = "silent" if answer["group"] == "clean" else "first"
            assert outcome["word"] == expected, (answer["case"], mode, outcome["findings"][:2], answer["truth"])


def test_a_case_that_cannot_run_is_an_error_line_and_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_BIN", "/bin/false")
    done = run("--only", "tanh-from-a-table")
    assert done.returncode == 1
    assert "error: tanh-from-a-table, tensor: compare ended with 1" in done.stderr
    assert "| tensor | 0 / 0 | 0 / 0 |" in done.stdout


def test_unknown_case_is_refused() -> None:
    done = run("--only", "no-such-case")
    assert done.returncode == 1
    assert "no case no-such-case" in done.stderr


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("__radd__", "add"), ("add_", "add"), ("__iadd__", "add"), ("__truediv__", "div"), ("__rsub__", "sub"),
        ("__matmul__", "matmul"), ("rsqrt", "rsqrt"), ("index_add", "index_add"), ("__and__", "and"), ("relu", "relu"),
    ],
)  # fmt: skip
def test_spellings_of_an_operator_are_counted_as_one(name: str, key: str) -> None:
    assert key_of(name) == key


def test_scores() -> None:
    right, wrong = {"entry": "A.0.forward"}, {"entry": "B.0.forward", "golden_entry": None}
    truth = {"A.0.forward"}
    assert Outcome([right], verdict="found").word(truth, False) == "first"
    assert Outcome([wrong, wrong, right], verdict="found").word(truth, False) == "in three"
    assert Outcome([wrong] * 3 + [right], verdict="found").word(truth, False) == "detected"
    assert Outcome([], verdict="none").word(truth, False) == "missed"
    assert Outcome([{"entry": "B.1.forward", "golden_entry": "A.0.forward"}]).word(truth, False) == "first"
    assert Outcome([], verdict="none").word(set(), True) == "silent"
    assert Outcome([], verdict="not_judged").word(set(), True) == "ALARM"  # nothing was judged: not silence
    assert Outcome([right], verdict="found").word(set(), True) == "ALARM"
    assert Outcome(error="did not run").word(truth, False) == "ERROR"


def test_summaries_are_read_with_and_without_the_analysis() -> None:
    counts = {"total": 3}
    bad = {"entry": "A.0.forward", "row": "A.0.forward.output.0"}
    old = read_summary({"counts": counts, "first_bad": bad, "ranks": []})
    assert (old.source, old.verdict, old.findings) == ("first_bad", "found", [bad])
    assert read_summary({"counts": {"total": 0}, "first_bad": None}).error
    found = {"mode": "tensor", "verdict": "found", "findings": [{"kind": "state", "entry": "B.0.forward"}]}
    new = read_summary({"counts": counts, "first_bad": bad, "culprit": found})
    assert (new.source, new.findings[0]["entry"]) == ("culprit", "B.0.forward")
    none = {"mode": "tensor", "verdict": "none", "findings": []}
    assert read_summary({"counts": counts, "first_bad": bad, "culprit": none}).silent
    unsure = {"mode": "tensor", "verdict": "not_judged", "findings": []}
    assert not read_summary({"counts": counts, "first_bad": None, "culprit": unsure}).silent


def test_flagged_rows_of_a_report_become_entries() -> None:
    rows = [
        {"NPU Name": "Module.a.forward_net.Net.forward.0.input.0", "Bench Name": "", "Result": "pass"},
        {"NPU Name": "Functional.linear.3.forward.output.0", "Bench Name": "", "Result": "warning"},
        {"NPU Name": "Module.a.Net.forward.1.output.0", "Bench Name": "", "Result": "error"},
        {"NPU Name": "Module.a.Net.forward.1.output.1", "Bench Name": "", "Result": "error"},
        {"NPU Name": "N/A", "Bench Name": "Module.a.Net.parameters_grad.0.weight", "Result": "error"},
    ]
    both = [f["entry"] for f in flagged(rows, ("warning", "error"))]
    assert both == ["Functional.linear.3.forward", "Module.a.Net.forward.1", "Module.a.Net.parameters_grad.0"]
    assert [f["entry"] for f in flagged(rows, ("error",))] == both[1:]


@pytest.mark.slow
def test_every_truth_is_found_without_comparing() -> None:
    done = run("--split", "all", "--record-only")
    assert done.returncode == 0, done.stderr[-2000:]
    named = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    for case in (case for cases in SPLITS.values() for case in cases if not case.clean):
        assert named[case.name], case.name


@pytest.mark.slow
def test_tuned_half_reaches_the_goals(tmp_path: Path) -> None:
    """The goals of the blind half hold for the half that may be tuned on."""
    answers = tmp_path / "answers.json"
    done = run("--json", str(answers))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(answers.read_text())
    for mode, (detected, first, silent) in {
        "tensor": (0.98, 0.95, 0.98),
        "sketch": (0.95, 0.90, 0.97),
        "statistics": (0.88, 0.80, 0.97),
    }.items():
        words = [(row["group"] == "clean", row["outcomes"][mode]["word"]) for row in rows]
        faults = [word for clean, word in words if not clean]
        clean = [word for clean, word in words if clean]
        assert sum(word != "missed" for word in faults) >= detected * len(faults), mode
        assert faults.count("first") >= first * len(faults), mode
        assert clean.count("silent") >= silent * len(clean), mode
