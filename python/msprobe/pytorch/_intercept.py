"""How API calls are intercepted: a function mode, operator slots and swapped code (design notes: docs, capture).

Everything is prepared at construction and put in place by `install()`; `uninstall()` restores every original object.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import inspect
import json
import linecache
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from msprobe._core import capture
from msprobe.pytorch import _device, _evidence, _leaf, _storage

_RISKS = {"CORE": 0, "FOCUS": 1, "LOW": 2}
_DROPOUTS = {
    "Functional": {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"},
    "Torch": {
        "dropout", "dropout_", "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_",
        "feature_dropout", "feature_dropout_",
    },
    "NPU": {"_npu_dropout"},
}  # fmt: skip
# Receive buffers hold nothing yet when the call begins (dump.md 6.8): first argument, or this keyword.
_RECEIVES_FIRST = {
    "all_gather": "tensor_list",
    "scatter": "tensor",
    "reduce_scatter": "output",
    "_reduce_scatter_base": "output",
    "_all_gather_base": "output_tensor",
    "all_to_all_single": "output",
    "all_to_all": "output_tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "reduce_scatter_tensor": "output",
    "recv": "tensor",
    "irecv": "tensor",
}
# Masked positions of the input, keyword, masked positions of the output.
_MASKS: dict[tuple[str, str], tuple[int, str, int]] = {
    **{("Distributed", n): (1, keyword, 0) for n, keyword in _RECEIVES_FIRST.items()},
    ("Distributed", "isend"): (0, "", 1),
    ("Distributed", "gather"): (2, "gather_list", 0),
    ("NPU", "npu_fusion_attention"): (0, "", 0b110000),
}
# Names under which later releases of torch do what a listed name did: they are recorded under the listed one.
_RENAMED = {
    ("Distributed", "all_gather_into_tensor"): "all_gather_single",
    ("Distributed", "reduce_scatter_tensor"): "reduce_scatter_single",
}
# Operators of torch.Tensor that no list names: the call is made, not recorded.
_UNLISTED_OPERATORS = ("__neg__", "__abs__", "__pos__", "__itruediv__", "__rand__")
_OVERRIDES = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_PLACE = "__msprobe_hook__"


def _find(owner: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        try:
            owner = getattr(owner, part, None)
        except Exception:
            return None
        if owner is None:
            return None
    return owner


class _BlindGlobals(dict[str, Any]):
    """Globals of a body clone: has_torch_function* answers no, everything else is the module's own."""

    def __init__(self, module_globals: dict[str, Any]) -> None:
        self._module = module_globals
        answers = {k: _no for k in module_globals if k.startswith("has_torch_function")}
        super().__init__(answers, __builtins__=module_globals["__builtins__"])

    def __missing__(self, key: str) -> Any:
        if key in self._module:
            return self._module[key]
        builtin = self._module["__builtins__"]
        return builtin[key] if isinstance(builtin, dict) else getattr(builtin, key)


def _no(*_: Any) -> bool:
    return False


