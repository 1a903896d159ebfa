"""Collection in actors, as the example has it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ray_support import run, summary

pytestmark = pytest.mark.no_sanitizer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ray" / "two_actors.py"


@pytest.mark.slow
def test_one_call_gives_two_actors_rank_step_and_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for job in ("good", "bad"):
        for step in (0, 1):
            for rank in (0, 1):
                dump = json.loads((tmp_path / job / "dump" / f"step{step}" / f"rank{rank}" / "dump.json").read_text())
                assert any(name.startswith("Module.") for name in dump["data"])
    command = done.stdout.strip().splitlines()[-1]
    found = re.fullmatch(r"msprobe compare -tp (\S+) -gp (\S+) -o (\S+)", command)
    assert found
    assert run("compare", "-tp", found[1], "-gp", found[2], "-o", found[3], "-q", cwd=tmp_path).returncode == 0
    ranks = summary(Path(found[3]))["ranks"]
    # Only rank 1 of the second job has another activation: the layer between two linear ones.
    assert ranks[0]["first_bad"] is None
    assert "gelu" in ranks[1]["first_bad"]["entry"].lower() or "1" in ranks[1]["first_bad"]["entry"]


def test_wrong_arguments_are_refused() -> None:
    from msprobe import ConfigError
    from msprobe.scale import attach

    for kwargs, message in (
        ({"ranks": [0]}, "ranks: 2 different numbers"),
        ({"ranks": [1, 1]}, "ranks: 2 different numbers"),
        ({"group": "../x"}, "group: '../x' is no name of a folder"),
        ({"config_path": "/nowhere/config.json"}, "/nowhere/config.json: No such file"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            attach([object(), object()], **kwargs)
    with pytest.raises(ConfigError, match="ranks: 0 different numbers"):
        attach([])
