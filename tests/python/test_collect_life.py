"""Life of a debugger: switch at run time, API lists, checks, requests, record(), reset, seed_all (dump.md 2, 18)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from capture_tools import debugger, read_step, record, write_config
from torch import nn

import msprobe.pytorch
from msprobe import _core
from msprobe.errors import ConfigError, MsprobeError
from msprobe.pytorch import PrecisionDebugger, seed_all


@pytest.fixture(autouse=True)
def fresh():
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


def steps_of(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "dump").glob("step*"))


def one_step(tool, run=lambda: torch.ones(2).abs()):
    tool.start()
    run()
    tool.stop()
    tool.step()


# ---- dump_enable


def test_collect_switch_is_read_again_between_steps(tmp_path):
    config = write_config(tmp_path, "L1", dump_enable=False)
    tool = PrecisionDebugger(config_path=config)
    one_step(tool)
    assert steps_of(tmp_path) == []
    write_config(tmp_path, "L1", dump_enable=True)
    one_step(tool)
    write_config(tmp_path, "L1", dump_enable=True, section={"list": ["nothing"]})
    one_step(tool)
    write_config(tmp_path, "L1", dump_enable=False)
    one_step(tool)
    assert steps_of(tmp_path) == ["step1", "step2"]
    assert read_step(tmp_path, 1).names == ["Tensor.abs.0.forward"]
    assert read_step(tmp_path, 2).names == []
    assert not list((tmp_path / "dump").glob("replaced-*"))  # it is one run all the time


def test_collect_switch_stacks_no_patches(tmp_path):
    function, method = torch.nn.functional.relu, torch.Tensor.__add__
    code = function.__code__
    config = write_config(tmp_path, "mix", dump_enable=True)
    tool = PrecisionDebugger(config_path=config)
    model = nn.Sequential(nn.ReLU())
    for k in range(4):
        write_config(tmp_path, "mix", dump_enable=True, buffer_size=65536 + k)
        tool.start(model)
        model(torch.ones(2))
        tool.stop()
        tool.step()
        assert function.__code__ is code and torch.Tensor.__add__ is method
        assert read_step(tmp_path, k).names == ["Functional.relu.0.forward", "Module.0.ReLU.forward.0"]
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks


def test_collect_a_wrong_file_switches_off_until_it_is_right(tmp_path, capsys):
    config = write_config(tmp_path, "L1", dump_enable=True)
    tool = PrecisionDebugger(config_path=config)
    one_step(tool)
    Path(config).write_text("{")
    one_step(tool)
    one_step(tool)
    write_config(tmp_path, "L1", dump_enable=True)
    one_step(tool)
    assert steps_of(tmp_path) == ["step0", "step3"]
    assert capsys.readouterr().out.count("is wrong; nothing is collected") == 1


def test_collect_without_the_key_the_file_is_never_read_again(tmp_path):
    config = write_config(tmp_path, "L1")
    tool = PrecisionDebugger(config_path=config)
    Path(config).write_text("{")
    one_step(tool)
    assert steps_of(tmp_path) == ["step0"]


def test_collect_a_key_that_was_taken_away_keeps_its_value(tmp_path):
    config = write_config(tmp_path, "L1", dump_enable=False)
    tool = PrecisionDebugger(config_path=config)
    write_config(tmp_path, "L1")
    one_step(tool)
    write_config(tmp_path, "L1", dump_enable=True)
    one_step(tool)
    assert steps_of(tmp_path) == ["step1"]


# ---- which APIs


def test_collect_api_list_adds_and_removes(tmp_path):
    module = types.ModuleType("kernels_of_mine")
    module.twice = lambda x: torch.add(x, x)
    sys.modules["kernels_of_mine"] = module
    original = module.twice
    try:
        lists = {"add": {"kernels_of_mine": ["twice"]}, "remove": ["Functional.relu", "mul"]}

        def run():
            x = torch.ones(2)
            module.twice(x)
            torch.add(x, x)
            torch.mul(x, x)
            torch.nn.functional.relu(x)

        dump = record(tmp_path, "L1", run, api_list=lists)
        assert dump.names == ["kernels_of_mine.twice.0.forward", "Torch.add.0.forward"]
        assert dump.header["msprobe"]["counts"]["filtered"] == 2
        assert module.twice is original
    finally:
        del sys.modules["kernels_of_mine"]


def test_collect_api_list_names_what_is_not_there(tmp_path, capsys):
    lists = {"add": {"no.such.module": ["f"]}, "remove": ["Functional.rellu"]}
    record(tmp_path, "L1", lambda: torch.ones(2).abs(), api_list=lists)
    out = capsys.readouterr().out
    assert "there is no function no.such.module.f" in out
    assert 'api_list.remove: "Functional.rellu" is no API that is recorded' in out


def test_collect_operators_of_a_namespace(tmp_path):
    library = torch.library.Library("collectlib", "DEF")
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CPU")
    packet = torch.ops.collectlib.triple
    dump = record(
        tmp_path,
        "L1",
        lambda: (torch.ops.collectlib.triple(torch.ones(2)), torch.ops.collectlib.triple.default(torch.ones(2))),
        custom_op_namespaces=["collectlib"],
    )
    assert "collectlib.triple.0.forward" in dump.names
    assert dump.data["collectlib.triple.0.forward"]["output"][0]["Max"] == 3.0
    assert torch.ops.collectlib.triple is packet


# ---- checks


def test_collect_nan_check_sees_an_overflow_before_a_nested_call(tmp_path):
    module = types.SimpleNamespace()

    def outer(x):
        big = x.new_full((2,), 3e38) * 10  # overflows here
        torch.add(x, x)  # a nested call that is finite
        return big

    module.outer = outer
    with debugger(tmp_path, "L1", task="nan_check") as tool:
        tool.register_custom_api(module, "outer", "Mine")
        tool.start()
        module.outer(torch.ones(2))
        torch.add(torch.ones(2), 1)
        tool.stop()
        tool.step()
        tool.restore_custom_api(module, "outer")
    dump = read_step(tmp_path)
    assert {n: v["is_nan"] for n, v in dump.data.items()} == {"Mine.outer.0.forward": 1, "Torch.add.0.forward": 0}


def test_collect_overflow_check_saves_the_values_of_the_moment(tmp_path):
    x = torch.tensor([1.0, 1e38])
    with debugger(tmp_path, "L1", task="overflow_check") as tool:
        tool.start()
        torch.add(x, 1.0)
        y = torch.mul(x, 100.0)
        y.zero_()
        x.zero_()
        tool.stop()
        tool.step()
    dump = read_step(tmp_path)
    assert dump.names == ["Torch.mul.0.forward"]
    folder = tmp_path / "dump/step0/rank/dump_tensor_data"
    assert torch.load(folder / "Torch.mul.0.forward.output.0.pt").tolist() == [100.0, float("inf")]
    assert torch.load(folder / "Torch.mul.0.forward.input.0.pt").tolist() == [1.0, pytest.approx(1e38)]


def test_collect_tasks_of_other_releases_are_refused_with_a_sentence(tmp_path):
    for task, sentence in (
        ("free_benchmark", "run the pre-check on the dump"),
        ("grad_probe", "parameter gradients are recorded"),
        ("run_ut", "collects nothing"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            PrecisionDebugger(config_path=write_config(tmp_path, "L1", task=task))


def test_collect_high_precision_has_all_four_statistics(tmp_path):
    x = torch.full((1000,), 300.0, dtype=torch.float16)
    for precision in ("low", "high"):
        (tmp_path / precision).mkdir()
        leaf = record(tmp_path / precision, "L1", lambda: x.abs(), precision=precision).data["Tensor.abs.0.forward"]
        leaf = leaf["input_args"][0]
        # 300 * sqrt(1000); the sum of squares, 9e7, is far outside float16.
        assert (leaf["Max"], leaf["Min"], leaf["Mean"]) == (300.0, 300.0, 300.0)
        assert leaf["Norm"] == pytest.approx(9486.832980505138, rel=1e-12)


def test_collect_difference_check(tmp_path):
    w = torch.arange(6.0).reshape(2, 3)

    def run(scale):
        a = torch.add(w, 1.0)
        torch.mul(a, scale)

    before = tmp_path / "before"
    before.mkdir()
    record(before, "L1", lambda: run(2.0), section={"summary_mode": "md5"})
    section = {"summary_mode": "md5", "bench_path": str(before / "dump"), "diff_nums": 1}
    after = tmp_path / "after"
    after.mkdir()
    # The same contents in another memory order, and another scalar, which has no checksum: mul differs.
    w = torch.arange(6.0).reshape(2, 3).t().contiguous().t()
    dump = record(after, "L1", lambda: run(3.0), task="tensor", section=section)
    files = sorted(p.name for p in (after / "dump/step0/rank/dump_tensor_data").iterdir())
    assert files == ["Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt"]
    assert dump.names == ["Torch.add.0.forward", "Torch.mul.0.forward"]


# ---- requests, record, reset, names of other releases


def test_collect_requests_are_rows_of_the_batch(tmp_path, capsys):
    batch = torch.arange(6.0).reshape(6, 1)
    with debugger(tmp_path, "L1", section={"request_id": "b"}) as tool:
        tool.start(scheduled_tokens={"a": 2, "b": 3, "c": 1})
        batch.abs()
        tool.stop()
        tool.step()
        tool.start(scheduled_tokens=["b"])
        batch.abs()
        tool.stop()
        tool.step()
    leaf = read_step(tmp_path, 0).data["Tensor.abs.0.forward"]["input_args"][0]
    assert (leaf["shape"], leaf["Min"], leaf["Max"]) == ([3, 1], 2.0, 4.0)
    assert read_step(tmp_path, 1).data["Tensor.abs.0.forward"]["input_args"][0]["shape"] == [6, 1]
    assert "a dict of request id to number of tokens was expected" in capsys.readouterr().out


def test_collect_record_is_one_step_also_when_the_body_raises(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    with debugger(tmp_path, "L0") as tool:
        with tool.record(model):
            model(torch.ones(1, 2))
        with pytest.raises(ZeroDivisionError), tool.record(model):
            model(torch.ones(1, 2))
            _ = 1 / 0
        assert not tool._recorder.running
    for step in (0, 1):
        assert read_step(tmp_path, step).names == ["Module.0.Linear.forward.0"]


def test_collect_reset_allows_another_debugger(tmp_path):
    first = PrecisionDebugger(dump_path=str(tmp_path / "a"), level="L1")
    first.start()
    torch.ones(2).abs()
    PrecisionDebugger.reset()
    assert json.loads((tmp_path / "a/step0/rank/dump.json").read_text())["msprobe"]["complete"] is True
    with pytest.raises(MsprobeError, match="no PrecisionDebugger instance exists"):
        PrecisionDebugger.stop()
    second = PrecisionDebugger(dump_path=str(tmp_path / "b"), level="L1")
    assert second is not first
    one_step(second)
    assert (tmp_path / "b/step0/rank/dump.json").exists()
    assert not [p for p in tmp_path.rglob(".msprobe*") if "/b/" not in str(p)]


def test_collect_unwritable_folder_never_reaches_the_training(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    tool = PrecisionDebugger(dump_path=str(tmp_path / "file" / "dump"), level="L1")
    for _ in range(3):
        one_step(tool)
    PrecisionDebugger.reset()
    out = capsys.readouterr().out
    assert out.count("[ERROR]") == 1 and "step 0 is not collected" in out
    assert "3 steps were not collected" in out


def test_collect_names_of_other_releases_can_be_imported():
    assert msprobe.pytorch.acl_save is None and msprobe.pytorch.AclGraphDumper is None
    for name in ("TrainerMon", "set_fx_dump_config", "set_ge_dump_config"):
        with pytest.raises(MsprobeError, match=f"{name}: .* not part of this tool"):
            getattr(msprobe.pytorch, name)()
    assert not hasattr(msprobe.pytorch, "no_such_name")


# ---- seed_all


def test_collect_seed_all_restores_what_it_set(monkeypatch, capsys):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    dropout, rand = torch.nn.functional.dropout, torch.rand
    settings = seed_all(7, mode=True, rm_dropout=True, is_enhanced=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.nn.functional.dropout(torch.ones(100)).eq(1).all()
    assert torch.rand(3).tolist() == torch.rand(3).tolist()
    assert "deterministic algorithms are on" in capsys.readouterr().out
    settings.restore()
    settings.restore()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.nn.functional.dropout is dropout and torch.rand is rand
    assert "PYTHONHASHSEED" not in os.environ
    assert settings.changes == []


def test_collect_seed_all_never_weakens_the_programs_own_settings():
    torch.use_deterministic_algorithms(True)
    try:
        settings = seed_all(3)
        assert torch.are_deterministic_algorithms_enabled()
        settings.restore()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    seed_all(3)
    second = (random.random(), numpy.random.rand(), torch.rand(1).item())
    seed_all(3)
    assert (random.random(), numpy.random.rand(), torch.rand(1).item()) == second


# ---- what other tests do not show


def test_collect_gradients_after_stop_of_apis_and_modules_are_kept(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    with debugger(tmp_path, "mix") as tool:
        tool.start(model)
        loss = model(torch.ones(1, 2)).sum()
        tool.stop()
        loss.backward()
        tool.step()
    names = read_step(tmp_path).names
    assert {"Functional.linear.0.backward", "Module.0.Linear.backward.0"} <= set(names)


def test_collect_stopped_debugger_leaves_nothing_in_the_way(tmp_path):
    before = dict(vars(torch.Tensor))
    functions = {name: getattr(nn.functional, name) for name in dir(nn.functional)}
    codes = {name: f.__code__ for name, f in functions.items() if isinstance(f, types.FunctionType)}
    model = nn.Sequential(nn.Linear(2, 2))
    with debugger(tmp_path, "mix") as tool:
        with tool.record(model):
            model(torch.ones(1, 2))
        assert torch._C._len_torch_function_stack() == 0
        assert dict(vars(torch.Tensor)) == before
        assert all(functions[name].__code__ is code for name, code in codes.items())
        for module in model.modules():
            hooks = [v for k, v in vars(module).items() if k.endswith("_hooks") or k.endswith("_pre_hooks")]
            assert hooks and not any(hooks)


def written_bytes() -> int:
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["wchar"])


def test_collect_writes_each_entry_once(tmp_path):
    """What is written grows with the entries, not with their square."""
    x = torch.ones(3)
    cost = {}
    for calls in (2000, 8000):
        folder = tmp_path / str(calls)
        folder.mkdir()
        with debugger(folder, "L1", buffer_size=65536) as tool:
            tool.start()
            begin = written_bytes()
            for _ in range(calls):
                torch.add(x, 1)
            tool.stop()
            cost[calls] = written_bytes() - begin
            tool.step()
        size = (folder / "dump/step0/rank/dump.json").stat().st_size
        assert 0.9 * size < cost[calls] < 1.5 * size
    assert 3.8 < cost[8000] / cost[2000] < 4.3


def test_collect_tensor_files_are_for_the_cpu(tmp_path):
    record(tmp_path, "L1", lambda: torch.ones(2, 3).t().abs(), task="tensor")
    folder = tmp_path / "dump/step0/rank/dump_tensor_data"
    with zipfile.ZipFile(folder / "Tensor.abs.0.forward.input.0.pt") as archive:
        pickle = archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
    assert b"cpu" in pickle and b"cuda" not in pickle
    assert torch.load(folder / "Tensor.abs.0.forward.input.0.pt", weights_only=True).shape == (3, 2)


DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.mark.parametrize("kind", ["compare", "compare_cli"])
def test_collect_recorded_dumps_of_other_releases_are_read_back(kind):
    read = 0
    for path in sorted((DATA / kind).rglob("dump.json")):
        try:
            expected = json.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError:
            continue  # broken on purpose
        if not isinstance(expected, dict) or not isinstance(expected.get("data"), dict):
            continue
        got = _core.precheck_read_dump(str(path))
        assert list(got["data"]) == list(expected["data"]), path
        assert not got["tear"]
        read += 1
    assert read > 10


def test_collect_a_dump_of_a_newer_format_is_read_with_a_warning(tmp_path):
    record(tmp_path, "L1", lambda: torch.ones(2).abs())
    path = tmp_path / "dump/step0/rank/dump.json"
    dump = json.loads(path.read_text())
    dump["msprobe"]["format_version"] = 99
    dump["msprobe"]["of_the_future"] = {"x": [1]}
    dump["data"]["Tensor.abs.0.forward"]["of_the_future"] = True
    dump["data"]["Tensor.abs.0.forward"]["output"][0]["of_the_future"] = None
    path.write_text(json.dumps({"of_the_future": 1, **dump}))
    command = [sys.executable, "-m", "msprobe", "compare", "-tp", path, "-gp", path, "-o", tmp_path / "report"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "99" in run.stderr and "newer" in run.stderr
