"""Seeded faults, injected by --candidate: every one gets its verdict, and clean calls raise nothing, for any seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_candidate import FAULTS
from precheck_golden import table

from msprobe import _core

DATA = Path(__file__).resolve().parents[1] / "data" / "precheck"
WORDS = {"pass": 0, "warn": 1, "warning": 1, "error": 2, " ": -1}


@pytest.fixture(scope="module", params=[1234, 1, 2])
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, list[str]]]:
    """Result rows of the faulty and of the clean run."""
    out = {}
    for which in ("faulty", "clean"):
        folder = tmp_path_factory.mktemp(which)
        args = [
            "-api_info",
            str(DATA / "faults_dump.json"),
            "-o",
            str(folder),
            "--device",
            "cpu",
            "--seed",
            str(request.param),
        ]
        assert _core.main(["msprobe", "acc_check", *args, "--candidate", f"fault_candidate:{which}"]) == 0
        out[which] = table(folder, "result")
    return out


@pytest.mark.parametrize("fault", FAULTS, ids=[f["id"] for f in FAULTS])
def test_fault_gets_its_verdict(fault: dict[str, str], results: dict[str, dict[str, list[str]]]) -> None:
    row = results["faulty"][fault["api"]]
    assert max(WORDS[row[1]], WORDS[row[2]]) == WORDS[fault["expect"]], f"{fault['fault']}: {row}"


def test_forward_of_a_wrong_gradient_stays_pass(results: dict[str, dict[str, list[str]]]) -> None:
    assert results["faulty"]["Functional.relu.0"][1:3] == ["pass", "error"]


def test_clean_calls_pass(results: dict[str, dict[str, list[str]]]) -> None:
    assert {name: row[1:3] for name, row in results["clean"].items() if set(row[1:3]) - {"pass", " "}} == {}
