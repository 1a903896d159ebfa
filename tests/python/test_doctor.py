"""`msprobe doctor` against what collection then really does, and `msprobe init`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe import _core
from msprobe.doctor import collection, disk
from msprobe.doctor.findings import Findings, size
from msprobe.pytorch import PrecisionDebugger

SCRIPT = """
import sys
import torch
from torch import nn
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(300, 200), nn.GELU(), nn.Linear(200, 100))
debugger = PrecisionDebugger(config_path=sys.argv[1])
for _ in range(3):
    debugger.start(model=net)
    loss = net(torch.ones(50, 300)).view(100, 50).permute(1, 0).float().sum()
    loss.backward()
    debugger.stop()
    debugger.step()
"""
CONFIG = {"task": "tensor", "level": "mix", "dump_path": "dump", "step": [1], "rank": []}
MODEL = """
import torch
from torch import nn
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.direct, self.never = nn.Linear(4, 4), nn.Linear(2, 2)
    def forward(self, x):
        return {"a": self.direct.forward(x).relu(), "b": [x.relu()]}
def make():
    return Odd(), torch.ones(4, 4)
def wrong():
    return 3
"""


def doctor(cwd: Path, *args: str, path: Path | None = None) -> tuple[int, Any, str]:
    """Exit status, answer and standard error of `msprobe doctor --json`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "msprobe", "doctor", "--json", *args],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def options(**given: Any) -> dict[str, Any]:
    return {"script": "", "script_args": [], "model": "", "config": "", "timeout": 60, "steps": 0, "ranks": 1} | given


def texts(findings: Findings, state: str) -> str:
    found: list[dict[str, Any]] = findings.as_json()
    return "\n".join(" ".join([f["text"], *f["more"]]) for f in found if f["state"] == state)


def test_doctor_foresees_entries_and_size_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    status, answer, _ = doctor(tmp_path, "--script", "train.py", "--", "config.json")
    assert status == 0
    assert not (tmp_path / "dump").exists()  # it wrote elsewhere
    subprocess.run(
        [sys.executable, "train.py", "config.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
    )
    folder = tmp_path / "dump" / "step1" / "rank"
    data = json.loads((folder / "dump.json").read_text())["data"]
    assert sum(answer["collection"]["entries"].values()) == len(data)
    assert answer["collection"]["calls"]["Functional.linear"] == 2
    assert answer["collection"]["entries"]["parameter gradients"] == sum(".parameters_grad." in name for name in data)
    left_out = answer["collection"]["not_collected"]
    assert any("FOCUS" in reason and "Tensor.permute (1)" in names for reason, names in left_out.items())
    assert any("no list" in reason and "Tensor.view (1)" in names for reason, names in left_out.items())
    written = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert answer["disk"]["bytes_per_step"] == pytest.approx(written, rel=0.05)
    assert answer["disk"]["steps"] == 1


def test_doctor_names_what_a_model_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    findings = Findings()
    own = collection.run_trial(options(model="odd_models:make"), tmp_path / "own", everything=False)
    assert collection._say_how_it_went(findings, own)
    assert {"Tensor.relu.0.forward", "Tensor.relu.0.backward"} <= set(own.entries)
    collection._compare(findings, own, own, options())
    assert "not recorded because never called" in texts(findings, "warning")
    assert "direct, never" in texts(findings, "warning")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print('no debugger')", "makes no PrecisionDebugger"),
        pytest.param("raise ValueError('boom')", "ended early: ValueError: boom", marks=pytest.mark.slow),
        pytest.param("import os; os.abort()", "ended with signal 6", marks=pytest.mark.slow),
        pytest.param(
            "from msprobe.pytorch import PrecisionDebugger\nPrecisionDebugger(dump_path='d')",
            "never calls start()",
            marks=pytest.mark.slow,
        ),
        pytest.param("while True: pass", "took longer than 4 seconds", marks=pytest.mark.slow),
        pytest.param("import sys; sys.exit(5)", "ended with status 5", marks=pytest.mark.slow),
    ],
)
def test_doctor_says_why_a_trial_failed(tmp_path: Path, script: str, words: str) -> None:
    (tmp_path / "s.py").write_text(script)
    trial = options(script=str(tmp_path / "s.py"), timeout=4 if "while" in script else 60)
    findings = Findings()
    own = collection.run_trial(trial, tmp_path / "own", everything=False)
    assert not collection._say_how_it_went(findings, own)
    assert words in texts(findings, "problem")


def test_doctor_names_a_conflicting_package(tmp_path: Path) -> None:
    info = tmp_path / "other" / "mindstudio_probe-8.3.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mindstudio-probe\nVersion: 8.3.0\n")
    (info / "RECORD").write_text("msprobe/__init__.py,,\n")
    status, answer, err = doctor(tmp_path, path=tmp_path / "other")
    assert status == 1
    assert answer["environment"]["conflicts"] == ["mindstudio-probe 8.3.0"]
    assert "problem 1" in err
    assert answer["counts"]["problem"] == 1
    assert answer["environment"]["torch"]["version"] == torch.__version__


def test_doctor_checks_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"dump_path": "d", "level": "L3", "colour": 1}')
    findings = Findings()
    assert collection.check_config(findings, str(path)) is None
    assert '"L3" is not known' in texts(findings, "problem")
    path.write_text('{"dump_path": "d", "colour": 1}')
    config = collection.check_config(findings, str(path))
    assert config == {"dump_path": "d", "colour": 1}
    assert "colour: unknown key, ignored" in texts(findings, "warning")