def _copy_function(function: types.FunctionType, module_globals: dict[str, Any]) -> types.FunctionType:
    copy = types.FunctionType(
        function.__code__, module_globals, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy


def _body_clone(function: Any) -> types.FunctionType:
    inner = getattr(function, "__wrapped__", function)
    return _copy_function(inner, _BlindGlobals(inner.__globals__))


def _trampoline(function: types.FunctionType, hook: Callable[..., Any]) -> types.CodeType:
    """A code object `(*args, **kwargs) -> hook(args, kwargs)` that fits the function's closure."""
    original = function.__code__
    names = original.co_freevars
    # The free variables must be the same, else Python refuses the exchange; a dead branch mentions them.
    mention = f"        if 0: ({', '.join(names)},)\n" if names else ""
    outer = "".join(f"    {n} = None\n" for n in names)
    source = (
        f"def make():\n{outer}    def run(*args, **kwargs):\n{mention}"
        f"        return '{_PLACE}'(args, kwargs)\n    return run\n"
    )
    space: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "str object is not callable"
        exec(compile(source, "<msprobe>", "exec"), space)
    made: types.CodeType = space["make"]().__code__
    if made.co_freevars != names:
        raise ValueError(f"free variables {names} of {function.__name__}")
    return made.replace(
        co_consts=tuple(hook if c == _PLACE else c for c in made.co_consts),
        co_name=original.co_name,
        co_filename=original.co_filename,
        co_firstlineno=original.co_firstlineno,
    )


class Swap:
    """One function whose code can be exchanged for a trampoline and back."""

    def __init__(self, function: types.FunctionType, make_hook: Callable[[types.FunctionType], Any]) -> None:
        """Prepare; `make_hook(body)` gives the callable (args, kwargs) behind the trampoline."""
        self._function = function
        self._original = function.__code__
        body = _copy_function(function, function.__globals__)
        self._code = _trampoline(function, make_hook(body))
        capture.add_trampoline(self._code)
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        self._placed_signature = False

    def swap(self) -> None:
        """Exchange the code; `inspect.signature` keeps its answer."""
        if self._signature is not None and "__signature__" not in self._function.__dict__:
            self._function.__dict__["__signature__"] = self._signature
            self._placed_signature = True
        self._function.__code__ = self._code

    def restore(self) -> None:
        """Put the code of before back."""
        if self._function.__code__ is self._code:
            self._function.__code__ = self._original
        if self._placed_signature:
            self._function.__dict__.pop("__signature__", None)
            self._placed_signature = False


_CMode: Any = capture.Mode


class _Mode(_CMode, TorchFunctionMode):  # type: ignore[misc]
    """The mode that torch calls; the handler is the C method of the first base."""


def _initialise() -> None:
    tensor = torch.Tensor
    nothing = contextlib.nullcontext()
    names = torch._C
    _leaf.has_exchange = capture.init(
        {
            "tensor": tensor,
            "parameter": torch.nn.Parameter,
            "push_mode": names._push_on_torch_function_stack,
            "pop_mode": names._pop_torch_function_stack,
            "mode_count": names._len_torch_function_stack,
            "all_disabled": names._is_torch_function_all_disabled,
            "disable": names.DisableTorchFunction,
            "grad_enabled": torch.is_grad_enabled,
            "plain_tensor": _leaf.plain_tensor,
            "other_leaf": _leaf.other_leaf,
            "leaf_edge": _leaf.leaf_edge,
            "add_gradients": _leaf.add_gradients,
            "next_sequence": _leaf.next_sequence,
            "getline": linecache.getline,
            "every_entry": _every_entry,
            "reduce": _device.reduce,
            "copy": _device.copy,
            "fetch": _device.fetch,
            "any_autocast": _evidence.any_autocast,
            "autocast_text": _evidence.autocast_text,
            "random_state": _evidence.random_state,
            "random_text": _evidence.random_text,
            **_storage.objects(),
            "storage_expired": torch.UntypedStorage._expired,
            "free_weak_ref": torch.UntypedStorage._free_weak_ref,
            # A copy or a pickle of a hook of ours: a bound method of the standard library that takes anything and
            # returns None.
            "inert": (getattr, (nothing, "__exit__")),
            "size": torch.Size,
            "dtype": torch.dtype,
            "device": torch.device,
            "memory_format": torch.memory_format,
            "layout": torch.layout,
            "package_dir": os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
            **({"without_exchange": True} if os.environ.get("MSPROBE_WITHOUT_EXCHANGE") else {}),
        }
    )


class Interception:
    """The prepared machinery of one process."""

    def __init__(self) -> None:
        """Build the table of functions, operators and swaps."""
        _initialise()
        self._mode = _Mode()
        capture.set_mode(self._mode)
        self._own_attributes = set(torch.Tensor.__dict__)
        self._slots: dict[str, tuple[Any, Any]] = {}
        self._swaps: list[Swap] = []
        self._seen: set[int] = set()
        self._blind = {n: (getattr(torch.overrides, n), capture.blind(getattr(torch.overrides, n))) for n in _OVERRIDES}
        self._installed = False
        self._add_transparent()
        for key, space in _api_list().items():
            for owner in _owners(key):
                for name, risk in space["apis"].items():
                    self._add(space["prefix"], name, risk, owner)
        for name in _UNLISTED_OPERATORS:
            original = getattr(torch.Tensor, name, None)
            if original is not None and name not in self._slots:
                self._slots[name] = (original, capture.operator_slot(original, None))

    def _add_transparent(self) -> None:
        candidates = [
            torch.Tensor.backward,
            torch.autograd.backward,
            torch.autograd.grad,
            getattr(torch.functional, "meshgrid", None),
            getattr(torch.nn.functional, "rms_norm", None),
            getattr(torch.Tensor, "__rdiv__", None),
        ]
        for function in candidates:
            if isinstance(function, types.FunctionType):
                self._seen.add(id(function))
                capture.add_transparent(function, _body_clone(function))

    def _add(self, prefix: str, name: str, risk: str, owner: Any) -> None:
        function = _find(owner, name)
        if function is None or not callable(function) or id(function) in self._seen:
            return
        self._seen.add(id(function))
        short = name.rpartition(".")[2]
        entry = add_entry(prefix, short, risk, f"torch.{name}" if "." in name and prefix == "Torch" else "")
        self._bind(function, prefix, short, entry)
        later = _find(owner, _RENAMED.get((prefix, name), ""))
        if isinstance(later, types.FunctionType) and id(later) not in self._seen:
            self._seen.add(id(later))
            self._bind(later, prefix, short, entry)

    def _bind(self, function: Any, prefix: str, short: str, entry: Any) -> None:
        capture.bind(function, entry)
        if isinstance(function, types.FunctionType):
            if not short.startswith("__"):
                self._add_swap(function, entry)
        elif prefix == "Tensor" and short.startswith("__"):
            self._slots[short] = (function, capture.operator_slot(function, entry))

    def _add_swap(self, function: types.FunctionType, entry: Any) -> None:
        try:
            self._swaps.append(Swap(function, lambda body: capture.swap_hook(function, body, entry)))
        except ValueError as error:  # the mode still sees it, with its arguments re-arranged
            capture.report("swapping the code of a function", str(error))

    def install(self) -> None:
        """Put everything in place, on this thread."""
        if self._installed:
            return
        self._installed = True
        try:
            for name, (_, slot) in self._slots.items():
                setattr(torch.Tensor, name, slot)
            for name, (_, blind) in self._blind.items():
                setattr(torch.overrides, name, blind)
            for swap in self._swaps:
                swap.swap()
            capture.push_mode()
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Restore every original."""
        if not self._installed:
            return
        self._installed = False
        capture.remove_mode()
        for swap in self._swaps:
            swap.restore()
        for name, (original, _) in self._blind.items():
            setattr(torch.overrides, name, original)
        for name, (original, _) in self._slots.items():
            if name in self._own_attributes:
                setattr(torch.Tensor, name, original)
            elif name in torch.Tensor.__dict__:
                delattr(torch.Tensor, name)


def add_entry(prefix: str, name: str, risk: str = "FOCUS", qualified: str = "") -> Any:
    """The entry of one name in the C side's table."""
    positions, keyword, outputs = _MASKS.get((prefix, name), (0, "", 0))
    return capture.add_api(
        prefix,
        name,
        qualified,
        _RISKS[risk],
        name in _DROPOUTS.get(prefix, ()),
        prefix == "Distributed",
        positions,
        keyword,
        outputs,
    )


# Of torch.Tensor: they belong to the autograd graph or to Python, and compute nothing.
_NO_CALLS = {
    "__get__", "__set__", "__delete__", "backward", "register_hook", "register_post_accumulate_grad_hook",
    "retain_grad", "__repr__", "__format__", "__hash__", "__dir__", "__torch_function__", "__reduce_ex__",
    "__setstate__",
}  # fmt: skip


def _every_entry(function: Any) -> Any:
    """The entry of a function that no list names (risk_level EVERY); None for what is not recorded."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        space, _, name = str(function).partition(".")
        return add_entry("Aten" if space == "aten" else space, name.replace(".", "_"), "LOW")
    try:
        known = torch.overrides.resolve_name(function)
    except Exception:
        return None
    name = (known or "").rpartition(".")[2]
    if not name or name in _NO_CALLS or (name.startswith("_") and not name.startswith("__")):
        return None
    for start, prefix in (("torch.Tensor.", "Tensor"), ("torch.nn.functional.", "Functional"), ("torch.", "Torch")):
        if known is not None and known.startswith(start):
            qualified = known if prefix == "Torch" and known.count(".") > 1 else ""
            return add_entry(prefix, name, "LOW", qualified)
    return None


class CustomApis:
    """Functions that the user registered. They stay wrapped until they are restored."""

    def __init__(self) -> None:
        """Nothing is registered."""
        self._originals: dict[tuple[int, str], tuple[Any, Any, bool]] = {}

    def register(self, module: Any, name: str, prefix: str) -> None:
        """Wrap one attribute."""
        if (id(module), name) in self._originals:
            return
        interception()
        space = vars(module) if hasattr(module, "__dict__") else {}
        own = name in space
        original = space[name] if own else getattr(module, name)
        function = getattr(module, name)
        hook = capture.swap_hook(function, function, add_entry(prefix, name))

        def recorded(*args: Any, **kwargs: Any) -> Any:
            return hook(args, kwargs)

        capture.add_trampoline(recorded.__code__)
        functools.update_wrapper(recorded, function)
        wrapper: Any = staticmethod(recorded) if isinstance(original, staticmethod) else recorded
        setattr(module, name, wrapper)
        self._originals[id(module), name] = (module, original, own)

    def knows(self, module: Any, name: str) -> bool:
        """Whether this attribute is wrapped now."""
        return (id(module), name) in self._originals

    def put_back(self, module: Any, name: str, wrapper: Any) -> None:
        """Wrap an attribute again, by a wrapper that `register` has made."""
        own = name in (vars(module) if hasattr(module, "__dict__") else {})
        original = vars(module)[name] if own else getattr(module, name)
        setattr(module, name, wrapper)
        self._originals[id(module), name] = (module, original, own)

    def restore(self, module: Any, name: str) -> None:
        """Put the original back."""
        known = self._originals.pop((id(module), name), None)
        if known is None:
            return
        _, original, own = known
        if own:
            setattr(module, name, original)
        else:
            delattr(module, name)


custom_apis = CustomApis()


def _api_list() -> dict[str, Any]:
    text = importlib.resources.files("msprobe.pytorch").joinpath("api_list.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _owners(key: str) -> Iterator[Any]:
    """Where the names of a namespace are looked up; nothing for packages that the program did not import."""
    npu = sys.modules.get("torch_npu")
    if key == "functional":
        yield torch.nn.functional
    elif key == "_VF":
        yield torch._C._VariableFunctions
        yield torch._VF
    elif key == "tensor":
        yield torch.Tensor
    elif key == "torch":
        yield torch
    elif key == "distributed" and torch.distributed.is_available():
        yield torch.distributed
        yield torch.distributed.distributed_c10d
    elif key == "torch_npu" and npu is not None:
        yield torch.ops.npu
        yield npu
    elif key == "npu_distributed" and npu is not None and hasattr(npu, "distributed"):
        yield npu.distributed
    elif key == "mindspeed" and npu is not None and "mindspeed.ops" in sys.modules:
        yield sys.modules["mindspeed.ops"]


@functools.lru_cache(maxsize=1)
def interception() -> Interception:
    """The machinery of this process, built at the first use."""
    return Interception()
