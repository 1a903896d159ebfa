"""Recorded calls made ready for replays in float64: arguments, recorded results, probes, the two ways to run them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import _core
from msprobe.precheck.devices import Device
from msprobe.precheck.dump import Call, Dump
from msprobe.precheck.functions import Function, candidates
from msprobe.precheck.inputs import Arguments, InputMaker, Unsupported
from msprobe.precheck.precision import Copier, Copy, device_copier

PROBE_STEP = 1e-6
SIXTEEN = (torch.float16, torch.bfloat16)


def in_float_roundoffs(dtype: torch.dtype) -> float:
    """Roundoff of a type by that of float32, which kappa counts in."""
    return torch.finfo(dtype).eps / torch.finfo(torch.float32).eps


# Results that are no values of their inputs.
_VALUELESS = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "randperm"))


class Side:
    """One dump: its calls by name."""

    def __init__(self, dump: Dump) -> None:
        """The calls of a dump."""
        self._dump = dump
        self._calls = {call.name: call for call in dump.calls}

    def call(self, name: str) -> Call:
        """A call by its name.

        Raises:
            Unsupported: It is not there.
        """
        call = self._calls.get(name)
        if call is None or call.forward is None:
            raise Unsupported("no_entry: the call is not in the dump")
        return call

    def maker(self, name: str, bare: str) -> InputMaker:
        """Makes tensors from records; only from files."""
        return InputMaker(name, bare, 0, self._dump.data_folder, self._dump.has_data_files)


@dataclass(slots=True)
class Prepared:
    """A call with its arguments."""

    call: Call
    bare: str
    last: str
    arguments: Arguments
    functions: list[Function]
    outputs: list[tuple[str, torch.Tensor]]  # as recorded, in order
    autocast: torch.dtype | None = None


def prepare(side: Side, name: str) -> Prepared:
    """A call with its recorded tensors.

    Raises:
        Unsupported, UnknownFunction: It cannot be replayed.
    """
    call = side.call(name)
    assert call.forward is not None
    parts = name.split(".")
    if parts[0] in ("Distributed", "MindSpeed") or len(parts) < 3:
        raise Unsupported("unsupported: calls of this kind are not replayed")
    bare = ".".join(parts[1:-1])
    last = bare.rpartition(".")[2]
    if last in _VALUELESS:
        raise Unsupported("valueless: the result is no value of its inputs")
    maker = side.maker(name, bare)
    refuse_missing(call.forward.get("input_args"))
    refuse_missing(call.forward.get("input_kwargs"))
    arguments = maker.make(call.forward)
    if "out" in arguments.kwargs:
        raise Unsupported("out_argument: calls with out= are not replayed")
    qualified = call.forward.get("qualified")
    functions = [f for _, f in candidates(parts[0], bare, qualified if isinstance(qualified, str) else "")]
    outputs = records(maker, call.forward.get("output"), "output")
    if not outputs:
        outputs = [
            (key, tensor)
            for key, value in (call.forward.get("mutated") or {}).items()
            if isinstance(value, dict) and "dtype" in value
            for _, tensor in records(maker, [value], key)
        ]
    prepared = Prepared(call, bare, last, arguments, functions, outputs)
    prepared.autocast = autocast_of(prepared)
    return prepared


def refuse_missing(value: Any) -> None:
    """Inputs without a file are drawn at random by the pre-check; here they are no evidence."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            if not (value.get("data_name") or value.get("datapath")) and 0 not in (value["shape"] or [1]):
                raise Unsupported("no_data_file: an input has no tensor file")
            return
        for v in value.values():
            refuse_missing(v)
    elif isinstance(value, list):
        for v in value:
            refuse_missing(v)


def records(maker: InputMaker, value: Any, path: str) -> list[tuple[str, torch.Tensor]]:
    """The recorded tensors of a part of an entry, each with the name of its leaf."""
    if isinstance(value, list):
        return [r for i, v in enumerate(value) for r in records(maker, v, f"{path}.{i}")]
    if not isinstance(value, dict):
        return []
    if "dtype" in value and "shape" in value:
        refuse_missing(value)
        return [(path, maker._tensor(value, path))]
    return [r for k, v in value.items() if isinstance(v, (dict, list)) for r in records(maker, v, f"{path}.{k}")]


def autocast_of(prepared: Prepared) -> torch.dtype | None:
    """The 16-bit type that autocast ran the call in; None: it did not."""
    first = next((t for _, t in prepared.outputs), None)
    if first is None or first.dtype not in SIXTEEN or not _core.culprit_is_low_precision(prepared.last):
        return None
    wide = any(t.dtype == torch.float32 for t in prepared.arguments.tensors())
    return first.dtype if wide else None


def raised(arguments: Arguments, rounding: torch.dtype | None, signs: torch.Generator | None, *, grad: bool) -> Copy:
    """Arguments in float64; first rounded as autocast does, or each element changed by a relative step (a probe)."""

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(torch.complex128)
        if not tensor.is_floating_point():
            return tensor
        if rounding is not None and tensor.dtype == torch.float32:
            tensor = tensor.to(rounding)
        wide = tensor.to(torch.float64, copy=True)
        return wide if signs is None else probe(wide, signs)

    copy = Copier(convert, None, arguments.wants_grad, backward=grad).copy(arguments)
    copy.args = [wide_type(v) for v in copy.args]
    copy.kwargs = {k: wide_type(v) for k, v in copy.kwargs.items()}
    return copy


def probe(tensor: torch.Tensor, signs: torch.Generator) -> torch.Tensor:
    """Return x (1 + h xi) with xi = 1 or -1 at random."""
    xi = torch.randint(0, 2, tensor.shape, generator=signs, dtype=torch.int8)
    return tensor * (1 + PROBE_STEP * (2.0 * xi.to(torch.float64) - 1))


def wide_type(value: Any) -> Any:
    """Floating dtypes among the arguments become float64."""
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def own(prepared: Prepared, *, grad: bool) -> Copy:
    """Arguments in their recorded types."""
    return device_copier(Device("cpu", 0), prepared.arguments, backward=grad).copy(prepared.arguments)


def execute(function: Function, copy: Copy, *, grad: bool) -> Any:
    """Call a function; one that returns nothing has changed its first argument."""
    with torch.enable_grad() if grad else torch.no_grad():
        result = function(*copy.args, **copy.kwargs)
    if result is None and copy.args and isinstance(copy.args[0], torch.Tensor):
        return copy.args[0]
    return result


def native_call(prepared: Prepared, function: Function, *, grad: bool) -> Any:
    """The call on the CPU in its own types, under the recorded autocast."""
    copy = own(prepared, grad=grad)
    with contextlib.ExitStack() as stack:
        if prepared.autocast is not None:
            stack.enter_context(torch.autocast("cpu", dtype=prepared.autocast))
        return execute(function, copy, grad=grad)