def test_doctor_looks_at_the_folder_of_dumps(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    findings = Findings()
    assert disk.look_at_folder(findings, str(tmp_path / "file" / "dump")) is None
    assert "is no folder" in texts(findings, "problem")
    free = disk.look_at_folder(findings, str(tmp_path / "a" / "b"))
    assert free is not None
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("steps", "ranks", "state"), [(1, 1, "ok"), (6, 1, "warning"), (2, 3, "warning"), (11, 1, "problem")]
)
def test_doctor_compares_size_and_room(steps: int, ranks: int, state: str) -> None:
    findings = Findings()
    step = disk.Size(tensors=2, tensor_bytes=90, json_bytes=10)
    disk.look_at_size(findings, step, 1000, steps, ranks)  # room for ten steps
    assert [f["state"] for f in findings.as_json()] == ["ok", state]


def test_doctor_sizes_and_steps() -> None:
    assert disk.leaf_bytes({"dtype": "torch.bfloat16", "shape": [3, 5]}) == 30
    assert disk.leaf_bytes({"dtype": "torch.float32", "shape": []}) == 4
    assert disk.leaf_bytes({"dtype": "torch.complex128", "shape": [0, 7]}) == 0
    assert disk.leaf_bytes({"dtype": "torch.float8_e5m2", "shape": [9]}) == 9
    assert disk.number_of_steps({"step": [0, "3-5", "4"]}, 0) == 4
    assert disk.number_of_steps({"step": []}, 0) is None
    assert disk.number_of_steps({"step": [0]}, 7) == 7
    assert (size(999), size(1500), size(3.21e12)) == ("999 bytes", "1.5 KB", "3210.0 GB")


def entries_of(folder: Path) -> dict[str, Any]:
    return json.loads(next(folder.glob("step0/*/dump.json")).read_text())["data"]


@pytest.fixture
def fresh() -> Any:
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


@pytest.mark.parametrize("purpose", ["first-difference", "pre-check", "nan-hunt", "determinism"])
def test_init_writes_a_file_that_the_debugger_takes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], fresh: Any, purpose: str
) -> None:
    path, dump = tmp_path / "config.json", tmp_path / 'du"mp'
    assert _core.main(["msprobe", "init", purpose, "-o", str(path), "--dump-path", str(dump)]) == 0
    assert "next:" in capfd.readouterr().out
    assert "_comment" in path.read_text()
    net = torch.nn.Linear(3, 2)
    debugger = PrecisionDebugger(config_path=str(path))
    debugger.start(model=net)
    (net(torch.ones(4, 3)).sum() * 1.5).backward()
    torch.log(torch.tensor([-1.0, 2.0]))
    debugger.stop()
    debugger.step()
    out = capfd.readouterr().out
    said = [line for line in out.splitlines() if "[WARNING]" in line or "[ERROR]" in line]
    assert all("Torch.log.0.forward" in line for line in said), said  # nan-hunt names it
    assert bool(said) == (purpose == "nan-hunt")
    data = entries_of(dump)
    files = len(list(dump.rglob("*.pt")))
    if purpose == "nan-hunt":
        assert set(data) == {"Torch.log.0.forward"}
        assert files == 2
    else:
        assert {"Functional.linear.0.forward", "Functional.linear.0.backward"} <= set(data)
        leaf = data["Functional.linear.0.forward"]["output"][0]
        assert ("md5" in leaf) == (purpose == "determinism")
        assert (files > 0) == (purpose == "pre-check")
        assert any(name.startswith("Module.") for name in data) == (purpose != "pre-check")


def test_init_refuses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_text("mine")
    for args, words in (
        (["nan-hunt", "-o", str(path)], "exists already"),
        (["nan-hunt", "-o", str(tmp_path / "c.txt")], "does not end in .json"),
        (["nan-hunts", "-o", str(path)], "did you mean nan-hunt?"),
        ([], "give one of: first-difference pre-check nan-hunt determinism"),
        (["nan-hunt", "-o", str(tmp_path / "gone" / "c.json")], "no such"),
    ):
        assert _core.main(["msprobe", "init", *args]) == 2, args
        assert words in capfd.readouterr().err
    assert path.read_text() == "mine"
    assert _core.main(["msprobe", "init", "nan-hunt", "-o", str(path), "--force"]) == 0
    assert json.loads(path.read_text())["task"] == "overflow_check"


def test_doctor_counts_entries_by_kind() -> None:
    names = ["Tensor.add.0.forward", "Tensor.add.1.forward", "Tensor.add.1.backward", "y.0.debug"]
    names += ["Module.a.Linear.forward.0", "Module.a.Linear.backward.0", "Module.a.Linear.parameters_grad.0"]
    kinds, calls = collection.split(dict.fromkeys(names))
    assert kinds == {
        "API calls": 2,
        "API backward": 1,
        "values given to save()": 1,
        "module calls": 1,
        "module backward": 1,
        "parameter gradients": 1,
    }
    assert +calls == {"Tensor.add": 2}


@pytest.mark.parametrize(
    ("config", "name", "words"),
    [
        ({}, "Tensor.permute", "risk_level FOCUS"),
        ({"risk_level": "CORE"}, "Tensor.add", "risk_level CORE"),
        ({}, "Tensor.view", "no list names it"),
        ({"statistics": {"list": ["x"]}}, "Tensor.add", "scope or list"),
        ({"level": "L0"}, "Tensor.add", "L0"),
        ({"level": "debug"}, "Tensor.add", "save()"),
        ({"api_list": {"remove": ["add"]}}, "Tensor.add", "api_list.remove"),
        ({"task": "tensor", "statistics": {"list": ["x"]}}, "Tensor.view", "no list names it"),
    ],
)
def test_doctor_knows_why_a_call_is_left_out(config: dict[str, Any], name: str, words: str) -> None:
    assert words in collection.reason_of(name, config, collection.risk_levels())
