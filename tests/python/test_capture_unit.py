"""One module as one unit (dump.md 2.3), recomputed calls, and the warnings at stop (decisions 16, 17)."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from capture_tools import debugger, read_step, record
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.errors import ConfigError, MsprobeError
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.second = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_capture_module_dump_records_one_unit_at_any_level(level, tmp_path):
    torch.manual_seed(0)
    net, other = Net(), nn.Linear(1, 1)
    x = torch.randn(2, 3)
    with debugger(tmp_path, level) as tool:
        tool.start(other)
        torch.relu(x)
        module_dump(net.first, "mine")
        net(x).sum().backward()
        torch.relu(x)
        module_dump_end()
        torch.sigmoid(x)
        tool.stop()
        assert not net.first._forward_hooks and not net.first._forward_pre_hooks
        assert net.first[0].weight._post_accumulate_grad_hooks is None
        tool.step()
    dump = read_step(tmp_path)
    assert dump.names == [
        "Torch.relu.0.forward",
        "Module.mine.Sequential.forward.0",
        "Module.mine.Sequential.backward.0",
        "Torch.sigmoid.0.forward",
    ]
    entry = dump.data["Module.mine.Sequential.forward.0"]
    expected = torch.tanh(F.linear(x.double(), net.first[0].weight.double(), net.first[0].bias.double()))
    assert entry["output"][0]["Mean"] == pytest.approx(expected.mean().item(), rel=1e-6)


def test_capture_module_dump_before_start_and_with_its_own_parameters(tmp_path):
    layer = nn.Linear(3, 2)
    with debugger(tmp_path, "L1") as tool:
        module_dump(layer, "a")
        tool.start()
        for _ in range(2):
            out = torch.relu(layer(torch.ones(1, 3)))
            module_dump_end()
            out.sum().backward()
            module_dump(layer, "another name")  # the first one stays
        tool.stop()
        module_dump_end()
        tool.step()
    names = read_step(tmp_path).names
    modules = [n for n in names if n.startswith("Module")]
    assert sorted(modules) == sorted(
        [f"Module.a.Linear.{part}.{i}" for i in range(2) for part in ("forward", "backward", "parameters_grad")]
    )
    assert not any(n.startswith("Torch.relu") for n in names)  # it ran inside the unit's time


def test_capture_module_dump_of_a_recorded_module_does_nothing(tmp_path, capsys):
    net = Net()
    with debugger(tmp_path, "L0") as tool:
        tool.start(net)
        module_dump(net.second, "x")
        assert "[INFO] module_dump('x'): this module is recorded already" in capsys.readouterr().out
        net(torch.ones(1, 3))
        module_dump_end()
        tool.stop()
        tool.step()
    assert "Module.second.Linear.forward.0" in read_step(tmp_path).names


def test_capture_module_dump_refuses_wrong_arguments(tmp_path):
    PrecisionDebugger.reset()
    with pytest.raises(MsprobeError, match="no PrecisionDebugger instance exists"):
        module_dump(nn.Linear(1, 1), "x")
    with pytest.raises(MsprobeError, match="no PrecisionDebugger instance exists"):
        module_dump_end()
    with debugger(tmp_path, "L1"):
        with pytest.raises(ConfigError, match=r"a torch.nn.Module was expected, got int"):
            module_dump(3, "x")
        with pytest.raises(ConfigError, match=r"a str was expected, got NoneType"):
            module_dump(nn.Linear(1, 1), None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_capture_recomputed_calls_name_the_calls_that_they_repeat(reentrant, tmp_path):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def block(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.b(torch.tanh(self.a(x))))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = checkpoint(self.block, x, use_reentrant=reentrant)
            return torch.tanh(x)

    model = Model()
    x = torch.ones(1, 3, requires_grad=True)
    dump = record(tmp_path, "mix", lambda: model(x).sum().backward(), model)
    repeats = {n: e["recompute_of"] for n, e in dump.data.items() if "recompute_of" in e}
    # Forward: tanh 0, 1 (first region), 2, 3 (second), 4 (outside). Backward: the second region runs again first.
    tanh = {f"Torch.tanh.{i}.forward": f"Torch.tanh.{j}.forward" for i, j in ((5, 2), (6, 3), (7, 0), (8, 1))}
    linear = {
        f"Functional.linear.{i}.forward": f"Functional.linear.{j}.forward" for i, j in ((4, 2), (5, 3), (6, 0), (7, 1))
    }
    modules = {
        f"Module.{m}.Linear.forward.{i}": f"Module.{m}.Linear.forward.{j}" for m in "ab" for i, j in ((2, 1), (3, 0))
    }
    expected = {**tanh, **linear, **modules}
    if not reentrant:  # torch stops a recomputation as soon as it has what it needs
        # when the last tanh saves its output, so that one never ends.
        tanh = {"Torch.tanh.5.forward": "Torch.tanh.2.forward", "Torch.tanh.6.forward": "Torch.tanh.0.forward"}
        expected = {**tanh, **linear, **modules}
    assert repeats == expected


def test_capture_calls_outside_of_checkpoints_repeat_nothing(tmp_path):
    x = torch.ones(2, requires_grad=True)
    dump = record(tmp_path, "L1", lambda: [torch.tanh(x), checkpoint(torch.tanh, x, use_reentrant=False)])
    assert [n for n, e in dump.data.items() if "recompute_of" in e] == []


def test_capture_stop_names_modules_that_were_never_called(tmp_path, capsys):
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
            self.direct = nn.ModuleList([nn.Linear(2, 2)])
            self.attention = nn.MultiheadAttention(2, 1)  # never calls its out_proj, and cannot

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(*[self.direct[0].forward(self.used(x))] * 3)[0]

    model = Odd()
    with debugger(tmp_path, "L0") as tool:
        for _ in range(2):
            tool.start(model)
            model(torch.ones(1, 2))
            tool.stop()
            tool.step()
    lines = [line for line in capsys.readouterr().out.splitlines() if "never called" in line]
    assert len(lines) == 1
    assert lines[0].endswith("is not seen): unused, direct.0")


def test_capture_stop_names_threads_that_are_older_than_start(tmp_path, capsys):
    begin, done, end = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        torch.relu(torch.ones(1))
        done.set()
        end.wait()

    threads = [threading.Thread(target=work, name="early bird"), threading.Thread(target=end.wait, name="no torch")]
    for thread in threads:
        thread.start()
    try:
        with debugger(tmp_path, "L1") as tool:
            tool.start()
            torch.sigmoid(torch.ones(1))
            begin.set()
            assert done.wait(60)
            tool.stop()
            out = capsys.readouterr().out
    finally:
        begin.set()
        end.set()
        for thread in threads:
            thread.join()
    lines = [line for line in out.splitlines() if "older than start()" in line]
    assert len(lines) == 1 and "thread 'early bird'" in lines[0] and "[WARNING]" in lines[0]


def test_capture_older_thread_is_recorded_once_it_calls_start_itself(tmp_path):
    begin = threading.Event()

    def work() -> None:
        begin.wait()
        PrecisionDebugger.start()
        torch.relu(torch.ones(1))

    thread = threading.Thread(target=work)
    thread.start()
    with debugger(tmp_path, "L1") as tool:
        tool.start()
        begin.set()
        thread.join()
        tool.stop()
        tool.step()
    assert read_step(tmp_path).names.count("Torch.relu.0.forward") == 1
