"""What stands around a replay: final verdict in one run, stand-alone scripts, overflow check, torn dumps."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_candidate import FAULTS
from precheck_golden import table
from precheck_support import Runner, call, msprobe, tensor, write_dump

from msprobe import _core

__all__ = ["msprobe"]  # a fixture

DATA = Path(__file__).resolve().parents[1] / "data" / "precheck"
FAULTY = DATA / "faults_dump.json"
HERE = Path(__file__).resolve().parent
WORDS = {"pass": 0, "warn": 1, "warning": 1, "error": 2, " ": -1}


def records(folder: Path, pattern: str) -> dict[str, list[str]]:
    """The rows of the one csv of that name, by first cell."""
    (path,) = folder.glob(pattern)
    with path.open(encoding="utf-8-sig", newline="") as f:
        return {row[0]: row for row in list(csv.reader(f))[1:]}


def final(folder: Path) -> dict[str, list[str]]:
    """The final verdict of each API."""
    return records(folder, "api_precision_compare_result_*.csv")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a faulty and of a clean run with --baseline cpu."""
    out = {}
    for which in ("faulty", "clean"):
        out[which] = tmp_path_factory.mktemp(which)
        args = ["-api_info", str(FAULTY), "-o", str(out[which]), "--device", "cpu", "--baseline", "cpu"]
        assert _core.main(["msprobe", "acc_check", *args, "--candidate", f"fault_candidate:{which}"]) == 0
    return out


@pytest.mark.parametrize("fault", FAULTS, ids=[f["id"] for f in FAULTS])
def test_final_verdict_of_one_run(fault: dict[str, str], judged: dict[str, Path]) -> None:
    row = final(judged["faulty"])[fault["api"]]
    assert max(WORDS[row[1]], WORDS[row[2]]) == WORDS[fault["expect"]], f"{fault['fault']}: {row}"
    clean = final(judged["clean"])[fault["api"]]
    assert set(clean[1:3]) <= {"pass", " "}


def test_baseline_rows_are_those_of_the_details(judged: dict[str, Path]) -> None:
    (summary,) = judged["clean"].glob("accuracy_checking_summary_*.json")
    document = json.loads(summary.read_text("utf-8"))
    assert document["baseline"] == "cpu"
    assert [Path(p).exists() for p in document["reports"]] == [True] * 6
    details = records(judged["clean"], "accuracy_checking_details_[0-9]*.csv")
    baseline = records(judged["clean"], "accuracy_checking_details_baseline_*.csv")
    assert list(details) == list(baseline)
    # A clean candidate is the baseline: the same figures, to the last digit.
    assert [row[4:21] for row in details.values()] == [row[4:21] for row in baseline.values()]


def test_resumed_run_with_a_baseline(msprobe: Runner, tmp_path: Path, judged: dict[str, Path]) -> None:
    args = ("-api_info", FAULTY, "--device", "cpu", "--candidate", "fault_candidate:faulty", "--baseline", "cpu")
    assert msprobe("acc_check", *args, "-o", "out") == 0
    (result,) = (tmp_path / "out").glob("accuracy_checking_result_*.csv")
    (baseline,) = (tmp_path / "out").glob("accuracy_checking_details_baseline_*.csv")
    whole = {path: path.read_bytes() for path in (result, baseline)}
    # What a kill leaves: baseline rows of the API being written, no result of it.
    lines = baseline.read_bytes().split(b"\r\n")
    baseline.write_bytes(b"\r\n".join(lines[:-4]) + b"\r\n" + lines[-4][:9])
    for path in (tmp_path / "out").glob("api_precision_compare_*"):
        path.unlink()
    assert msprobe("acc_check", *args, "-csv_path", result) == 0
    assert {path: sorted(path.read_bytes().split(b"\r\n")) for path in whole} == {
        path: sorted(text.split(b"\r\n")) for path, text in whole.items()
    }
    assert final(tmp_path / "out") == final(judged["faulty"])


