"""Hooks on the modules of the user's models: put on at start, taken off at stop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from msprobe._core import Collector, capture
from msprobe.errors import ConfigError, ErrorCode
from msprobe.pytorch import _log

Models = nn.Module | list[nn.Module] | tuple[nn.Module, ...]


def check_models(model: Any) -> list[nn.Module]:
    """The models as a list.

    Raises:
        ConfigError: `model` is neither a module nor a non-empty list or tuple of modules.
    """
    models = list(model) if isinstance(model, list | tuple) else [model]
    for m in models:
        if not isinstance(m, nn.Module):
            raise ConfigError(
                ErrorCode.INVALID_ARGUMENT,
                f"start(model=...): a torch.nn.Module or a list or tuple of them was expected, got {type(m).__name__}",
                "model",
            )
    if not models:
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, "start(model=...): the list of models is empty", "model")
    return models


def _is_script(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules to record, with their dotted paths. The root only when it has no children."""
    if _is_script(model) or not any(True for _ in model.children()):
        yield "", model
        return
    named = list(model.named_modules())
    if "verl" in sys.modules:  # its wrappers own the first and the last
        named = named[1:-1]
    for path, module in named:
        if module is model or type(module).__name__ == "FullyShardedDataParallel":
            continue
        if _is_script(module):
            _log.log(_log.WARNING, f"module {path} is a ScriptModule: not recorded")
            continue
        yield path, module


class ModuleHooks:
    """All hooks of one collection."""

    def __init__(self, collector: Collector) -> None:
        """No module is hooked yet."""
        self._collector = collector
        self._numbers: dict[int, tuple[nn.Module, int]] = {}
        self._handles: list[Any] = []
        self._parameters: list[nn.Parameter] = []
        self._known: dict[int, nn.Module] = {}

    def add(self, models: list[nn.Module]) -> None:
        """Remember the models whose modules are to be hooked."""
        indexed = len(models) > 1 or getattr(self, "_indexed", False)
        for i, model in enumerate(models):
            if id(model) in self._known:
                continue
            self._known[id(model)] = model
            for path, module in _named(model):
                if id(module) in self._numbers:
                    continue
                full = ".".join(p for p in (str(i) if indexed else "", path) if p)
                number = self._collector.register_module(full, type(module).__name__)
                self._numbers[id(module)] = (module, number)

    def add_list(self, models: list[nn.Module]) -> None:
        """The same for models that came in a list or tuple: their index leads the path."""
        self._indexed = True
        self.add(models)
        self._indexed = False

    def install(self) -> None:
        """Hook every known module."""
        if self._handles:
            return
        gradients = self._collector.wants_parameter_grads
        for module, number in self._numbers.values():
            pre, post = capture.pre_hook(number), capture.post_hook(number)
            self._handles.append(module.register_forward_pre_hook(pre, with_kwargs=True))
            self._handles.append(module.register_forward_hook(post, with_kwargs=True, always_call=True, prepend=True))
            if gradients and not _is_script(module):
                self._hook_parameters(module, number)

    def _hook_parameters(self, module: nn.Module, number: int) -> None:
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
                continue
            try:
                hook = capture.parameter_hook(number, name)
                if parameter._post_accumulate_grad_hooks is None:
                    self._parameters.append(parameter)
                register: Any = parameter.register_post_accumulate_grad_hook
                self._handles.append(register(hook))
            except (RuntimeError, TypeError, AttributeError) as error:
                capture.report("hooking a parameter", f"{name}: {error}")

    def uninstall(self) -> None:
        """Take every hook off; the modules are as before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._parameters:
            place: Any = parameter
            if not parameter._post_accumulate_grad_hooks:
                place._post_accumulate_grad_hooks = None
        self._parameters.clear()
