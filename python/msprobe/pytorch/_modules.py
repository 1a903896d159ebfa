"""Hooks on the modules of the user's models: put on at start, taken off at stop."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from msprobe._core import Collector, capture
from msprobe.errors import ConfigError, ErrorCode
from msprobe.pytorch import _leaf, _log
from msprobe.pytorch._compiled import is_compiled

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


def _class_name(module: nn.Module) -> str:
    if _is_script(module):
        return str(getattr(module, "original_name", type(module).__name__))
    return type(module._orig_mod if is_compiled(module) else module).__name__


def _is_script(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _named(model: nn.Module, compiled_as_leaf: bool) -> Iterator[tuple[str, nn.Module]]:
    """The modules to record, with their dotted paths. The root only when it has no children (or none to look at)."""
    if _is_script(model) or (compiled_as_leaf and is_compiled(model)) or not any(True for _ in model.children()):
        yield "", model
        return
    named = list(model.named_modules())
    if "verl" in sys.modules:  # its wrappers own the first and the last
        named = named[1:-1]
    inside: tuple[str, ...] = ()
    for path, module in named:
        if path.startswith(inside):
            continue
        if compiled_as_leaf and is_compiled(module):
            inside += (path + ".",)
        if module is model or type(module).__name__ == "FullyShardedDataParallel":
            continue
        if _is_script(module):
            _log.log(_log.WARNING, f"module {path} is a ScriptModule: not recorded")
            continue
        yield path, module


def _flat_parameters(model: nn.Module) -> Iterator[Any]:
    """Handles of the first FSDP with use_orig_params: gradients arrive at a flat parameter that no module owns."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if fsdp is None:
        return
    for module in model.modules():
        handle = getattr(module, "_handle", None)
        if isinstance(module, fsdp.FullyShardedDataParallel) and getattr(handle, "_use_orig_params", False):
            yield handle


def _call_with(hook: Any, parameter: nn.Parameter, *_: Any) -> None:
    hook(parameter)


class _Piece:
    """Stands for one original parameter of a flat one when its gradient is recorded."""

    __slots__ = ("main_grad",)

    def __init__(self, gradient: torch.Tensor) -> None:
        self.main_grad = gradient