def test_baseline_of_another_machine(msprobe: Runner, tmp_path: Path, judged: dict[str, Path]) -> None:
    (other,) = judged["clean"].glob("accuracy_checking_details_[0-9]*.csv")
    args = ("-api_info", FAULTY, "-o", "out", "--device", "cpu", "--baseline", other, "--fail-on", "error")
    assert msprobe("acc_check", *args) == 0
    assert {s for row in final(tmp_path / "out").values() for s in row[1:3]} <= {"pass", " "}
    assert msprobe("acc_check", *args, "--candidate", "fault_candidate:faulty", "-q") == 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--baseline", "cpu", "--device", "cpu"), "with itself"),
        (("--baseline", "cpu", "--device", "auto"), "with itself"),
        (("--baseline", "gpu.txt"), ".csv"),
        (("--baseline", "none.csv"), "none.csv"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is the CPU only without a device")
def test_baselines_that_are_refused(
    args: tuple[str, ...], said: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert msprobe("acc_check", "-api_info", FAULTY, "-o", "out", *args) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- scripts


def run_script(path: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """The script in a process that cannot import msprobe."""
    code = (
        "import runpy, sys; sys.modules['msprobe'] = None; "
        f"sys.argv[0] = {str(path)!r}; runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *(str(a) for a in args)],
        cwd=HERE,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["Torch.exp.0", "Functional.relu.0", "Functional.layer_norm.0"])
def test_reproducer_shows_the_failure_and_is_small(name: str, msprobe: Runner, tmp_path: Path) -> None:
    args = ("-api_info", FAULTY, "-o", "out", "--device", "cpu", "--candidate", "fault_candidate:faulty")
    assert msprobe("acc_check", *args, "--reproduce", name) == 0
    script = tmp_path / "out" / f"{name}.py"
    shown = re.search(r"Inputs: (\d+) of the recorded (\d+) elements", script.read_text("utf-8"))
    assert shown is not None and 10 * int(shown[1]) <= int(shown[2])
    data = torch.load(tmp_path / "out" / f"{name}.pt", weights_only=True)
    assert sum(t.numel() for t in data["tensors"]) == int(shown[1])
    bad = run_script(script, "--device", "cpu", "--candidate", "fault_candidate:faulty")
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "FAIL" in bad.stdout
    good = run_script(script, "--device", "cpu")
    assert (good.returncode, good.stderr) == (0, "")


def test_reproducer_of_a_passing_call_is_whole(msprobe: Runner, tmp_path: Path) -> None:
    inputs = [tensor("float32", [3, 4], -1.0, 1.0), tensor("int64", [2], 0, 2)]
    slices = {"type": "slice", "value": [0, 2, None]}
    data = {
        "Torch.index_select.0.forward": call(inputs[0], 0, inputs[1]),
        "Tensor.__getitem__.0.forward": call(inputs[0], [slices, {"type": "ellipsis"}]),
        "Torch.sum.0.forward": call(inputs[0], dtype={"type": "torch.dtype", "value": "torch.float64"}),
        "Functional.dropout.0.forward": call(inputs[0], 0.5),
    }
    write_dump(tmp_path / "dump.json", data)
    for name in ("Torch.index_select.0", "Torch.sum.0", "Functional.dropout.0"):
        assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu", "--reproduce", name) == 0
        done = run_script(tmp_path / "out" / f"{name}.py", "--device", "cpu")
        assert (done.returncode, done.stderr) == (0, ""), name
    assert msprobe("acc_check", "-api_info", "dump.json", "--device", "cpu", "--reproduce", "Torch.no.0") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which needs root")
def test_a_full_disk_leaves_no_half_script(msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "full"]
    if subprocess.run(mount, cwd=tmp_path, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount here")
    try:
        args = ("-api_info", FAULTY, "-o", "full", "--device", "cpu", "--reproduce", "Functional.relu.0")
        assert msprobe("acc_check", *args) == 1
        left = [p.name for p in (tmp_path / "full").iterdir() if p.suffix != ".pt"]
    finally:
        subprocess.run(["umount", "full"], cwd=tmp_path, check=True)
    err = capfd.readouterr().err
    assert "No space left" in err and "fault of msprobe" not in err
    assert left == []


def request(tmp_path: Path, **changes: Any) -> Path:
    """A config.json of op_generate."""
    config = {
        "dump_json_path": str(FAULTY),
        "api_name": "Functional.layer_norm.0",
        "extract_api_path": str(tmp_path / "entries.json"),
        "propagation": "backward",
        "data_mode": "random_data",
        "random_seed": 7,
        "iter_times": 2,
    }
    path = tmp_path / "generate.json"
    path.write_text(json.dumps(config | changes), "utf-8")
    return path


def test_generated_script_draws_its_own_inputs(msprobe: Runner, tmp_path: Path) -> None:
    assert msprobe("-f", "pytorch", "op_generate", "-i", request(tmp_path), "-o", tmp_path) == 0
    script = tmp_path / "Functional.layer_norm.0.py"
    assert script.stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "Functional.layer_norm.0.pt").exists()
    entries = json.loads((tmp_path / "entries.json").read_text("utf-8"))
    assert list(entries) == ["Functional.layer_norm.0.forward", "Functional.layer_norm.0.backward"]
    done = run_script(script, "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall("^gradient ", done.stdout, re.M)) == 2 * 3  # two iterations, three gradients
    # The entries alone are enough the next time.
    again = request(tmp_path, dump_json_path="", propagation="forward", iter_times=1)
    assert msprobe("-f", "pytorch", "op_generate", "-i", again, "-o", tmp_path) == 0
    assert "gradient" not in run_script(script, "--device", "cpu").stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"propagation": "up"}, "propagation"),
        ({"iter_times": 0}, "iter_times"),
        ({"iter_times": True}, "iter_times"),
        ({"random_seed": "1"}, "random_seed"),
        ({"data_mode": "any"}, "data_mode"),
        ({"api_name": "matmul"}, "api_name"),
        ({"api_name": "Torch.none.0"}, "Torch.none.0"),
        ({"extract_api_path": "x.txt"}, "extract_api_path"),
        ({"extract_api_path": "/no/such/folder/x.json"}, "/no/such/folder"),
    ],
)
def test_requests_that_are_refused(
    changes: dict[str, Any], said: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert msprobe("op_generate", "-i", request(tmp_path, **changes), "-o", tmp_path) in (1, 2)
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err
    assert not list(tmp_path.glob("*.py"))


# ---- overflow


def test_overflow_is_told_from_the_dtype_and_from_the_device(
    msprobe: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # exp(12) = 162755 is above float16's 65504, exp(800) above float64's largest; the candidate spoils exp.2.
    data = {
        "Torch.exp.0.forward": call(tensor("float16", [4], 11.5, 12.0)),
        "Torch.exp.1.forward": call(tensor("float32", [4], 799.0, 800.0)),
        "Torch.exp.2.forward": call(tensor("float32", [4], 0.0, 1.0)),
        "Torch.exp.3.forward": call(tensor("float32", [4], 0.0, 1.0)),
        "Distributed.all_reduce.0.forward": call(tensor("float32", [4], 0.0, 1.0)),
    }
    write_dump(tmp_path / "dump.json", data)
    (tmp_path / "spoil_exp.py").write_text(
        "def f(name, real, args, kwargs):\n    out = real(*args, **kwargs)\n"
        "    return out / 0 if name == 'Torch.exp.2' else out\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    args = ("-api_info", "dump.json", "--device", "cpu", "--candidate", "spoil_exp:f")
    assert msprobe("-f", "pytorch", "run_overflow_check", *args, "--fail-on", "error") == 3
    out, err = capfd.readouterr()
    assert re.search(r"Torch\.exp\.0: normal overflow: .*float64 does not", out)
    assert re.search(r"Torch\.exp\.1: normal overflow: .*float64 too", out)
    assert re.search(r"Torch\.exp\.2: abnormal overflow: cpu overflows, CPU does not, float64 does not", out)
    assert re.search(r"Torch\.exp\.3: normal overflow: cpu does not, CPU does not$", out, re.M)
    assert "normal 3, abnormal 1, skipped 1, total 5" in err


@pytest.mark.parametrize("words", [["-j"], ["-j", "True"], ["-j", "false"], ["--jit_compile", "1"]])
def test_overflow_check_takes_a_value_of_j(msprobe: Runner, tmp_path: Path, words: list[str]) -> None:
    write_dump(tmp_path / "dump.json", {"Torch.exp.0.forward": call(tensor("float32", [4], 0.0, 1.0))})
    command = ("-f", "pytorch", "run_overflow_check", "-api_info", "dump.json")
    assert msprobe(*command, *words, "--device", "cpu") == 0


def test_overflow_check_refuses_another_value_of_j(
    msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_dump(tmp_path / "dump.json", {"Torch.exp.0.forward": call(tensor("float32", [4], 0.0, 1.0))})
    command = ("-f", "pytorch", "run_overflow_check", "-api_info", "dump.json")
    assert msprobe(*command, "-j", "perhaps", "--device", "cpu") == 2
    assert "msprobe: error: -j: " in capfd.readouterr().err


# ---- torn dumps


def test_a_torn_dump_is_run_as_far_as_it_goes(
    msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "run_lists" / "dump.json").read_text("utf-8")
    names = [m[1] for m in re.finditer(r'"([\w.]+)\.forward"', text)]
    cut = text.index(f'"{names[-1]}.forward"') + 60
    (tmp_path / "dump.json").write_text(text[:cut], "utf-8")
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 0
    assert list(table(tmp_path / "out", "result")) == names[:-1]
    assert f"its {len(names) - 1} complete calls" in capfd.readouterr().err
