"""Functions that the configuration adds to the recorded ones: `api_list.add` and `custom_op_namespaces`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from msprobe.pytorch import _log
from msprobe.pytorch._intercept import custom_apis

_DEFAULT_NAMESPACES = ["_C_ascend"]
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def _module(path: str) -> Any:
    """What a dotted path names: a module, or a class or object inside one; None when there is nothing."""
    if not _DOTTED.fullmatch(path):
        return None
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        name = ".".join(parts[:n])
        try:
            found: Any = sys.modules.get(name) or importlib.import_module(name)
        except Exception:
            continue
        for part in parts[n:]:
            found = getattr(found, part, None)
        return found
    return None


def _operators(namespace: str) -> Iterator[str]:
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = str(schema.name).partition("::")
        if space == namespace:
            yield name


class AddedApis:
    """Wrapped while recording only. What cannot be found is tried again at each start and named once."""

    def __init__(self, added: list[tuple[str, list[str]]], namespaces: list[str] | None) -> None:
        """Nothing is wrapped yet."""
        self._added = added
        self._namespaces = _DEFAULT_NAMESPACES if namespaces is None else namespaces
        self._wrappers: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._placed: list[tuple[Any, str]] = []
        self._said: set[str] = set()

    def install(self) -> None:
        """Wrap what is there now."""
        for path, names in self._added:
            for name in names:
                self._wrap(path, name, _module(path))
        for namespace in self._namespaces:
            for name in dict.fromkeys(_operators(namespace)):
                self._wrap(namespace, name, getattr(torch.ops, namespace))

    def _wrap(self, prefix: str, name: str, module: Any) -> None:
        function = getattr(module, name, None)
        if not callable(function):
            if f"{prefix}.{name}" not in self._said:
                self._said.add(f"{prefix}.{name}")
                _log.log(_log.WARNING, f"api_list.add: there is no function {prefix}.{name} (yet)")
            return
        if custom_apis.knows(module, name):  # registered by the script, which it stays
            return
        known = self._wrappers.get((prefix, name))
        if known is not None and known[0] is function:
            custom_apis.put_back(module, name, known[1])
        else:
            custom_apis.register(module, name, prefix)
            wrapper = vars(module).get(name, getattr(module, name))
            if isinstance(function, torch._ops.OpOverloadPacket):
                packet: Any = function
                for overload in packet.overloads():
                    setattr(wrapper, overload, getattr(packet, overload))
            self._wrappers[prefix, name] = (function, wrapper)
        self._placed.append((module, name))

    def uninstall(self) -> None:
        """Put every original back."""
        for module, name in reversed(self._placed):
            custom_apis.restore(module, name)
        self._placed.clear()
