"""Looking changes nothing: parameters after training are bit-identical with and without collection."""

from __future__ import annotations

from collections.abc import Callable

import capture_nets
import pytest
import torch
from capture_tools import debugger
from torch import nn

STEPS = 20


def train(script: str, around: Callable[[nn.Module, Callable[[], None]], None]) -> list[torch.Tensor]:
    torch.set_num_threads(1)
    model, step = capture_nets.SCRIPTS[script]()
    torch.manual_seed(1)
    for _ in range(STEPS):
        around(model, step)
    return [t.clone() for t in model.state_dict().values()]


def plain(script: str) -> list[torch.Tensor]:
    return train(script, lambda model, step: step())


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("script", ["residual", "resnet_inplace", "lstm", "routing", "checkpoints", "llama", "bert"])
def test_capture_training_is_bit_identical(script, level, tmp_path):
    pytest.importorskip("transformers") if script in ("llama", "bert") else None

    def recorded(model: nn.Module, step: Callable[[], None]) -> None:
        tool.start(model)
        step()
        tool.stop()
        tool.step()

    with debugger(tmp_path, level) as tool:
        got = train(script, recorded)
    assert same(got, plain(script))


def test_capture_neutrality_check_is_sensitive():
    """The same script under torch's own full backward hooks, which put identity nodes around modules, does differ."""

    def hooked(model: nn.Module, step: Callable[[], None]) -> None:
        handles = [m.register_full_backward_hook(lambda *_: None) for m in model.modules() if m is not model]
        step()
        for handle in handles:
            handle.remove()

    assert not same(train("residual", hooked), plain("residual"))
