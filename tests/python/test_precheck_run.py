"""acc_check and run_ut on this machine's CPU: golden records, spellings, resume, filter, lists, statuses, workers."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from precheck_golden import differences, table
from precheck_support import Runner, call, msprobe, tensor, write_dump

from msprobe import _core
from msprobe.precheck.judging import Context, rows_of

__all__ = ["msprobe"]  # a fixture

DATA = Path(__file__).resolve().parents[1] / "data" / "precheck"
LISTS = DATA / "run_lists" / "dump.json"
SMALL_VALUE = 11  # of the twenty cells between name and status: share of wrong small values
CASES = [p.name for p in sorted(DATA.glob("run_*"))]


@pytest.mark.parametrize("case", CASES)
def test_golden_run(case: str, msprobe: Runner, tmp_path: Path) -> None:
    folder = DATA / case
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    args = [folder / a if a.endswith(".json") else a for a in expected["args"]]
    status = msprobe(
        "acc_check", "-api_info", folder / "dump.json", "-o", "out", "--device", "cpu", "--rules", "base", *args
    )
    assert status == 0
    assert differences(folder, tmp_path / "out") == []


@pytest.mark.parametrize("case", [c for c in CASES if c not in ("run_inputs", "run_odd_key")])
def test_clean_dumps_raise_no_error_by_default_rules(case: str, msprobe: Runner, tmp_path: Path) -> None:
    assert msprobe("acc_check", "-api_info", DATA / case / "dump.json", "-o", "out", "--device", "cpu") == 0
    wrong = {n: r[1:3] for n, r in table(tmp_path / "out", "result").items() if "error" in r[1:3]}
    assert wrong == {}


def test_dropped_repeats_by_default_rules(msprobe: Runner, tmp_path: Path) -> None:
    expected = json.loads((DATA / "run_filter" / "expected.json").read_text(encoding="utf-8"))
    assert msprobe("acc_check", "-api_info", DATA / "run_filter/dump.json", "-o", "out", "--device", "cpu", "-f") == 0
    assert list(table(tmp_path / "out", "result")) == expected["ours_kept"]


@pytest.mark.parametrize(
    ("spelling", "command", "word"),
    [
        (("-f", "pytorch"), "run_ut", "run_ut"),
        ((), "acc_check", "acc_check"),
    ],
)
def test_spellings(
    spelling: tuple[str, ...],
    command: str,
    word: str,
    msprobe: Runner,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert msprobe(*spelling, command, "-api_info", LISTS, "-o", "out", "--device", "cpu") == 0
    out = capfd.readouterr()
    assert f"Successfully completed {word}/multi_{word}." in out.out
    assert ("UT task completed." if word == "run_ut" else "acc_check task completed.") in out.out
    assert "forward: pass 4, warning 0, error 0, skip 0, total 4" in out.err
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    stamps = {re.search(r"_(\d{14})\.", n).group(1) for n in names}  # type: ignore[union-attr]
    assert len(stamps) == 1
    kinds = [re.sub(r"_\d{14}", "", n) for n in names]
    page = () if spelling else ("report.html",)  # the newer spelling makes one to look at
    expected = ("details.csv", "meta.json", *page, "result.csv", "summary.json")
    assert kinds == [f"accuracy_checking_{k}" for k in expected]
    raw = (tmp_path / "out" / names[-2]).read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfAPI name,Forward Test Success,Backward Test Success,Message\r\n")
    assert b"\r\nTorch.abs.0,pass, \r\n" in raw


def test_summary_and_meta(msprobe: Runner, tmp_path: Path) -> None:
    assert msprobe("acc_check", "-api_info", LISTS, "-o", "out", "--device", "cpu") == 0
    (summary,) = (tmp_path / "out").glob("*summary*")
    (meta,) = (tmp_path / "out").glob("*meta*")
    counts = json.loads(summary.read_text("utf-8"))
    assert counts["counts"]["forward"] == {"pass": 4, "warning": 0, "error": 0, "skip": 0, "total": 4}
    assert counts["compared"] == "CPU against CPU"
    inputs = json.loads(meta.read_text("utf-8"))["inputs"]
    details = table(tmp_path / "out", "details")
    for name, checksum in inputs.items():
        assert details[f"{name}.forward.output.0"][22].endswith(f"inputs={checksum}")
    assert len(set(inputs.values())) == 4


def test_small_values_choice_is_kept_and_checked(
    msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = ("acc_check", "-api_info", LISTS, "-o", "out", "--device", "cpu", "--small-values")
    assert msprobe(*run, "corected") == 2
    assert "corected" in capfd.readouterr().err
    assert msprobe(*run, "corrected") == 0
    for kind in ("summary", "meta"):
        (path,) = (tmp_path / "out").glob(f"*{kind}*")
        assert json.loads(path.read_text("utf-8"))["small_values"] == "corrected"


@pytest.mark.parametrize(("corrected", "share"), [(False, 2 / 3), (True, 1 / 3)])
def test_small_values_reach_the_details(corrected: bool, share: float) -> None:
    """2^-12 off by 0, 2^-18 and 2^-14: beyond 1e-16 are two of three, beyond 2^-16 one."""
    bench = torch.tensor([2.0**-12] * 3, dtype=torch.float64)
    device = torch.tensor([2.0**-12, 2.0**-12 + 2.0**-18, 2.0**-12 + 2.0**-14], dtype=torch.float16)
    context = Context("relu", False, False, False, corrected=corrected)
    (row,) = rows_of(context, "Torch.relu.0.forward.output", bench, device, None)
    assert float(row.cells()[SMALL_VALUE]) == pytest.approx(share)


def test_seed_changes_inputs_and_nothing_else_does(msprobe: Runner, tmp_path: Path) -> None:
    def inputs(folder: str, *args: object) -> dict[str, str]:
        assert msprobe("acc_check", "-api_info", LISTS, "-o", folder, "--device", "cpu", *args) == 0
        (meta,) = (tmp_path / folder).glob("*meta*")
        return dict(json.loads(meta.read_text("utf-8"))["inputs"])

    first = inputs("a")
    assert inputs("b", "-f") == first
    other = inputs("c", "--seed", 7)
    assert all(other[name] != value for name, value in first.items())


REFUSED = [
    ("no_options", [], "-api_info"),
    ("abbreviated", ["-api", LISTS], "-api"),
    ("file_missing", ["-api_info", "no_such.json", "--device", "cpu"], "no_such.json"),
    ("wrong_suffix", ["-api_info", "dump.txt", "--device", "cpu"], ".json"),
    ("device_twice", ["-api_info", LISTS, "-d", 0, 0], "twice"),
    ("device_negative", ["-api_info", LISTS, "-d", -1], "-d"),
    ("resume_bad_name", ["-api_info", LISTS, "-csv_path", "result.csv", "--device", "cpu"], "14 digits"),
    ("bad_candidate", ["-api_info", LISTS, "--device", "cpu", "--candidate", "nothing"], "MODULE:FUNCTION"),
    ("no_candidate", ["-api_info", LISTS, "--device", "cpu", "--candidate", "no_such_module:f"], "no_such_module"),
    ("no_cuda", ["-api_info", LISTS, "--device", "npu"], "--device"),
]


@pytest.mark.parametrize(("args", "said"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused_before_any_work(
    args: list[object], said: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert msprobe("acc_check", *args) == 2
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err
    assert not list(tmp_path.glob("**/*.csv"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_device_the_cpu_must_be_asked_for(msprobe: Runner, capfd: pytest.CaptureFixture[str]) -> None:
    assert msprobe("acc_check", "-api_info", LISTS) == 2
    assert "--device cpu" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"framework": "pytorch", "data": {', "dump.json:1:"),
        ('{"framework": "pytorch", "dump_data_dir": null}', "data"),
        ('{"framework": "mindspore", "data": {}}', "mindspore"),
        ("[" * 100_000, "object is expected"),
        ('"text"', "object is expected"),
    ],
)
def test_dumps_that_cannot_be_read(
    text: str, said: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump.json").write_text(text, "utf-8")
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 2
    err = capfd.readouterr().err
    assert said in err and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_empty_dump_writes_headers_only(msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_dump(tmp_path / "dump.json", {}, framework=None)
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 0
    assert table(tmp_path / "out", "result") == {}
    assert "warning" in capfd.readouterr().err


CONFIGS = [
    ({"acc_check": {"white_list": ["no_such_thing"]}}, 2, "no_such_thing"),
    ({"acc_check": {"white_list": ["abz"]}}, 2, "did you mean abs"),
    ({"run_ut": {"white_list": "abs"}}, 2, "white_list"),
    ({"run_ut": {"error_data_path": "./no_such_folder"}}, 2, "no_such_folder"),
    ({"task": "statistics"}, 0, "pass 4"),
    ({"task": "run_ut", "run_ut": {}}, 0, "pass 4"),
    ({"run_ut": {"black_list": ["abs"]}}, 0, "pass 3"),
]


@pytest.mark.parametrize(("config", "status", "said"), CONFIGS)
def test_config_sections(
    config: dict[str, Any], status: int, said: str, msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    args = ("-api_info", LISTS, "-o", "out", "--device", "cpu", "-config", "config.json")
    assert msprobe("acc_check", *args) == status
    assert said in capfd.readouterr().err


def test_name_that_a_spreadsheet_would_run(msprobe: Runner, tmp_path: Path) -> None:
    data = {
        "Torch.abs.0.forward": call(tensor("float32", [3], -1.0, 1.0)),
        "=cmd.x.0.forward": call(tensor("float32", [3], -1.0, 1.0)),
        "Torch.sin.1.forward": call(tensor("float32", [3], -1.0, 1.0)),
    }
    write_dump(tmp_path / "dump.json", data)
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 0
    (path,) = (tmp_path / "out").glob("*result*")
    with path.open(encoding="utf-8-sig", newline="") as f:
        rows = list(csv.reader(f))[1:]
    assert [r[0] for r in rows] == ["Torch.abs.0", "'=cmd.x.0", "Torch.sin.1"]
    assert rows[1][1:3] == ["SKIP", "SKIP"]


def old_files(folder: Path, *rows: str, details: bool = True) -> Path:
    result = folder / "accuracy_checking_result_20260101000000.csv"
    head = "API name,Forward Test Success,Backward Test Success,Message\r\n"
    result.write_bytes(("\ufeff" + head + "".join(rows)).encode())
    if details:
        titles = (DATA / "compare_ulp" / "npu.csv").read_text(encoding="utf-8-sig").splitlines()[0]
        text = "\ufeff" + titles + "\r\n"
        for row in rows:
            name = row.split(",")[0]
            text += f"{name}.forward.output.0" + ", " * 20 + ",SKIP,out of memory\r\n"
        (folder / "accuracy_checking_details_20260101000000.csv").write_bytes(text.encode())
    return result


def test_resume_passes_over_what_is_done(msprobe: Runner, tmp_path: Path) -> None:
    result = old_files(tmp_path, "Torch.sin.1,SKIP,SKIP,out of memory\r\n")
    args = ("-api_info", LISTS, "-o", "out", "--device", "cpu", "-csv_path", result)
    assert msprobe("acc_check", *args) == 0
    rows = table(tmp_path, "result")
    assert list(rows) == ["Torch.sin.1", "Torch.abs.0", "Torch.neg.2", "Torch.exp.3"]
    assert rows["Torch.sin.1"] == ["Torch.sin.1", "SKIP", "SKIP", "out of memory"]
    assert result.read_bytes().count(b"API name") == 1
    assert not (tmp_path / "out").exists()
    assert msprobe("acc_check", *args, "--retry-skips") == 0
    assert table(tmp_path, "result")["Torch.sin.1"][1] == "pass"


def test_resume_after_a_torn_write(msprobe: Runner, tmp_path: Path) -> None:
    assert msprobe("acc_check", "-api_info", LISTS, "-o", "whole", "--device", "cpu") == 0
    (whole,) = (tmp_path / "whole").glob("*result*")
    (details,) = (tmp_path / "whole").glob("*details*")
    expected = (whole.read_bytes(), details.read_bytes())
    for cut in range(len(expected[0]) - 45, len(expected[0]), 7):
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "whole", folder)
        result = folder / whole.name
        result.write_bytes(expected[0][:cut])
        assert msprobe("acc_check", "-api_info", LISTS, "--device", "cpu", "-csv_path", result) == 0
        assert (result.read_bytes(), (folder / details.name).read_bytes()) == expected


def test_resume_without_details_is_refused(msprobe: Runner, tmp_path: Path) -> None:
    result = old_files(tmp_path, details=False)
    assert msprobe("acc_check", "-api_info", LISTS, "--device", "cpu", "-csv_path", result) == 2


def test_workers_give_the_same_files(msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = DATA / "run_conv_stats" / "dump.json"
    before = sorted(os.listdir(dump.parent))
    assert msprobe("acc_check", "-api_info", dump, "-o", "one", "--device", "cpu") == 0
    assert msprobe("multi_acc_check", "-api_info", dump, "-o", "two", "--device", "cpu", "-n", 2) == 0
    assert "Successfully completed acc_check/multi_acc_check." in capfd.readouterr().out
    assert table(tmp_path / "two", "result") == table(tmp_path / "one", "result")
    one, two = table(tmp_path / "one", "details"), table(tmp_path / "two", "details")
    assert list(two) == list(one)
    assert {n: r[21] for n, r in two.items()} == {n: r[21] for n, r in one.items()}
    assert sorted(os.listdir(dump.parent)) == before


def test_pieces_must_be_in_range(msprobe: Runner) -> None:
    assert msprobe("multi_acc_check", "-api_info", LISTS, "--device", "cpu", "-n", 0) == 2
    assert msprobe("multi_acc_check", "-api_info", LISTS, "--device", "cpu", "-n", 65) == 2


DYING = """
import os, signal, time
def f(name, real, args, kwargs):
    if name == "Torch.sin.1":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "Torch.neg.2":
        time.sleep(600)
    return real(*args, **kwargs)
