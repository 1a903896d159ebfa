"""From the records of a dump to arguments: real tensors where there are files, reproducible random ones elsewhere.

Random values depend on seed, full name, place in the call and element only, so every device, worker, split or resumed
run gets the same bits. All tensors are made on the CPU in the recorded dtype.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from msprobe import _core
from msprobe.errors import ErrorCode, MsprobeError
from msprobe.precheck.dump import Record
from msprobe.precheck.memory import elements, item_sizes
from msprobe.precheck.names import words

MAX_DEPTH = 400
MAX_BYTES = 1 << 36
_SMALL_FILE = 1 << 26  # read whatever its record says, so that the difference can be named
_MASK_SHARE = 0.5  # of the largest number of a dtype: minima beyond are mask values, not part of the range
_KEY_MASK = (1 << 64) - 1
_TENSOR_TYPES = frozenset(("torch.Tensor", "torch.nn.parameter.Parameter"))
_INTEGERS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(1 << 15), (1 << 15) - 1),
    torch.uint16: (0, (1 << 16) - 1),
    torch.int32: (-(1 << 31), (1 << 31) - 1),
    torch.uint32: (0, (1 << 32) - 1),
    torch.int64: (-(1 << 63), (1 << 63) - 1),
    torch.uint64: (0, (1 << 64) - 1),
}
_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))
_NUMPY_NAMES = words(
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bool_ bool "
    "str_ string_ bytes_ unicode_"
)
_CODES_OF_FILES = {ErrorCode.NOT_FOUND: "no_data_file", ErrorCode.PATH_ESCAPE: "bad_path"}
_LAYOUT_NAMES = frozenset(("contiguous_format", "channels_last", "channels_last_3d", "preserve_format", "strided"))


# The size of their result is the number of true elements of a mask.
_SELECTING = frozenset(("masked_select", "nonzero"))


class Unsupported(Exception):
    """The call cannot be replayed: a code, a colon and a sentence."""


@dataclass(slots=True)
class Arguments:
    """Arguments of one call in recorded dtypes, on the CPU, without gradient tracking."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    wants_grad: set[int] = field(default_factory=set)  # id() of tensors that were recorded with requires_grad

    def tensors(self) -> list[torch.Tensor]:
        """All tensors, positional ones first, depth first."""
        out: list[torch.Tensor] = []
        collect(self.args, out)
        collect(self.kwargs, out)
        return out

    def has_float8(self) -> bool:
        """Is any tensor of an 8-bit float type?"""
        return any(str(t.dtype).startswith("torch.float8") for t in self.tensors())

    def checksum(self, seed: int) -> int:
        """Of all bytes of all tensors."""
        value = seed
        for t in self.tensors():
            value = _core.precheck_checksum(t.data_ptr(), t.numel() * t.element_size(), value)
        return value


def collect(value: Any, out: list[torch.Tensor]) -> None:
    """Append the tensors of a nested value, depth first."""
    if isinstance(value, torch.Tensor):
        out.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            collect(v, out)
    elif isinstance(value, dict):
        for v in value.values():
            collect(v, out)


