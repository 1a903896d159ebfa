"""`PrecisionDebugger.check_neutral`: does collection change the numbers of the user's own step?"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from msprobe.errors import ConfigError, ErrorCode
from msprobe.pytorch._fixed_random import States

Trace = list[list[tuple[str, bytes]]]


@dataclass(frozen=True)
class Neutrality:
    """The answer of `check_neutral`; true when the runs are bit-identical."""

    neutral: bool
    text: str
    step: int | None = None
    tensor: str | None = None

    def __bool__(self) -> bool:
        """Whether collection changed nothing."""
        return self.neutral

    def __str__(self) -> str:
        """`bit-neutral...`, or the first tensor that differs."""
        return self.text


def _digest(tensor: torch.Tensor) -> bytes:
    """Of type, shape and bits: NaN equals itself, -0.0 is not 0.0."""
    data = tensor.detach()
    if data.is_quantized:
        data = data.int_repr()
    if data.layout != torch.strided:
        data = data.to_dense()
    data = data.cpu().resolve_conj().resolve_neg().contiguous()
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    size = data.numel() * data.element_size()
    if size > 0:
        digest.update((ctypes.c_char * size).from_address(data.data_ptr()))
    return digest.digest()


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _tensors(f"{name}.{i}", item)


def _as_list(value: Any, kind: type, name: str, expected: str) -> list[Any]:
    values = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    for v in values:
        if not isinstance(v, kind):
            raise ConfigError(
                ErrorCode.INVALID_ARGUMENT,
                f"check_neutral({name}=...): {expected} was expected, got {type(v).__name__}",
                name,
            )
    return values


class Subject:
    """A training step with everything that it changes; can be put back to where it began."""

    def __init__(self, step: Callable[[], Any], model: Any, optimizer: Any) -> None:
        """Remember the state of this moment.

        Raises:
            ConfigError: An argument has the wrong type.
        """
        if not callable(step):
            raise ConfigError(
                ErrorCode.INVALID_ARGUMENT,
                f"check_neutral(step_fn=...): a function without arguments was expected, got {type(step).__name__}",
                "step_fn",
            )
        self._step = step
        self._models: list[nn.Module] = _as_list(model, nn.Module, "model", "a torch.nn.Module or a list of them")
        self._optimizers = _as_list(optimizer, torch.optim.Optimizer, "optimizer", "an optimizer or a list of them")
        self._slots: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._training: list[tuple[nn.Module, bool]] = []
        self._grads: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        for root in self._models:
            for module in root.modules():
                self._training.append((module, module.training))
                for place in (module._parameters, module._buffers):
                    slots: Any = place
                    for name, tensor in slots.items():
                        value = None if tensor is None or id(tensor) in seen else tensor.detach().clone()
                        seen.add(id(tensor))
                        self._slots.append((slots, name, tensor, value))
            for parameter in root.parameters():
                self._grads.append((parameter, None if parameter.grad is None else parameter.grad.clone()))
        self._states = [copy.deepcopy(o.state_dict()) for o in self._optimizers]
        self._random = States()

    def restore(self) -> None:
        """Put everything back: parameters, buffers, gradients, optimizer and random states, training flags."""
        with torch.no_grad():
            for place, name, tensor, value in self._slots:
                place[name] = tensor
                if value is not None:
                    tensor.copy_(value)
            for parameter, grad in self._grads:
                parameter.grad = None if grad is None else grad.clone()
        for module, training in self._training:
            module.training = training
        for optimizer, state in zip(self._optimizers, self._states, strict=True):
            optimizer.load_state_dict(copy.deepcopy(state))
        self._random.restore()

    def run(self, steps: int, around: Callable[[Callable[[], Any]], Any]) -> Trace:
        """Train from the remembered state; what each step leaves."""
        self.restore()
        return [self._after(around(self._step)) for _ in range(steps)]

    def _after(self, returned: Any) -> list[tuple[str, bytes]]:
        found: list[tuple[str, torch.Tensor]] = list(_tensors("returned value", returned))
        several = len(self._models) > 1
        for i, root in enumerate(self._models):
            start = f"model {i}: " if several else ""
            parameters = list(root.named_parameters())
            found += [(f"{start}gradient of {n}", p.grad) for n, p in parameters if p.grad is not None]
            found += [(f"{start}parameter {n}", p) for n, p in parameters]
            found += [(f"{start}buffer {n}", b) for n, b in root.named_buffers()]
        for i, optimizer in enumerate(self._optimizers):
            found += _tensors(f"optimizer {i}", optimizer.state_dict()["state"])
        found.append(("random state of torch", torch.get_rng_state()))
        trace = [(name, _digest(tensor)) for name, tensor in found]
        if isinstance(returned, int | float):
            trace.insert(0, ("returned value", repr(returned).encode()))
        return trace


def _difference(a: Trace, b: Trace) -> tuple[int, str] | None:
    for step, (left, right) in enumerate(zip(a, b, strict=True)):
        for x, y in zip(left, right, strict=False):
            if x != y:
                return step, x[0] if x[0] == y[0] else f"{x[0]} (beside {y[0]})"
        if len(left) != len(right):
            return step, (left + right)[min(len(left), len(right))][0]
    return None


def compare_runs(
    subject: Subject,
    steps: int,
    plain: Callable[[Callable[[], Any]], Any],
    recorded: Callable[[Callable[[], Any]], Any],
) -> Neutrality:
    """Twice without collection, to see that the step repeats itself at all, and once with it."""
    try:
        first = subject.run(steps, plain)
        found = _difference(first, subject.run(steps, plain))
        if found is not None:
            step, name = found
            text = (
                f"not comparable: the step does not repeat itself even without collection; step {step}, {name} differs "
                "between two runs from one state (seed_all(mode=True) may help)"
            )
            return Neutrality(False, text, step, name)
        found = _difference(first, subject.run(steps, recorded))
    finally:
        subject.restore()
    if found is not None:
        step, name = found
        return Neutrality(False, f"not bit-neutral: step {step}, {name} is the first that differs", step, name)
    tensors = sum(len(s) for s in first)
    return Neutrality(True, f"bit-neutral: {steps} steps, {tensors} tensors compared")


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Where the dump of the check goes; it is removed afterwards."""
    return tempfile.TemporaryDirectory(prefix="msprobe_neutral_")
