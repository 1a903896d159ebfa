"""Interception: what is recorded, how calls are named, and that nothing of it stays behind."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys
import threading
import types
import weakref
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from capture_tools import debugger, read_step, record
from torch import nn
from torch import relu as early_relu
from torch.utils.checkpoint import checkpoint

from msprobe.errors import ConfigError, MsprobeError
from msprobe.pytorch import PrecisionDebugger

OWNERS = (torch, torch.Tensor, torch.nn.functional, torch.overrides, torch.distributed, torch.functional, torch._VF)


def surroundings() -> dict[str, object]:
    """Every attribute of torch's public places and the code of every function there."""
    seen: dict[str, object] = {"thread": threading.Thread._bootstrap_inner, "compile": torch.compile}
    for owner in OWNERS:
        for name, value in vars(owner).items():
            seen[f"{owner.__name__}.{name}"] = value
            if isinstance(value, types.FunctionType):
                seen[f"{owner.__name__}.{name}.code"] = value.__code__
                seen[f"{owner.__name__}.{name}.dict"] = tuple(value.__dict__.items())
    return seen


def test_capture_early_import_is_recorded_and_originals_are_back_after_stop(tmp_path):
    before = surroundings()
    x = torch.randn(3)
    with debugger(tmp_path, "mix") as tool:
        assert surroundings() == before  # construction touches nothing
        tool.start(nn.Sequential(nn.Linear(1, 1)))
        during = surroundings()
        early_relu(x)
        tool.stop()
        after = surroundings()
        tool.step()
    assert read_step(tmp_path).names == ["Torch.relu.0.forward"]
    assert during != before
    changed = [
        k for k in before.keys() | after.keys() if before.get(k) is not after.get(k) and before.get(k) != after.get(k)
    ]
    assert changed == []
    assert torch._C._len_torch_function_stack() == 0


# ruff: noqa: B015, B018 (expressions are the point of the next test)


def test_capture_names_operators_as_they_are_written(tmp_path):
    x, y = torch.tensor([1.5, 2.0]), torch.tensor([0.5, 3.0])
    a, b = torch.tensor([True, False]), torch.tensor([True, True])
    one = torch.tensor(True)

    def run() -> None:
        x + 1
        1 + x
        x * y
        2 * x
        x @ y
        x - 1
        1 - x
        x / 2
        1 / x
        -x
        x**2
        2**x
        x % 2
        x // 2
        x > 0
        a & b
        z = y
        z += 1
        z[0] = 1
        x == y
        sum([x, y])
        operator.add(x, y)
        abs(x)
        ~b
        bool(one)

    assert record(tmp_path, "L1", run).calls == [
        "__add__", "__radd__", "__mul__", "__rmul__", "__matmul__", "__sub__", "__rsub__", "__truediv__",
        "reciprocal", "__mul__", "__pow__", "__rpow__", "__mod__", "__floordiv__", "__gt__", "__and__", "__iadd__",
        "__setitem__", "__eq__", "__radd__", "__add__", "__add__", "__bool__",
    ]  # fmt: skip


def test_capture_arguments_are_those_that_the_modules_wrote(tmp_path):
    layers = {
        "layer_norm": (nn.LayerNorm(4), torch.randn(2, 4), 5),
        "embedding": (nn.Embedding(3, 4), torch.tensor([1, 2]), 7),
        "batch_norm": (nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4), 8),
        "max_pool2d": (nn.MaxPool2d(2), torch.randn(1, 1, 4, 4), 5),
        "dropout": (nn.Dropout(0.5), torch.randn(3), 4),
    }
    dump = record(tmp_path, "L1", lambda: [m(x) for m, x, _ in layers.values()])
    counts = {n: len(dump.data[f"Functional.{n}.0.forward"]["input_args"]) for n in layers}
    assert counts == {n: count for n, (_, _, count) in layers.items()}
    assert F.max_pool2d.__code__.co_name != "run"


def test_capture_goes_on_after_an_api_that_raised(tmp_path):
    def run() -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
        with pytest.raises(RuntimeError):
            F.linear(torch.ones(2, 3), torch.ones(2, 2))
        torch.exp(torch.ones(2))
        torch.matmul(torch.ones(2, 3), torch.ones(3, 2))

    dump = record(tmp_path, "L1", run)
    assert dump.names == ["Torch.exp.0.forward", "Torch.matmul.0.forward"]
    assert set(dump.stack) == set(dump.names)