@dataclass(slots=True)
class InputMaker:
    """Makes the arguments of one call."""

    full_name: str
    bare_name: str
    seed: int
    data_folder: str
    has_data_files: bool
    hf32: bool = False  # conv1d, conv2d on an NPU: float32 inputs rounded as its multiplier does
    most_bytes: int = MAX_BYTES  # of a tensor file

    def make(self, forward: dict[str, Record]) -> Arguments:
        """Arguments from an entry of the dump.

        Raises:
            Unsupported: A record that has no counterpart here, or a file that cannot be used.
        """
        positional = forward.get("input_args", forward.get("args"))
        keywords = forward.get("input_kwargs", forward.get("kwargs"))
        positional = [] if positional is None else positional
        keywords = {} if keywords is None else keywords
        if not isinstance(positional, list) or not isinstance(keywords, dict):
            raise Unsupported("bad_entry: input_args should be a list and input_kwargs an object")
        positional = prepare(self.bare_name, positional)
        out = Arguments()
        for i, record in enumerate(positional):
            out.args.append(self._value(record, f"input_args.{i}", out, 0))
        for key, record in keywords.items():
            out.kwargs[key] = self._value(record, f"input_kwargs.{key}", out, 0)
        if self.bare_name in _SELECTING:
            self._select_as_recorded(out, forward)
        if "out" in out.kwargs:
            out.wants_grad.clear()
        mode = out.kwargs.get("sparse_mode", 0)
        if self.bare_name == "npu_fusion_attention" and "atten_mask" in out.kwargs and mode in (2, 3, 4):
            out.kwargs["atten_mask"] = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
        return out

    def _select_as_recorded(self, out: Arguments, forward: dict[str, Record]) -> None:
        """Give a drawn mask as many true elements as the recorded result has, so that results have its size."""
        recorded = forward.get("output")
        first = recorded[0] if isinstance(recorded, list) and recorded else None
        shape = first.get("shape") if isinstance(first, dict) else None
        records = forward.get("input_args")
        if not isinstance(shape, list) or not shape or not isinstance(shape[0], int) or not isinstance(records, list):
            return
        for i, (value, record) in enumerate(zip(out.args, records, strict=False)):
            if not isinstance(value, torch.Tensor) or value.dtype != torch.bool or value.numel() < shape[0]:
                continue
            if isinstance(record, dict) and not (record.get("data_name") or record.get("datapath")):
                order = torch.empty(value.numel(), dtype=torch.float64)
                key = _core.precheck_stream_key(self.seed, self.full_name, f"input_args.{i}.order")
                _core.precheck_fill_uniform(order.data_ptr(), order.numel(), "torch.float64", 0.0, 1.0, key)
                value.view(-1).fill_(False)
                value.view(-1)[order.argsort(stable=True)[: shape[0]]] = True

    def gradients(self, backward: dict[str, Record]) -> list[torch.Tensor | None]:
        """The recorded gradients that arrive at the outputs, None where there was none."""
        records = backward.get("input", backward.get("grad_input"))
        if not isinstance(records, list):
            raise Unsupported("no_gradient: the backward entry holds no input gradients")
        plain = InputMaker(
            self.full_name, "", self.seed, self.data_folder, self.has_data_files, most_bytes=self.most_bytes
        )
        unused = Arguments()
        flat: list[torch.Tensor | None] = []
        for i, record in enumerate(records):
            value = plain._value(record, f"input.{i}", unused, 0)
            for v in value if isinstance(value, list) else [value]:
                flat.append(v if isinstance(v, torch.Tensor) else None)
        return flat

    def _value(self, record: Record, path: str, out: Arguments, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Unsupported(f"too_deep: arguments are nested more than {MAX_DEPTH} levels")
        if record is None or isinstance(record, (bool, int, float, str)):
            return record
        if isinstance(record, list):
            if path.startswith("input_kwargs") and any(r is None for r in record):
                # Earlier releases write null for what they cannot record, so this is no None of the caller's.
                raise Unsupported(f"unsupported_argument: {path} holds a value that was not recorded")
            return [self._value(r, f"{path}.{i}", out, depth + 1) for i, r in enumerate(record)]
        if not isinstance(record, dict):
            raise Unsupported(f"unsupported_argument: {path} has no known form")
        kind = record.get("type")
        if not isinstance(kind, str):
            return self._mapping(record, path, out, depth)
        if kind in _TENSOR_TYPES:
            tensor = self._tensor(record, path)
            if record.get("requires_grad") is True and (tensor.is_floating_point() or tensor.is_complex()):
                out.wants_grad.add(id(tensor))
            return tensor
        return _scalar(kind, record, path)

    def _mapping(self, record: dict[str, Record], path: str, out: Arguments, depth: int) -> dict[str, Any]:
        """A dict argument: earlier dumps lose its kind, so only ones whose values are records again are rebuilt."""
        if path.startswith("input_args"):
            raise Unsupported(f"unsupported_argument: {path} is a dict, which no tensor function takes")
        return {k: self._value(v, f"{path}.{k}", out, depth + 1) for k, v in record.items()}

    def _tensor(self, record: dict[str, Record], path: str) -> torch.Tensor:
        name = record.get("data_name") or record.get("datapath")
        tensor = self._load(str(name), record, path) if name else self._random(record, path)
        if self.bare_name == "cross_entropy" and tensor.dtype == torch.int32:
            tensor = tensor.to(torch.int64)
        elif self.bare_name == "histc" and tensor.dtype == torch.int64:
            tensor = tensor.to(torch.float32)
        if self.hf32 and tensor.dtype == torch.float32 and self.bare_name in ("conv1d", "conv2d"):
            bits = tensor.contiguous().view(torch.int32)
            tensor = ((bits + 0x800) & ~0xFFF).view(torch.float32)
        return tensor

    def _load(self, name: str, record: dict[str, Record], path: str) -> torch.Tensor:
        if not self.has_data_files:
            raise Unsupported(f"no_data_file: {path} names the file {name}, but the dump has no data folder")
        # Earlier releases write whole paths; what counts is the folder beside the dump.
        inside = os.path.basename(name) if os.path.isabs(name) else name
        shape, dtype = record.get("shape"), record.get("dtype")
        tensor = read_tensor(self.data_folder, inside, path, self._most(shape, dtype))
        if isinstance(shape, list) and list(tensor.shape) != shape:
            raise Unsupported(f"bad_data_file: {name} has shape {list(tensor.shape)}, recorded was {shape}")
        if isinstance(dtype, str) and str(tensor.dtype) != dtype:
            raise Unsupported(f"bad_data_file: {name} holds {tensor.dtype}, recorded was {dtype}")
        return tensor

    def _most(self, shape: Record, dtype: Record) -> int:
        """Bytes that a file may hold: about those of its record, which were counted before."""
        if not isinstance(shape, list) or not isinstance(dtype, str):
            return self.most_bytes
        return max(elements(shape) * item_sizes(dtype)[0], _SMALL_FILE)

    def _random(self, record: dict[str, Record], path: str) -> torch.Tensor:
        dtype = dtype_named(record.get("dtype"), path)
        shape = record.get("shape")
        if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise Unsupported(f"bad_record: {path} has no usable shape")
        if (count := elements(shape)) > MAX_BYTES:
            raise Unsupported(f"too_large: {path} would have {count} elements or more")
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.numel() == 0:
            return tensor
        key = _core.precheck_stream_key(self.seed, self.full_name, path)
        if dtype == torch.bool or dtype in _INTEGERS:
            fill_integers(tensor, record, key, path)
        elif dtype in _FLOATS or dtype in _COMPLEX:
            fill_floats(tensor, record, key, path)
        elif str(dtype).startswith("torch.float8"):
            wide = torch.empty(shape, dtype=torch.float32)
            fill_floats(wide, record, key, path)
            tensor = wide.to(dtype)
        else:
            raise Unsupported(f"unsupported_dtype: {path}: values of {dtype} cannot be drawn")
        return tensor


def read_tensor(folder: str, name: str, path: str, most: int = 0) -> torch.Tensor:
    """The tensor of a file, read by the core: nothing in it is executed, and its sizes are not believed.

    Raises:
        Unsupported: No such file, or it lies outside the folder, holds no tensor, or more than `most` bytes (0: any).
    """
    try:
        dtype, shape, data = _core.read_tensor(folder, name, most)
    except MsprobeError as e:
        code = _CODES_OF_FILES.get(e.code, "bad_data_file")
        raise Unsupported(f"{code}: {path}: {first_line(e)}") from None
    kind = dtype_named(dtype, path)
    return torch.frombuffer(data, dtype=kind).view(shape) if data else torch.empty(shape, dtype=kind)


def prepare(name: str, positional: list[Record]) -> list[Record]:
    """Changes of the records that an API needs so that random values are valid for it."""
    if name == "cross_entropy" and len(positional) >= 2 and isinstance(positional[1], dict):
        low = positional[1].get("Min")
        if isinstance(low, (int, float)) and low <= 0:
            positional = [*positional[:1], positional[1] | {"Min": 0}, *positional[2:]]
    if name == "histc" and positional and isinstance(positional[0], dict):
        integer = positional[0].get("dtype") in ("torch.int8", "torch.int32", "torch.int64")
        positional = [positional[0] | ({"dtype": "torch.float32"} if integer else {}), *positional[1:]]
    return positional


def dtype_named(text: Any, path: str) -> torch.dtype:
    """The dtype of "torch.float32"."""
    name = str(text).removeprefix("torch.")
    dtype = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(dtype, torch.dtype):
        raise Unsupported(f"unsupported_dtype: {path}: {text} is no dtype of this torch")
    return dtype


def _number(record: dict[str, Record], *keys: str) -> float | int | None:
    """The first of the keys that holds a number; non-finite ones may be quoted."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                continue
    return None


def fill_integers(tensor: torch.Tensor, record: dict[str, Record], key: int, path: str) -> None:
    """Uniform integers in the recorded range, both ends included and placed first and last."""
    low, high = _number(record, "Min"), _number(record, "Max")
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        raise Unsupported(f"no_range: {path} was recorded without Max and Min")
    first, last = (int(low), int(high)) if low <= high else (int(high), int(low))
    is_bool = tensor.dtype == torch.bool
    if not is_bool:
        least, most = _INTEGERS[tensor.dtype]
        first, last = max(first, least), min(last, most)
        if first > last:
            raise Unsupported(f"bad_range: {path}: {low} to {high} is outside {tensor.dtype}")
    start = first if first < 1 << 63 else first - (1 << 64)
    _core.precheck_fill_integers(tensor.data_ptr(), tensor.numel(), str(tensor.dtype), start, last - first, key)
    if not is_bool and tensor.dtype not in (torch.uint16, torch.uint32, torch.uint64):
        flat = tensor.view(-1)
        flat[0] = first
        flat[-1] = last


def fill_floats(tensor: torch.Tensor, record: dict[str, Record], key: int, path: str) -> None:
    """Uniform finite values between the finite extremes, which stand first and last, and few special ones.

    One NaN or infinity in the recorded tensor makes one here, not a tensor full of them. A minimum near the most
    negative number of the dtype is a mask's: it is put in half of the places, the others are of the size of the
    maximum. Without finite extremes the range comes from Mean and Norm, or is [-1, 1].
    """
    low0, high0 = _number(record, "Min"), _number(record, "Max")
    low = _number(record, "Min_except_inf_nan", "finite_min", "Min")
    high = _number(record, "Max_except_inf_nan", "finite_max", "Max")
    if low is None or high is None or low0 is None or high0 is None:
        raise Unsupported(f"no_range: {path} was recorded without Max and Min")
    flat = tensor.view(-1)
    if low0 == high0 and math.isinf(low0):
        flat.fill_(low0)
        return
    bound = float(torch.finfo(tensor.dtype).max)
    first, last = finite_range(float(low), float(high), record, tensor.numel())
    fill = None
    if first <= -_MASK_SHARE * bound and last < _MASK_SHARE * bound:
        fill, first = max(first, -bound), -abs(last)
    first, last = max(first, -bound), min(last, bound)
    _core.precheck_fill_uniform(tensor.data_ptr(), tensor.numel(), str(tensor.dtype), first, last, key)
    if fill is not None:
        masked = torch.empty(tensor.shape, dtype=torch.bool)
        _core.precheck_fill_integers(masked.data_ptr(), masked.numel(), "torch.bool", 0, 1, key + 1 & _KEY_MASK)
        tensor.masked_fill_(masked, fill)
    flat[0] = low0 if math.isinf(low0) else first if fill is None else fill
    flat[-1] = high0 if math.isinf(high0) else last
    if math.isnan(low0) or math.isnan(high0) or (_number(record, "nan") or 0) > 0:
        flat[1 if flat.numel() > 2 else 0] = math.nan


def finite_range(low: float, high: float, record: dict[str, Record], count: int) -> tuple[float, float]:
    """A finite range for values of which low and high are said."""
    if math.isfinite(low) and math.isfinite(high):
        return (low, high) if low <= high else (high, low)
    mean, norm = _number(record, "Mean"), _number(record, "Norm")
    if mean is not None and norm is not None and math.isfinite(mean) and math.isfinite(norm):
        spread = max(norm / math.sqrt(max(count, 1)), abs(mean), 1e-30) * math.sqrt(3)
        low = low if math.isfinite(low) else mean - spread
        high = high if math.isfinite(high) else mean + spread
        return (low, high) if low <= high else (high, low)
    if math.isfinite(low):
        return low, max(1.0, -low, 2 * low)
    if math.isfinite(high):
        return min(-1.0, -high, 2 * high), high
    return -1.0, 1.0


def _scalar(kind: str, record: dict[str, Record], path: str) -> Any:
    value = record.get("value")
    if kind.startswith("numpy."):
        return _numpy_scalar(kind, value, path)
    if kind == "torch.Size":
        return torch.Size(value or [])
    if kind == "slice":
        return slice(*value) if isinstance(value, list) and len(value) == 3 else slice(None)
    if kind == "ellipsis":
        return Ellipsis
    if kind == "torch.dtype":
        return dtype_named(value, path)
    if kind == "torch.device":
        return DeviceWord(str(value))
    if kind in ("torch.memory_format", "torch.layout"):
        name = str(value).removeprefix("torch.")
        return getattr(torch, name) if name in _LAYOUT_NAMES else None
    if kind == "float" and isinstance(value, str):
        return _number({"value": value}, "value")
    if kind == "complex" and isinstance(value, (list, str)):
        return complex(*value) if isinstance(value, list) else complex(value)
    if isinstance(value, str) and value.startswith("torch.") and kind != "str":
        return dtype_named(value, path)
    return value


def _numpy_scalar(kind: str, value: Any, path: str) -> Any:
    name = kind.removeprefix("numpy.")
    if name not in _NUMPY_NAMES:
        raise Unsupported(f"unsupported_argument: {path} is a {kind}")
    name = {"string_": "bytes_", "unicode_": "str_"}.get(name, name)
    try:
        return getattr(np, name)(value)
    except (TypeError, ValueError, OverflowError):
        raise Unsupported(f"bad_record: {path}: {value!r} is no {kind}") from None


class DeviceWord(str):
    """A recorded device ("npu:0"): becomes the device in use, and nothing for the reference."""

    __slots__ = ()


def first_line(e: BaseException) -> str:
    """What an exception says, in one line; its type when it says nothing."""
    text = str(e).strip()
    return text.splitlines()[0][:300] if text else type(e).__name__