"""


def test_a_worker_that_dies_or_hangs_costs_one_row(
    msprobe: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying_candidate.py").write_text(DYING, "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    args = ("-api_info", LISTS, "-o", "out", "--device", "cpu", "-n", 2, "--timeout", 20)
    assert msprobe("multi_acc_check", *args, "--candidate", "dying_candidate:f") == 1
    rows = table(tmp_path / "out", "result")
    assert list(rows) == ["Torch.abs.0", "Torch.sin.1", "Torch.neg.2", "Torch.exp.3"]
    assert [r[1] for r in rows.values()] == ["pass", "SKIP", "SKIP", "pass"]
    assert "signal 9" in rows["Torch.sin.1"][3] and "20 s" in rows["Torch.neg.2"][3]


FAULTY = """
import torch
def f(name, real, args, kwargs):
    return real(*args, **kwargs) * 1.5
"""


def test_error_data_and_fail_on(msprobe: Runner, tmp_path: Path) -> None:
    (tmp_path / "faulty_candidate.py").write_text(FAULTY, "utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"acc_check": {"error_data_path": str(tmp_path)}}), "utf-8")
    data = {
        "Torch.add.0.forward": call(
            tensor("float32", [4], 1.0, 2.0, requires_grad=True), other=tensor("float32", [4], 1, 2)
        ),
        "Torch.add.0.backward": {"input": [tensor("float32", [4], -1.0, 1.0)], "output": []},
    }
    write_dump(tmp_path / "dump.json", data)
    args = ("-api_info", "dump.json", "-o", "out", "--device", "cpu", "-save_error_data", "-config", "config.json")
    assert msprobe("acc_check", *args, "--candidate", "faulty_candidate:f", "--fail-on", "error") == 3
    (folder,) = tmp_path.glob("ut_error_data*")
    names = sorted(p.name.removeprefix("Torch.add.0.") for p in folder.iterdir())
    assert names == [
        "backward.input.0.pt",
        "backward.output.bench.0.pt",
        "backward.output.device.0.pt",
        "forward.input.0.pt",
        "forward.input.1.pt",
        "forward.output.bench.0.pt",
        "forward.output.device.0.pt",
        "json",
    ]
    document = json.loads((folder / "Torch.add.0.json").read_text("utf-8"))
    assert (document["seed"], document["forward_status"]) == (1234, "error")
    assert document["tensors"]["Torch.add.0.forward.input.1.pt"] == {"dtype": "torch.float32", "shape": [4]}
    first = torch.load(folder / "Torch.add.0.forward.input.0.pt", weights_only=True)
    bench = torch.load(folder / "Torch.add.0.forward.output.bench.0.pt", weights_only=True)
    other = torch.load(folder / "Torch.add.0.forward.input.1.pt", weights_only=True)
    assert torch.equal(bench, first.double() + other.double())


def test_error_of_the_forward_stands_when_the_gradient_cannot_be_sent(msprobe: Runner, tmp_path: Path) -> None:
    (tmp_path / "shape_candidate.py").write_text("def f(n, real, a, k):\n    return real(*a, **k)[:1]\n", "utf-8")
    data = {
        "Torch.abs.0.forward": call(tensor("float32", [4], 1.0, 2.0, requires_grad=True)),
        "Torch.abs.0.backward": {"input": [tensor("float32", [4], -1.0, 1.0)], "output": []},
    }
    write_dump(tmp_path / "dump.json", data)
    args = ("-api_info", "dump.json", "-o", "out", "--device", "cpu", "--candidate", "shape_candidate:f")
    assert msprobe("acc_check", *args) == 0
    assert table(tmp_path / "out", "result")["Torch.abs.0"][1:3] == ["error", "SKIP"]


def test_names_of_dangerous_functions_are_not_called(msprobe: Runner, tmp_path: Path) -> None:
    target = tmp_path / "written.bin"
    data = {
        "Torch.from_file.0.forward": call(
            {"type": "str", "value": str(target)}, {"type": "bool", "value": True}, {"type": "int", "value": 8}
        ),
        "Torch.save.0.forward": call({"type": "int", "value": 1}, {"type": "str", "value": str(target)}),
        "Torch.hub.0.forward": call(),
        "Torch.os.system.0.forward": call({"type": "str", "value": f"touch {target}"}),
        "Functional.importlib.0.forward": call({"type": "str", "value": "os"}),
        "Tensor.__reduce_ex__.0.forward": call(tensor("float32", [1], 0.0, 1.0), {"type": "int", "value": 2}),
    }
    write_dump(tmp_path / "dump.json", data)
    assert msprobe("acc_check", "-api_info", "dump.json", "-o", "out", "--device", "cpu") == 0
    rows = table(tmp_path / "out", "result")
    assert len(rows) == len(data) and all(r[1] == "SKIP" and "may not be called" in r[3] for r in rows.values())
    assert not target.exists()


def test_data_files_outside_the_dump_are_refused(msprobe: Runner, tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "secret.pt")
    (tmp_path / "d" / "dump_tensor_data").mkdir(parents=True)
    leaf = tensor("float32", [2], 0.0, 1.0)
    data = {
        "Torch.abs.0.forward": call(leaf | {"data_name": "../../secret.pt"}),
        "Torch.abs.1.forward": call(leaf | {"data_name": str(tmp_path / "secret.pt")}),
    }
    write_dump(tmp_path / "d" / "dump.json", data, dump_data_dir="anything")
    assert msprobe("acc_check", "-api_info", "d/dump.json", "-o", "out", "--device", "cpu") == 0
    rows = table(tmp_path / "out", "result")
    assert "outside" in rows["Torch.abs.0"][3] and rows["Torch.abs.1"][1] == "SKIP"


SLOW = """
import time
def f(name, real, args, kwargs):
    time.sleep(0.05)
    return real(*args, **kwargs)