class ModuleHooks:
    """All hooks of one collection."""

    def __init__(self, collector: Collector) -> None:
        """No module is hooked yet."""
        self._collector = collector
        self._numbers: dict[int, tuple[nn.Module, int]] = {}
        self._handles: list[Any] = []
        self._parameters: list[nn.Parameter] = []
        self._known: dict[int, nn.Module] = {}
        self._parameter_handles: list[Any] = []
        self._hooked: list[tuple[int, str, nn.Parameter, Any]] = []
        self._late_handles: list[Any] = []
        self._with_parameters: set[int] = set()
        self._ever_installed = False
        self._said: set[int] = set()
        self._paths: dict[int, str] = {}

    def add(self, models: list[nn.Module]) -> None:
        """Remember the models whose modules are to be hooked."""
        indexed = len(models) > 1 or getattr(self, "_indexed", False)
        for i, model in enumerate(models):
            if id(model) in self._known:
                continue
            self._known[id(model)] = model
            for path, module in _named(model, self._collector.compiled_as_leaf):
                if id(module) in self._numbers:
                    continue
                full = ".".join(p for p in (str(i) if indexed else "", path) if p)
                number = self._collector.register_module(full, _class_name(module))
                self._numbers[id(module)] = (module, number)
                self._paths[number] = full or type(module).__name__

    def add_list(self, models: list[nn.Module]) -> None:
        """The same for models that came in a list or tuple: their index leads the path."""
        self._indexed = True
        self.add(models)
        self._indexed = False

    def add_unit(self, module: nn.Module, name: str) -> None:
        """Remember one module under a name of the user's; the first name stays."""
        if id(module) not in self._numbers:
            self._numbers[id(module)] = (module, self._collector.register_module(name, type(module).__name__))

    def knows(self, module: nn.Module) -> bool:
        """Whether this module is among those to hook."""
        return id(module) in self._numbers

    def install(self, only: nn.Module | None = None) -> None:
        """Hook every known module, or one of them."""
        if self._handles:
            return
        self.end_step()  # the hooks of the parameters themselves take over again
        gradients = self._collector.wants_parameter_grads
        chosen = self._numbers.values() if only is None else [self._numbers[id(only)]]
        for module, number in chosen:
            pre, post = capture.pre_hook(number), capture.post_hook(number)
            # By the base class: script modules refuse hooks by their own method, but call them.
            before, after = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook
            self._handles.append(before(module, pre, with_kwargs=True))
            self._handles.append(after(module, post, with_kwargs=True, always_call=True, prepend=True))
            if gradients and number not in self._with_parameters and not _is_script(module):
                self._with_parameters.add(number)
                self._hook_parameters(module, number)
        if gradients:
            hooked = {id(module): number for module, number in chosen}
            for model in self._known.values():
                for handle in _flat_parameters(model):
                    self._hook_flat_parameter(handle, hooked)
        self._ever_installed = True

    def _hook_parameters(self, module: nn.Module, number: int) -> None:
        for name, parameter in module._parameters.items():
            if parameter is None or nn.parameter.is_lazy(parameter):
                continue  # a lazy one has no gradient before its module has run once
            if not parameter.requires_grad or not parameter.is_leaf:
                continue
            try:
                hook = capture.parameter_hook(number, name)
                if parameter._post_accumulate_grad_hooks is None:
                    self._parameters.append(parameter)
                register: Any = parameter.register_post_accumulate_grad_hook
                self._parameter_handles.append(register(hook))
                self._hooked.append((number, name, parameter, hook))
            except Exception as error:
                capture.report("hooking a parameter", f"{name}: {type(error).__name__}: {error}")

    def _hook_flat_parameter(self, handle: Any, numbers: dict[int, int]) -> None:
        if id(handle) in self._with_parameters:
            return
        self._with_parameters.add(id(handle))

        def split(flat: Any) -> None:
            if flat.grad is None:
                return
            try:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    pieces = list(handle._get_unflat_views(flat.grad))
            except Exception as error:
                capture.report("splitting the gradient of a flat parameter", f"{type(error).__name__}: {error}")
                return
            for hook, piece in zip(hooks, pieces, strict=True):
                if hook is not None:
                    hook(_Piece(piece))

        try:
            flat = handle.flat_param
            owners = [(info.module, info.param_name) for info in flat._param_infos]
            hooks = [capture.parameter_hook(numbers[id(m)], name) if id(m) in numbers else None for m, name in owners]
            if flat._post_accumulate_grad_hooks is None:
                self._parameters.append(flat)
            self._parameter_handles.append(flat.register_post_accumulate_grad_hook(split))
        except Exception as error:
            capture.report("hooking a flat parameter", f"{type(error).__name__}: {error}")

    def warn_of_unentered(self) -> None:
        """Name the modules whose forward no hook has seen, once each (decisions.md 16)."""
        if not self._ever_installed:
            return
        names = []
        for module, number in self._numbers.values():
            # A list of modules is not called; nor is the last layer of nn.MultiheadAttention (its weights are used).
            runs = _is_script(module) or type(module).forward is not nn.Module.forward
            handed_on = isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
            if runs and not handed_on and number not in self._said and not capture.was_entered(number):
                self._said.add(number)
                names.append(self._paths[number])
        if not names:
            return
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        _log.log(
            _log.WARNING,
            f"not recorded because never called (a call of .forward() directly is not seen): {shown}",
        )

    def _wait_for_gradients(self) -> None:
        """A first gradient may come after stop(), like those of modules and APIs: the graph carries the hook.

        Nothing is left on a parameter. A node that no graph holds dies at once, and its hook with it.
        """
        for number, name, parameter, early in self._hooked:
            if early.fired:
                continue
            try:
                hook = capture.parameter_hook(number, name, True)
                node = _leaf.leaf_edge(parameter)
                self._late_handles.append(node.register_hook(functools.partial(_call_with, hook, parameter)))
            except Exception as error:
                capture.report("waiting for the gradient of a parameter", f"{name}: {error}")
        self._hooked.clear()

    def end_step(self) -> None:
        """Gradients that come from now on belong to no step."""
        for handle in self._late_handles:
            handle.remove()
        self._late_handles.clear()

    def uninstall(self, parameters: bool = True) -> None:
        """Take every hook off; the modules are as before. Those of the parameters may wait for a backward to come."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if not parameters:
            return
        for handle in self._parameter_handles:
            handle.remove()
        self._parameter_handles.clear()
        self._with_parameters.clear()
        for parameter in self._parameters:
            place: Any = parameter
            if not parameter._post_accumulate_grad_hooks:
                place._post_accumulate_grad_hooks = None
        self._parameters.clear()
        self._wait_for_gradients()
