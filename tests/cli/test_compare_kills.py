"""Comparisons that are killed at any moment: no report is ever half there, and --resume ends in the same one."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from cli_support import dump, entry, executable, write_json

PAIRS, ELEMENTS = 1500, 1 << 14


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two tensor dumps of many pairs of small files: results are put by for --resume again and again."""
    generator = np.random.default_rng(0)
    base = generator.standard_normal(ELEMENTS).astype(np.float32)
    for side, noise in (("t", 0.0), ("g", 1e-3)):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [ELEMENTS], "requires_grad": False}
        data = {}
        for i in range(PAIRS):
            if i < 20:
                values = base * np.float32(i + 1) + np.float32(noise) * generator.standard_normal(ELEMENTS, np.float32)
                np.save(folder / f"{i}.npy", values)
            else:
                os.link(folder / f"{i % 20}.npy", folder / f"{i}.npy")
            data[f"Torch.a.{i}.forward"] = entry(output=[leaf | {"data_name": f"{i}.npy"}])
        write_json(tmp_path / side / "dump.json", dump(data, task="tensor", dump_data_dir=str(folder)))
    return tmp_path


def command(out: Path) -> list[str]:
    return [*executable(), "compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", str(out), "--no-html"]


def undisturbed(where: Path) -> tuple[str, float]:
    begin = time.monotonic()
    subprocess.run(command(where / "whole"), cwd=where, capture_output=True, check=True)
    (path,) = (where / "whole").glob("compare_result_*.csv")
    return path.read_text("utf-8"), time.monotonic() - begin


def kill_after(where: Path, out: Path, seconds: float) -> tuple[bool, str]:
    """Whether the run, going on from what is there, was killed; what it said."""
    process = subprocess.Popen(
        [*command(out), "--resume"], cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        return process.returncode < 0, said
    assert process.returncode == 0, said
    return False, said


def kill_often(where: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    whole, seconds = undisturbed(where)
    killed = survived = lost = runs = pieces = 0
    while killed < kills:
        out = where / f"out{runs}"
        runs += 1
        for _ in range(chance.randrange(1, 6)):
            dead, said = kill_after(where, out, chance.uniform(0, seconds))
            killed += dead
            for report in out.glob("compare_result_*.csv"):
                lost += report.read_text("utf-8") != whole
            if not dead:
                break
        _, said = kill_after(where, out, 600)
        taken = re.search(r"resumed: the figures of (\d+) pieces", said)
        pieces += int(taken[1]) if taken else 0
        reports = list(out.glob("compare_result_*.csv"))
        same = bool(reports) and all(report.read_text("utf-8") == whole for report in reports)
        survived, lost = survived + same, lost + (not same)
    print(
        f"\nkilled {killed} times in {runs} runs: {survived} ended in the report of an undisturbed one, "
        f"{pieces} results of killed runs were taken over, lost {lost}"
    )
    assert lost == 0 and survived == runs
    assert pieces > 0, "no kill fell between two results"


def test_compare_survives_some_kills(dumps: Path) -> None:
    kill_often(dumps, 12, 1)


@pytest.mark.slow
def test_compare_survives_200_kills(dumps: Path) -> None:
    kill_often(dumps, 200, 2)
