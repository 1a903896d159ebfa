"""`random_save` (dump.md 2.5, 20), in a process of its own: the wrapping lasts."""

from __future__ import annotations

import csv
import subprocess
import sys

import pytest

from msprobe.errors import ConfigError
from msprobe.pytorch import random_save

SCRIPT = """
import os, random, sys
sys.path[:0] = {path!r}
import numpy, torch
plain = torch.manual_seed(3) and torch.rand(2).tolist()
from msprobe.pytorch import random_save
random_save({folder!r})
torch.manual_seed(3)
assert torch.rand(2).tolist() == plain
def drawn():
    return random.random()
drawn()
numpy.random.randn(2)
torch.rand(1)
torch.ones(3).normal_()
os.environ["RANK"] = "4"
random.choice([1, 2])
"""


def test_random_save_writes_a_row_per_call_with_its_stack(tmp_path):
    script = SCRIPT.format(path=sys.path, folder=str(tmp_path / "out"))
    subprocess.run([sys.executable, "-c", script], check=True, env={"PATH": "/usr/bin:/bin"})
    (file,) = (tmp_path / "out").iterdir()
    assert file.name.startswith("random_rank4_") and len(file.stem) == len("random_rank4_") + 14
    with file.open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert [r[0] for r in rows] == [
        "api_name",
        "torch_random.rand.0",
        "python_random.random.0",
        "numpy_random.randn.0",
        "torch_random.rand.1",
        "tensor_random.normal_.0",
        "python_random.choice.0",
    ]
    assert rows[0][1] == "stack"
    assert "in drawn" in rows[2][1] and "in drawn" not in rows[3][1]


def test_random_save_refuses_a_path_that_is_no_str():
    with pytest.raises(ConfigError, match=r"random_save\(output_path=...\): a str was expected, got int"):
        random_save(3)
