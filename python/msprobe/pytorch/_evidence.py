"""What the C side asks for the evidence of an entry: autocast and the states of random generators."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from msprobe._core import Collector, capture

# By name: a generator, and its state before the call.
States = list[tuple[str, Callable[[], torch.Tensor], torch.Tensor]]


def _devices() -> list[str]:
    known = getattr(torch._C, "_autocast_supported_devices", None)
    return list(known()) if known is not None else ["cpu", "cuda"]


def any_autocast() -> bool:
    """Whether autocast is on for some device (for releases of torch that do not say it themselves)."""
    return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


any_autocast = getattr(torch._C, "_is_any_autocast_enabled", any_autocast)


def autocast_text() -> str | None:
    """JSON of `{device: dtype}` in force."""
    if not hasattr(torch, "get_autocast_dtype"):
        on = {"cuda": torch.is_autocast_enabled(), "cpu": torch.is_autocast_cpu_enabled()}
        kinds = {"cuda": torch.get_autocast_gpu_dtype, "cpu": torch.get_autocast_cpu_dtype}
        return json.dumps({d: str(kinds[d]()) for d, is_on in on.items() if is_on})
    found = {d: str(torch.get_autocast_dtype(d)) for d in _devices() if torch.is_autocast_enabled(d)}
    return json.dumps(found) if found else None


def _generators(kwargs: dict[str, Any] | None) -> list[tuple[str, Callable[[], torch.Tensor]]]:
    found: list[tuple[str, Callable[[], torch.Tensor]]] = [("cpu", torch.default_generator.get_state)]
    cuda: Any = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        index = cuda.current_device()
        found.append((f"cuda:{index}", cuda.default_generators[index].get_state))
    given = None if kwargs is None else kwargs.get("generator")
    if isinstance(given, torch.Generator):
        found.append(("generator", given.get_state))
    return found


def random_state(kwargs: dict[str, Any] | None) -> States:
    """The states of the default generators, and of one given by keyword, before a call.

    Modes of the user, such as that of fake tensors, are not to see how they are read and compared.
    """
    with _disable_current_modes():
        return [(name, read, read()) for name, read in _generators(kwargs)]


def random_text(before: States) -> str | None:
    """JSON of `{generator: state in base64}` for those that the call has moved on; None: it drew no number."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        moved = {
            name: base64.b64encode(bytes(state.tolist())).decode()
            for name, read, state in before
            if not torch.equal(state, read())
        }
    return json.dumps(moved) if moved else None


def _leaf(tensor: torch.Tensor) -> dict[str, Any] | None:
    if nn.parameter.is_lazy(tensor):
        return None  # its module has not run yet
    return {"dtype": str(tensor.dtype), "shape": [int(n) for n in tensor.shape], "hash64": capture.hash64(tensor)}


def _model(model: nn.Module) -> dict[str, Any]:
    return {
        "class": type(model).__name__,
        "parameters": {name: _leaf(p) for name, p in model.named_parameters()},
        "buffers": {name: _leaf(b) for name, b in model.named_buffers()},
    }


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Groups hold the hyperparameters that are numbers; state goes by the place of its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                state[f"{i}.{key}"] = _leaf(value)
            elif isinstance(value, bool | int | float):
                state[f"{i}.{key}"] = value
    groups = [
        {k: v for k, v in group.items() if isinstance(v, bool | int | float | str)} for group in optimizer.param_groups
    ]
    return {"class": type(optimizer).__name__, "groups": groups, "state": state}


class State:
    """Evidence "full": what models and optimizers were when the step began, for the closing block of dump.json.

    Models are looked at by the first `start()` of a step, optimizers before their first update in it.
    """

    def __init__(self, collector: Collector) -> None:
        """Nothing was looked at yet."""
        self._collector = collector
        self._step: int | None = None
        self._models: list[dict[str, Any]] = []
        self._optimizers: list[dict[str, Any]] = []
        self._seen: list[Any] = []
        self._handle: Any = None

    def begin(self, models: list[nn.Module]) -> None:
        """Look at the models, once per step."""
        if self._step == self._collector.step:
            return
        self._step = self._collector.step
        self._optimizers, self._seen = [], []
        self._models = []
        try:
            self._models = [_model(m) for m in models]
            self._hand_over()
        except Exception as error:
            capture.report("hashing the state of a model", f"{type(error).__name__}: {error}")

    def _hand_over(self) -> None:
        self._collector.set_state(json.dumps({"models": self._models, "optimizers": self._optimizers}))

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not any(o is optimizer for o in self._seen):
            self._seen.append(optimizer)
            try:
                self._optimizers.append(_optimizer(optimizer))
                self._hand_over()
            except Exception as error:
                capture.report("hashing the state of an optimizer", f"{type(error).__name__}: {error}")

    def install(self) -> None:
        """Watch optimizers."""
        from torch.optim import optimizer

        self._handle = optimizer.register_optimizer_step_pre_hook(self._before_update)

    def uninstall(self) -> None:
        """Stop watching."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