def test_capture_error_of_ours_reaches_the_log_and_never_the_script(tmp_path, capsys):
    class Hostile:
        def __torch_function__(self):  # not a tensor: an attribute that looks like one must not matter
            raise AssertionError

        @property
        def wait(self):
            raise RuntimeError("looked at")

        def __repr__(self):
            raise RuntimeError("printed")

    @torch.overrides.wrap_torch_function(lambda x, **_: (x,))
    def unlisted(x, **_):
        return x

    class BadDict(dict):
        pass

    odd = BadDict({(1, 2): 3, Hostile(): 4, 5: "five", "5": 6, None: 7, True: 8})
    listed: list = [1]
    listed.append(listed)

    class Api:
        @staticmethod
        def call(*args, **kwargs):
            return args

    with debugger(tmp_path, "L1") as tool:
        tool.register_custom_api(Api, "call")
        tool.start()
        result = Api.call(Hostile(), odd, listed, 3 + 4j, 10**30, 10**5000, b"bytes", {1, 2}, range(3))
        tool.stop()
        tool.step()
    assert isinstance(result[0], Hostile)
    entry = read_step(tmp_path).data["Api.call.0.forward"]
    args = entry["input_args"]
    assert args[0] is None and "Hostile" in entry["absent"]["input.0"]["reason"]
    assert args[1]["5"] == {"type": "int", "value": 6}
    assert {"type": "str", "value": "five"} in args[1].values()
    assert args[1]["null"] == {"type": "int", "value": 7} and args[1]["(1, 2)"] == {"type": "int", "value": 3}
    assert args[2] == [{"type": "int", "value": 1}, None]
    assert args[4] == {"type": "int", "value": 10**30}
    assert args[5] is None and "too long" in entry["absent"]["input.5"]["reason"]
    for i, name in ((3, "complex"), (6, "bytes"), (7, "set"), (8, "range")):
        assert args[i] is None and name in entry["absent"][f"input.{i}"]["reason"]