"""


def start(tmp_path: Path, *args: object) -> subprocess.Popen[str]:
    """The command in a process of its own, with a candidate that takes its time."""
    (tmp_path / "slow_candidate.py").write_text(SLOW, "utf-8")
    paths = [str(tmp_path), str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "msprobe", "acc_check", *(str(a) for a in args), "--candidate", "slow_candidate:f"]
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        # One thread: the order of sums in convolutions depends on their number.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(process: subprocess.Popen[str], folder: Path, count: int) -> Path:
    """Until the result file holds so many lines."""
    while True:
        assert process.poll() is None, process.communicate()[1]
        for path in folder.glob("*result*.csv"):
            if path.read_bytes().count(b"\r\n") >= count:
                return path
        time.sleep(0.01)


CONV = DATA / "run_conv_stats" / "dump.json"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupts_keep_what_is_done(number: int, status: int, tmp_path: Path) -> None:
    process = start(tmp_path, "-api_info", CONV, "-o", "out", "--device", "cpu")
    wait_for_rows(process, tmp_path / "out", 3)
    process.send_signal(number)
    assert process.communicate()[1].count("Traceback") == 0
    assert process.returncode == status
    assert len(table(tmp_path / "out", "result")) >= 2
    (summary,) = (tmp_path / "out").glob("*summary*")
    assert json.loads(summary.read_text("utf-8"))["complete"] is False


def test_killed_runs_go_on_to_the_same_files(tmp_path: Path) -> None:
    def finish(*args: object) -> None:
        process = start(tmp_path, "-api_info", CONV, "--device", "cpu", *args)
        assert process.communicate()[1].count("Traceback") == 0
        assert process.returncode == 0

    finish("-o", "whole")
    process = start(tmp_path, "-api_info", CONV, "-o", "out", "--device", "cpu")
    result = wait_for_rows(process, tmp_path / "out", 2)
    for rows in (4, 7):
        process.kill()
        process.communicate()
        process = start(tmp_path, "-api_info", CONV, "--device", "cpu", "-csv_path", result)
        wait_for_rows(process, tmp_path / "out", rows)
    process.kill()
    process.communicate()
    finish("-csv_path", result)
    for kind in ("result", "details"):
        assert table(tmp_path / "out", kind) == table(tmp_path / "whole", kind)
