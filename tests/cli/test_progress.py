"""What is said while work is under way: a line with rate and remaining time on a terminal, nothing with -q."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_support import dump, entry, executable, write_json


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    """Eight ranks of forty small pairs, all the same file."""
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3],
        "data_name": "x.npy",
        "requires_grad": False,
    }
    data = {f"Torch.a.{i}.forward": entry(output=[leaf]) for i in range(40)}
    for rank in range(8):
        folder = tmp_path / "t" / f"rank{rank}" / "dump_tensor_data"
        folder.mkdir(parents=True)
        np.save(folder / "x.npy", np.ones(3, np.float32))
        write_json(folder.parent / "dump.json", dump(data, task="tensor"))
    return tmp_path


def on_a_terminal(where: Path, *args: str) -> str:
    """Everything that the command writes to stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*executable(), *args], cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=100) == 0
    return seen.decode()


def test_a_terminal_shows_progress_and_clears_it(tensors):
    one = on_a_terminal(tensors, "compare", "-tp", "t/rank0/dump.json", "-gp", "t/rank1/dump.json", "-o", "out")
    assert re.search(r"\r\x1b\[Kcompare: \d+ of 40 \(\d+%\)", one)
    # The closing line stands on a line of its own.
    assert re.search(r"\r\x1b\[Kmsprobe: compare: pass 40", one)
    many = on_a_terminal(tensors, "compare", "-tp", "t", "-gp", "t", "-o", "many")
    assert re.search(r"\r\x1b\[Kcompare, \d of 8 ranks done: \d+ of 320 \(\d+%\)", many)


def test_quiet_and_short_work_show_none(tensors, msprobe):
    args = ["compare", "-tp", "t/rank0/dump.json", "-gp", "t/rank1/dump.json"]
    quiet = on_a_terminal(tensors, *args, "-o", "quiet", "-q")
    assert quiet.count("\n") == 1
    assert "\x1b" not in quiet
    plain = msprobe(*args, "-o", "plain").err
    assert plain.count("\n") == 1
    assert "\x1b" not in plain