def test_capture_inference_encoder_keeps_its_fused_path(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        want = layer(x)
        got: list[torch.Tensor] = []
        record(tmp_path, "mix", lambda: got.append(layer(x)), nn.Sequential(layer))
    assert torch.equal(got[0], want)


def test_capture_in_place_relu_after_batch_norm_has_gradients_of_both(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
    x = torch.randn(5, 4)
    dump = record(tmp_path, "L0", lambda: model(x).sum().backward(), model)
    relu = dump.data["Module.2.ReLU.backward.0"]
    assert relu["input"][0]["Max"] == 1.0 == relu["input"][0]["Min"]  # d(sum)/d(output)
    assert relu["output"][0]["shape"] == [5, 4]
    assert dump.data["Module.1.BatchNorm1d.backward.0"]["input"][0]["shape"] == [5, 4]


def test_capture_compiled_model_runs_eagerly_and_the_stance_is_restored(tmp_path):
    import torch._dynamo.eval_frame as frame

    compiled = torch.compile(lambda x: torch.relu(x * 2), backend="eager", fullgraph=True)
    x = torch.randn(3)
    want = compiled(x)
    stance = frame._stance
    with debugger(tmp_path, "L1") as tool:
        tool.start()
        got = compiled(x)
        assert frame._stance.stance == "force_eager"
        tool.stop()
        tool.step()
    assert frame._stance == stance
    assert torch.equal(got, want)
    assert read_step(tmp_path).calls == ["__mul__", "relu"]


def test_capture_thread_started_while_recording_is_seen(tmp_path):
    class Worker(threading.Thread):
        def run(self) -> None:
            torch.exp(torch.ones(2))
            F.relu(torch.ones(2))

    def run() -> None:
        for t in (Worker(), threading.Thread(target=lambda: torch.sin(torch.ones(2)))):
            t.start()
            t.join()
        torch.cos(torch.ones(2))

    assert record(tmp_path, "L1", run).calls == ["exp", "relu", "sin", "cos"]


def test_capture_forked_child_records_nothing_and_leaves_the_parents_files(tmp_path):
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
import torch
from msprobe.pytorch import PrecisionDebugger
tool = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, task="statistics", level="L1")
tool.start()
torch.exp(torch.ones(2))
child = os.fork()
if child == 0:
    torch.sin(torch.ones(2))
    code = torch._C._len_torch_function_stack()
    sys.exit(code)     # with the exit handlers
assert os.waitpid(child, 0)[1] == 0
torch.cos(torch.ones(2))
tool.stop()
tool.step()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert read_step(tmp_path).calls == ["exp", "cos"]


# torch refuses autograd.grad through a reentrant checkpoint.
@pytest.mark.parametrize(("reentrant", "by"), [(True, "backward"), (False, "backward"), (False, "grad")])
def test_capture_checkpoint_recomputation_is_recorded(tmp_path, reentrant, by):
    x = torch.randn(4, 4, requires_grad=True)

    def run() -> None:
        loss = checkpoint(lambda a: torch.exp(torch.relu(a * 2)), x, use_reentrant=reentrant).sum()
        if by == "backward":
            loss.backward()
        else:
            torch.autograd.grad(loss, x)

    names = record(tmp_path, "L1", run).names
    assert {"Torch.relu.0.forward", "Torch.relu.1.forward", "Tensor.__mul__.1.forward"} <= set(names)


def test_capture_keeps_no_tensor_and_no_graph_alive(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    alive: list[weakref.ref] = []

    def run() -> None:
        x = torch.randn(2, 4, requires_grad=True)
        y = model(x)
        alive.extend(weakref.ref(t) for t in (x, y))
        y.sum().backward()

    with debugger(tmp_path, "mix") as tool:
        tool.start(model)
        run()
        assert [r() for r in alive] == [None, None]
        alive.clear()
        x = torch.randn(2, 4, requires_grad=True)
        alive.append(weakref.ref(model(x)))  # a graph that no backward ever uses
        assert [r() for r in alive] == [None]
        tool.stop()
        tool.step()


def test_capture_modules_can_be_copied_and_pickled_while_hooked(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.randn(1, 2)
    with debugger(tmp_path, "mix") as tool:
        tool.start(model)
        copy, loaded = deepcopy(model), pickle.loads(pickle.dumps(model))
        tool.stop()
        assert torch.equal(copy(x), model(x)) and torch.equal(loaded(x), model(x))
    for m in model.modules():
        assert not m._forward_hooks and not m._forward_pre_hooks and not m._forward_hooks_with_kwargs
        assert all(p._post_accumulate_grad_hooks is None for p in m.parameters())


def test_capture_swapped_functions_keep_identity_and_signature(tmp_path):
    import inspect

    before = F.softmax, inspect.signature(F.softmax)
    with debugger(tmp_path, "L1") as tool:
        tool.start()
        assert F.softmax is before[0] and inspect.signature(F.softmax) == before[1]
        assert torch.Tensor.__add__.__name__ in ("__add__", "add")
        tool.stop()


def test_capture_user_modes_and_device_contexts_work_around_start_and_stop(tmp_path):
    class Counting(torch.overrides.TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with debugger(tmp_path, "L1") as tool:
        with Counting() as outer:
            tool.start()
            torch.exp(x)
        assert outer.seen == 1
        with torch.device("cpu"), Counting() as inner:
            torch.sin(x)
            tool.stop()
            torch.cos(x)
        assert inner.seen == 2  # exactly the user's calls: nothing of ours passes through
        assert torch._C._len_torch_function_stack() == 0
        tool.step()
    assert read_step(tmp_path).calls == ["exp", "sin"]


def test_capture_dropout_with_probability_zero_has_no_backward_entry(tmp_path):
    x = torch.randn(3, requires_grad=True)

    def run() -> None:
        (F.dropout(x * 1, 0.0) + F.dropout(x * 1, p=0) + F.dropout(x * 1, 0.5)).sum().backward()

    names = record(tmp_path, "L1", run).names
    assert [n for n in names if "dropout" in n] == [
        "Functional.dropout.0.forward",
        "Functional.dropout.1.forward",
        "Functional.dropout.2.forward",
        "Functional.dropout.2.backward",
    ]


def test_capture_gradient_of_a_cast_that_hands_its_input_on_is_its_own(tmp_path):
    """Its result hangs at the node of the call before: gradients on the far side of that node are not the cast's."""
    x = torch.randn(3, requires_grad=True)

    def run() -> None:
        ((x * 2).float() * torch.tensor([1.0, 2.0, 3.0])).sum().backward()

    entry = record(tmp_path, "L1", run).data["Tensor.float.0.backward"]
    (received,), (passed_on,) = entry["input"], entry["output"]
    assert (received["Max"], received["Min"], received["Mean"]) == (3.0, 1.0, 2.0)
    assert (passed_on["Max"], passed_on["Min"], passed_on["Mean"]) == (3.0, 1.0, 2.0)


def test_capture_stack_lines_show_the_callers_source(tmp_path):
    def run() -> None:
        torch.exp(torch.ones(2))  # the line to be found

    lines = record(tmp_path, "L1", run).stack["Torch.exp.0.forward"]
    number = run.__code__.co_firstlineno + 1
    assert lines[0] == (f"File {__file__}, line {number}, in run, \n torch.exp(torch.ones(2))  # the line to be found")
    assert not any("msprobe/pytorch" in line or "overrides.py" in line for line in lines)


def test_capture_second_debugger_is_the_first(tmp_path, capsys):
    with debugger(tmp_path, "L1") as tool:
        again = PrecisionDebugger(level="L0", dump_path=str(tmp_path / "dump"))
        assert again is tool
        assert "level" in capsys.readouterr().out
    with pytest.raises(MsprobeError, match="no PrecisionDebugger"):
        PrecisionDebugger.start()


def test_capture_failed_construction_leaves_nothing_behind(tmp_path):
    PrecisionDebugger.reset()
    with pytest.raises(ConfigError):
        PrecisionDebugger(config_path=str(tmp_path / "missing.json"))
    with pytest.raises(ConfigError, match="dump_path"):
        PrecisionDebugger(dump_path=5)
    with pytest.raises(MsprobeError, match="no PrecisionDebugger"):
        PrecisionDebugger.stop()


def test_capture_l0_needs_a_model(tmp_path):
    with debugger(tmp_path, "L0") as tool:
        for wrong in (None, 5, [], [5], nn.Linear):
            with pytest.raises(ConfigError, match="model"):
                tool.start(wrong)
        tool.start([nn.Linear(1, 1)])
        tool.stop()
        tool.start()  # older releases remember the last model
        tool.stop()


def test_capture_models_in_a_list_lead_with_their_index_and_a_root_without_children_is_recorded(tmp_path):
    first, second = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
    x = torch.randn(1, 2)
    in_list, alone = tmp_path / "list", tmp_path / "root"
    in_list.mkdir()
    alone.mkdir()
    dump = record(in_list, "L0", lambda: (first(x), second(x)), [first, second])
    assert dump.names == ["Module.0.0.Linear.forward.0", "Module.1.Linear.forward.0"]
    assert record(alone, "L0", lambda: second(x), second).names == ["Module.Linear.forward.0"]


def test_capture_numbers_go_on_between_stop_and_start_and_begin_anew_with_the_step(tmp_path):
    x = torch.ones(2)
    with debugger(tmp_path, "L1") as tool:
        for _ in range(2):
            tool.start()
            torch.exp(x)
            tool.stop()
            torch.exp(x)
        tool.step()
        tool.start()
        torch.exp(x)
        tool.stop()
        tool.step()
    assert read_step(tmp_path, 0).names == ["Torch.exp.0.forward", "Torch.exp.1.forward"]
    assert read_step(tmp_path, 1).names == ["Torch.exp.0.forward"]


def test_capture_backward_after_stop_belongs_to_the_step_of_its_forward(tmp_path):
    x = torch.ones(2, requires_grad=True)
    with debugger(tmp_path, "L1") as tool:
        tool.start()
        first = torch.exp(x).sum()
        tool.stop()
        first.backward()
        tool.step()
        late = torch.exp(x)
        tool.start()
        late.sum().backward()
        tool.stop()
        tool.step()
    assert "Torch.exp.0.backward" in read_step(tmp_path, 0).names
    assert not any("exp" in n for n in read_step(tmp_path, 1).names)


def test_capture_importing_msprobe_does_not_import_torch():
    script = f"import sys; sys.path[:0] = {sys.path!r}; import msprobe; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_capture_functions_of_torch_linalg_carry_their_true_path(tmp_path):
    m = torch.eye(2)
    data = record(tmp_path, "L1", lambda: (torch.linalg.norm(m), torch.norm(m), torch.linalg.inv(m))).data
    assert {n: e.get("qualified") for n, e in data.items()} == {
        "Torch.norm.0.forward": "torch.linalg.norm",
        "Torch.norm.1.forward": None,
        "Torch.inv.0.forward": "torch.linalg.inv",
    }
