"""Looking changes nothing: training is bit-identical with and without collection.

A part of the matrix of neutrality.py; `python tools/neutrality_matrix.py` runs all of it.
"""

from __future__ import annotations

import copy
import io
import pickle

import neutrality
import pytest
import torch
import torch.nn.functional as F
from capture_tools import debugger
from torch import nn

from msprobe.errors import ConfigError, MsprobeError
from msprobe.pytorch import PrecisionDebugger

# Every kind at mix, where all hooks are in place, and at L0 with files; the one that other tools are known to change at
# every level. The two large ones take seconds per cell.
CELLS = dict.fromkeys(neutrality.KINDS, (("mix", "statistics"), ("L0", "tensor")))
CELLS |= dict.fromkeys(neutrality.TRANSFORMERS, (("mix", "statistics"),))
CELLS["attention, residual, shared weight"] += (("L0", "md5"), ("L1", "statistics"), ("mix", "tensor"))
CELLS["attention, residual, shared weight"] += (("mix", "full"), ("mix", "device"), ("mix", "sketch"))
CELLS["double backward"] += (("mix", "full"),)
CELLS["checkpoints of both sorts"] += (("mix", "full"),)


@pytest.mark.parametrize("kind", neutrality.KINDS)
def test_capture_training_is_bit_identical(kind, tmp_path):
    pytest.importorskip("transformers") if kind in neutrality.TRANSFORMERS else None
    found = neutrality.run_kind(neutrality.KINDS[kind], CELLS[kind], tmp_path)
    assert found == dict.fromkeys(CELLS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*neutrality.KINDS, *neutrality.DISTRIBUTED])
def test_capture_training_is_bit_identical_in_the_whole_matrix(kind, tmp_path):
    pytest.importorskip("transformers") if kind in neutrality.TRANSFORMERS else None
    if kind in neutrality.DISTRIBUTED:
        found = neutrality.run_distributed(kind, neutrality.CELLS, tmp_path)
    else:
        found = neutrality.run_kind(neutrality.KINDS[kind], neutrality.CELLS, tmp_path)
    assert found == dict.fromkeys(neutrality.CELLS)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize("kind", neutrality.DISTRIBUTED)
def test_capture_training_of_two_replicas_is_bit_identical(kind, tmp_path):
    cells = (("mix", "statistics"),)
    assert neutrality.run_distributed(kind, cells, tmp_path) == dict.fromkeys(cells)


def test_capture_neutrality_check_is_sensitive():
    """The same script under torch's own full backward hooks, which put identity nodes around modules, does differ."""
    make = neutrality.KINDS["attention, residual, shared weight"]

    def hooked(models, step):
        handles = [m.register_full_backward_hook(lambda *_: None) for m in models[0].modules() if m is not models[0]]
        step()
        for handle in handles:
            handle.remove()

    assert neutrality.first_difference(neutrality.plain(make), neutrality.train(make, hooked)) is not None


def trained(step_count=0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(step_count):
        step()
    return model, optimizer, step


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_check_neutral_says_bit_neutral_and_puts_everything_back(level, tmp_path, capsys):
    model, optimizer, step = trained(2)
    before = [t.clone() for t in model.state_dict().values()]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    random_state = torch.get_rng_state()
    with debugger(tmp_path, level, step=[7]) as tool:
        answer = tool.check_neutral(step, model, optimizer, steps=2)
        # Per step: loss, 4 gradients, 4 parameters, 3 optimizer tensors for each of 4 parameters, random state.
        assert answer and str(answer).startswith("bit-neutral: 2 steps, 44 tensors compared")
        assert "[INFO] check_neutral: bit-neutral" in capsys.readouterr().out
        assert not (tmp_path / "dump").exists()
        tool.start(model)
        tool.stop()
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(state[i][k], after[i][k]) for i in state for k in state[i])
    assert torch.equal(random_state, torch.get_rng_state())


def test_check_neutral_names_the_first_tensor_that_differs(tmp_path, capsys):
    model, optimizer, step = trained()

    def watched():
        loss = step()
        if PrecisionDebugger._recorder.running:  # what a tool that is not neutral would do
            with torch.no_grad():
                model[3].bias[1] += 2**-20
        return loss

    with debugger(tmp_path, "L1") as tool:
        answer = tool.check_neutral(watched, model, optimizer)
    assert not answer and (answer.step, answer.tensor) == (0, "parameter 3.bias")
    assert str(answer) == "not bit-neutral: step 0, parameter 3.bias is the first that differs"
    assert "[WARNING] check_neutral: not bit-neutral" in capsys.readouterr().out


def test_check_neutral_tells_a_step_that_does_not_repeat_itself(tmp_path):
    model, optimizer, step = trained()
    calls = []

    def drifting():
        calls.append(1)
        with torch.no_grad():
            model[0].weight[0, 0] += len(calls)
        return step()

    with debugger(tmp_path, "L1") as tool:
        answer = tool.check_neutral(drifting, model, optimizer)
    assert not answer and str(answer).startswith("not comparable: the step does not repeat itself")
    assert answer.step == 0 and answer.tensor == "returned value"


def test_check_neutral_says_when_nothing_was_recorded(tmp_path):
    with debugger(tmp_path, "L1", rank=[5]) as tool:
        answer = tool.check_neutral(lambda: torch.relu(torch.ones(1)), steps=1)
    assert not answer and str(answer) == "not tested: with these settings nothing was recorded"


def test_check_neutral_refuses_wrong_use(tmp_path):
    with debugger(tmp_path, "L1") as tool:
        for arguments, message in [
            ((3,), "a function without arguments was expected, got int"),
            ((print, 3), "a torch.nn.Module or a list of them was expected, got int"),
            ((print, None, 3), "an optimizer or a list of them was expected, got int"),
            ((print, None, None, 0), "an int >= 1 was expected"),
        ]:
            with pytest.raises(ConfigError, match=message):
                tool.check_neutral(*arguments)
        tool.start()
        with pytest.raises(MsprobeError, match="call stop"):
            tool.check_neutral(print)
        tool.stop()
    with debugger(tmp_path, "debug") as tool, pytest.raises(ConfigError, match="the level is debug"):
        tool.check_neutral(print)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_capture_pickle_deepcopy_and_script_work_inside_the_window(level, tmp_path):
    model, _, _ = trained()
    x = torch.ones(2, 4)
    model.eval()
    expected = model(x)
    with debugger(tmp_path, level) as tool:
        tool.start(model)
        copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)

        @torch.jit.script
        def scripted(t: torch.Tensor) -> torch.Tensor:
            return torch.relu(t) * 2

        assert scripted(x).sum().item() == 16
        tool.stop()
    buffer.seek(0)
    assert torch.load(buffer)["0.weight"].equal(model[0].weight)
    assert all(torch.equal(c(x), expected) for c in copies)


def test_capture_leaves_versions_requires_grad_and_identities_alone(tmp_path):
    model = neutrality.KINDS["conv, BatchNorm, in-place ReLU"]()[0][0]
    seen = {}

    def look():
        x = torch.ones(2, 3, 8, 8)
        y = F.relu(x)
        z = y.add_(1)
        same = nn.Identity()
        seen["identity"] = z is y and same(x) is x
        out = model(x)
        seen["versions"] = (x._version, y._version, out._version, out.requires_grad, type(out.grad_fn).__name__)
        return seen.copy()

    expected = look()
    with debugger(tmp_path, "mix", task="tensor") as tool:
        tool.start(model)
        assert look() == expected
        tool.stop()
    assert expected["identity"] and expected["versions"][:2] == (0, 1)
