"""Every command of tests/data/precheck/cli.yaml ends as it says: exit status, no files after a refusal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from precheck_golden import table
from precheck_support import Runner, call, msprobe, tensor

__all__ = ["msprobe"]  # a fixture

DATA = Path(__file__).resolve().parents[1] / "data" / "precheck"
CASES = yaml.safe_load((DATA / "cli.yaml").read_text(encoding="utf-8"))["cases"]
LISTS = json.loads((DATA / "run_lists" / "dump.json").read_text(encoding="utf-8"))
STAMP = "20260101000000"


def make_inputs(case: dict[str, Any], folder: Path) -> None:
    """dump.json, config.json and the result of an earlier run, as the case describes them."""
    document = LISTS | case.get("change", {})
    for key in [k for k, v in case.get("change", {}).items() if v is None]:
        del document[key]
    if "data_keys" in case:
        document["data"] = {key: call(tensor("float32", [4], -1.0, 1.0)) for key in case["data_keys"]}
    if "data" in case:
        document["data"] = error_data_calls()
    (folder / "dump.json").write_text(case.get("text") or json.dumps(document), "utf-8")
    section = case.get("config")
    config = {"task": case.get("task", "statistics")} | ({} if section is None else {"run_ut": section})
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    if "result_csv" in case:
        name = str(case["result_csv"]).split()[0]
        rows = "API name,Forward Test Success,Backward Test Success,Message\r\nTorch.sin.1,SKIP,SKIP,out of memory\r\n"
        (folder / name).write_text(rows, "utf-8")
        if case["id"] == "resume":
            titles = (DATA / "compare_ulp" / "npu.csv").read_text("utf-8-sig").splitlines()[0]
            row = "Torch.sin.1.forward.output.0" + ", " * 20 + ",SKIP,out of memory"
            (folder / name.replace("result", "details")).write_text(f"{titles}\r\n{row}\r\n", "utf-8")


def error_data_calls() -> dict[str, Any]:
    whole = tensor("int16", [4], 0, 9)
    real = tensor("float32", [4], -1.0, 1.0)
    return {
        "Torch.abs.0.forward": call(whole),
        "Torch.sin.0.forward": call(real),
        "Torch.add.0.forward": call(whole, other=whole),
        "Torch.max.0.forward": call(real | {"requires_grad": True}, 0),
        "Torch.max.0.backward": {"input": [tensor("float32", [], 0.5, 0.5)], "output": []},
    }


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_commands_end_as_recorded(
    case: dict[str, Any], msprobe: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if case.get("real_device") and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    make_inputs(case, tmp_path)
    words = {"DUMP": "dump.json", "OUT": "out", "CONFIG": "config.json"}
    words["RESULT"] = str(case.get("result_csv", "")).split()[0] if case.get("result_csv") else ""
    args = [words.get(str(a), a) for a in case["args"]]
    if not case.get("real_device") and "DUMP" in case["args"]:
        args += ["--device", "cpu"]
    before = set(tmp_path.rglob("*.csv"))
    name = {"multi": "multi_acc_check", "old": "run_ut"}.get(case.get("command", ""), case.get("command", "acc_check"))
    status = msprobe(name, *args)
    err = capfd.readouterr().err
    assert (status, "Traceback" in err) == (case["ours"], False), err
    if case["ours"] == 2:
        assert err.count("msprobe: error:") >= 1
        assert set(tmp_path.rglob("*.csv")) == before
    elif "OUT" in case["args"] and case["id"] not in ("resume",):
        rows = table(tmp_path / "out", "result")
        assert {row[1] for row in rows.values()} <= {"pass", "SKIP"}
        assert not list(tmp_path.glob("ut_error_data*/*"))


def test_without_pytorch_the_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libgone.so: not found', name='torch')")
    (tmp_path / "dump.json").write_text('{"data": {}}')
    paths = os.pathsep.join([str(tmp_path), *(str(Path(p).resolve()) for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-m", "msprobe", "acc_check", "-api_info", "dump.json", "--device", "cpu"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("msprobe: error: acc_check needs PyTorch and NumPy, and torch cannot be imported: ")
    assert "libgone.so" in done.stderr
    assert len(done.stderr.splitlines()) == 1
