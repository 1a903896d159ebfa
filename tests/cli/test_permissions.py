"""Each kind of file that is written: the umask decides, nobody else may write it, no link leads out of the folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import dump, entry, executable, tensor, write_json

from msprobe import _core

# One process that collects and replays: PyTorch is imported once per umask.
WRITE_ALL = """
import os, sys, json
os.umask(int(sys.argv[1], 8))
import torch
from msprobe import _core
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for task in ("tensor", "statistics"):
    PrecisionDebugger.reset()
    tool = PrecisionDebugger(dump_path="collect/" + task, task=task, level="mix")
    for again in range(2):
        tool.start(net)
        net(torch.ones(2, 4)).sum().backward()
        tool.stop()
        tool.step()
PrecisionDebugger.reset()
tool = PrecisionDebugger(dump_path="collect/tensor", task="tensor", level="L1")  # moves the dumps above aside
tool.start()
torch.relu(torch.ones(3))
tool.stop()
tool.step()
open("wrong.py", "w").write("def f(name, real, args, kwargs):\\n    return real(*args, **kwargs) * 2\\n")
os.mkdir("pre", 0o755)
os.mkdir("pre/errors", 0o755)
json.dump({"acc_check": {"error_data_path": "pre/errors"}}, open("pre.json", "w"))
sys.path.insert(0, os.getcwd())
folder = "collect/tensor/step0/rank"
options = ["--device", "cpu", "-save_error_data", "-config", "pre.json", "--candidate", "wrong:f"]
status = _core.main(["msprobe", "acc_check", "-api_info", folder + "/dump.json", "-o", "pre/out", *options])
assert status in (0, 1), status
"""


def command_lines(where: Path) -> list[tuple[str, ...]]:
    """Commands that write something, after WRITE_ALL."""
    return [
        ("compare", "-tp", "t", "-gp", "g", "-o", "out/new", "--xlsx", "--html", "--junit", "out/junit.xml"),
        ("-f", "pytorch", "compare", "-i", "compare.json", "-o", "out/old"),
        ("compare", "-tp", "t", "-gp", "g", "-o", "out/search", "-da"),
        ("narrow", "t", "g", "-o", "out/narrow.json"),
        ("init", "first-difference", "-o", "out/config.json"),
        ("overflow_check", "-i", "t", "-o", "out/overflow"),
    ]


def written_under(where: Path, umask: str) -> list[Path]:
    for side in ("t", "g"):
        norm = 1.0 if side == "t" else 2.0
        data = {f"Torch.a.{i}.forward": entry(output=[tensor(Norm=norm, Max=float("inf"))]) for i in range(5)}
        write_json(where / side / "dump.json", dump(data))
    write_json(where / "compare.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
    paths = [str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    inputs = {p for p in where.rglob("*")}
    run = subprocess.run(
        [sys.executable, "-c", WRITE_ALL, umask],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    for command in command_lines(where):
        line = ["sh", "-c", f'umask {umask}; exec "$0" "$@"', *executable(), *command]
        done = subprocess.run(line, cwd=where, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 1}, (command, done.stderr)
    ours = {"wrong.py", "pre.json", "__pycache__"}
    return [p for p in where.rglob("*") if p not in inputs and not ours & set(p.relative_to(where).parts)]


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("umask", ["000", "027", "077"])
def test_permissions_of_every_kind_of_file(tmp_path: Path, umask: str) -> None:
    written = written_under(tmp_path, umask)
    kinds = {p.suffix for p in written if p.is_file()}
    assert {".json", ".pt", ".csv", ".xlsx", ".html"} <= kinds, kinds
    tops = {p.relative_to(tmp_path).parts[0] for p in written}
    assert tops == {"collect", "pre", "out"}, "something was written elsewhere"
    for path in written:
        mode = path.lstat().st_mode
        assert not stat.S_ISLNK(mode), path
        assert mode & int(umask, 8) & 0o777 == 0, (path, oct(mode))
        assert mode & stat.S_IWOTH == 0, (path, oct(mode))
        assert mode & 0o111 == 0 or path.is_dir(), (path, oct(mode))
        assert not path.name.endswith((".tmp", ".new")), path


NAMES = ("compare_result", "compare_summary", "compare_report")


def test_permissions_links_with_names_of_reports_are_not_followed(tmp_path: Path) -> None:
    """Someone who may write the folder puts links where the next hour's reports will be."""
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", dump({"Torch.a.0.forward": entry(output=[tensor()])}))
    (tmp_path / "victim").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    run = subprocess.run(
        [*executable(), "compare", "-tp", "t", "-gp", "g", "-o", "out"], cwd=tmp_path, capture_output=True, check=True
    )
    (first,) = out.glob("compare_result_*.csv")
    stamp = int(first.stem.rpartition("_")[2])
    for k in range(60):
        for name, end in zip(NAMES, (".csv", ".json", ".html"), strict=True):
            path = out / f"{name}_{stamp + k}{end}"
            path.unlink(missing_ok=True)
            path.symlink_to(tmp_path / "victim")
    (tmp_path / "narrow.json").symlink_to(tmp_path / "victim")
    run = subprocess.run(
        [*executable(), "compare", "-tp", "t", "-gp", "g", "-o", "out"], cwd=tmp_path, capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr
    subprocess.run([*executable(), "narrow", "t", "g", "-o", "narrow.json", "--force"], cwd=tmp_path, check=False)
    assert (tmp_path / "victim").read_text() == "mine"
    assert [p for p in out.iterdir() if p.is_file() and not p.is_symlink()], "no report of its own"


COLLECT_THROUGH_LINKS = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path="dump", task="tensor", level="L1")
tool.start()
torch.relu(torch.ones(3))
tool.stop()
tool.step()
"""


@pytest.mark.no_sanitizer
def test_permissions_links_below_a_dump_are_not_followed(tmp_path: Path) -> None:
    """A step folder, its files and its folder of tensors that are links to places of somebody else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("dump.json", "stack.json", "construct.json", ".msprobe_journal", ".msprobe_lock"):
        (outside / name).write_text("mine")
    (outside / "tensors").mkdir()
    rank = tmp_path / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    for name in ("dump.json", "stack.json", "construct.json", ".msprobe_journal", ".msprobe_lock"):
        (rank / name).symlink_to(outside / name)
    (rank / "dump_tensor_data").symlink_to(outside / "tensors")
    paths = [str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-c", COLLECT_THROUGH_LINKS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for path in outside.iterdir():
        if path.is_file():
            assert path.read_text() == "mine", path
    assert list((outside / "tensors").iterdir()) == []
    made = [json.loads(p.read_text()) for p in (tmp_path / "dump").glob("step0/*/dump.json") if not p.is_symlink()]
    assert [list(d["data"]) for d in made] == [["Torch.relu.0.forward"]] or "[ERROR]" in run.stdout, run.stdout
