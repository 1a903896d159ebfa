"""From a recorded name to the function: table look-ups, nothing is evaluated, nothing outside the tables is reached."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe.precheck.names import words

Function = Callable[..., Any]

# Functions that make or draw tensors; torch does not list them among those that tensors can override.
_CREATION = words(
    "arange bartlett_window blackman_window complex empty eye full full_like hamming_window hann_window "
    "kaiser_window linspace logspace normal ones ones_like polar rand rand_like randint randint_like randn "
    "randn_like randperm range scalar_tensor tril_indices triu_indices vander zeros zeros_like"
)
# What torch.nn's recurrent modules call; recorded with the prefix VF.
_RECURRENT = words("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
_NAMESPACES = ("linalg", "fft", "special")
_PREFIX_OF_SECTION = {"functional": "Functional", "tensor": "Tensor", "torch": "Torch", "torch_npu": "NPU"}


class UnknownFunction(Exception):
    """The name leads to no function that may be called."""


@functools.lru_cache(maxsize=1)
def _listed() -> dict[str, frozenset[str]]:
    """Recorded prefix to the names that dumps may hold under it."""
    path = Path(__file__).resolve().parents[1] / "pytorch" / "api_list.json"
    sections = json.loads(path.read_text(encoding="utf-8"))
    return {prefix: frozenset(sections[s]["apis"]) for s, prefix in _PREFIX_OF_SECTION.items() if s in sections}


@functools.lru_cache(maxsize=1)
def _overridable() -> dict[str, frozenset[str]]:
    """Names of tensor functions by prefix, from torch's own table."""
    table = torch.overrides.get_overridable_functions()
    out = {"Torch": set(_CREATION), "Functional": set[str](), "Tensor": set[str]()}
    for namespace, functions in table.items():
        names = {getattr(f, "__name__", "") for f in functions}
        if namespace in (torch, torch.functional):
            out["Torch"] |= {n for n in names if not n.startswith("_")}
        elif namespace is torch.nn.functional:
            out["Functional"] |= {n for n in dir(torch.nn.functional) if not n.startswith("_")} & names
        elif namespace is torch.Tensor:
            out["Tensor"] |= {n for n in names if not n.startswith("_")}
    for space in _NAMESPACES:
        module = getattr(torch, space)
        public = {n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))}
        native = {n for n in public if type(getattr(module, n)).__name__ == "builtin_function_or_method"}
        out["Torch"] |= {f"{space}.{n}" for n in native}
    return {prefix: frozenset(names) for prefix, names in out.items()}


@functools.lru_cache(maxsize=1)
def known_names() -> frozenset[str]:
    """All bare names that a white or black list may hold."""
    names: set[str] = set()
    for table in (_listed(), _overridable()):
        for part in table.values():
            names |= part
    return frozenset(names)


def _allowed(prefix: str, name: str) -> bool:
    return name in _listed().get(prefix, ()) or name in _overridable().get(prefix, ())


def _attribute(root: Any, name: str) -> Function | None:
    for part in name.split("."):
        root = getattr(root, part, None)
        if root is None:
            return None
    return root if callable(root) else None


@functools.lru_cache(maxsize=4096)
def candidates(prefix: str, name: str, qualified: str) -> tuple[tuple[str, Function], ...]:
    """The functions that a recorded call may mean, likeliest first, each with its path.

    `qualified` is the true path that our own dumps hold ("torch.linalg.inv"). Without it a torch name that exists in
    torch.linalg, torch.fft or torch.special as well has several candidates: dumps name those by their last part only.

    Raises:
        UnknownFunction: With the reason.
    """
    if prefix == "Functional":
        found = _allowed(prefix, name) and _attribute(torch.nn.functional, name)
        paths = [(f"torch.nn.functional.{name}", found)]
    elif prefix == "Tensor":
        found = _allowed(prefix, name) and _attribute(torch.Tensor, name)
        paths = [(f"torch.Tensor.{name}", found)]
    elif prefix == "Torch":
        paths = _torch_candidates(name, qualified)
    elif prefix == "VF":
        paths = [(f"torch._VF.{name}", getattr(torch._VF, name, None) if name in _RECURRENT else None)]
    elif prefix == "Aten":
        known = not name.startswith("_") and hasattr(torch.ops.aten, name)
        paths = [(f"torch.ops.aten.{name}", getattr(torch.ops.aten, name) if known else None)]
    else:
        raise UnknownFunction(f"unsupported: calls recorded as {prefix} are not replayed")
    out = tuple((path, f) for path, f in paths if f)
    if not out:
        raise UnknownFunction(f"unknown_function: {paths[0][0]} is not known here, or may not be called")
    return out


def _torch_candidates(name: str, qualified: str) -> list[tuple[str, Any]]:
    full = qualified.removeprefix("torch.") if qualified.startswith("torch.") else ""
    if full and _allowed("Torch", full):
        return [(f"torch.{full}", _attribute(torch, full))]
    paths = [name] if "." in name else [name, *(f"{space}.{name}" for space in _NAMESPACES)]
    return [(f"torch.{p}", _attribute(torch, p) if _allowed("Torch", p) else None) for p in paths]


@functools.lru_cache(maxsize=1)
def npu_package() -> Any:
    """torch_npu when it is installed, else None."""
    if importlib.util.find_spec("torch_npu") is None:
        return None
    return importlib.import_module("torch_npu")
