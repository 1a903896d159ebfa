"""Choice of the device under test, its autocast, its copies."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.errors import ErrorCode, PrecheckError
from msprobe.precheck.functions import npu_package


@dataclass(frozen=True, slots=True)
class Device:
    """Where candidate calls run."""

    kind: str  # npu, cuda, cpu
    index: int

    @property
    def name(self) -> str:
        """As torch spells it."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def is_cpu(self) -> bool:
        """The candidate is the CPU kernel itself."""
        return self.kind == "cpu"

    def describe(self) -> str:
        """A person's name of it."""
        if self.kind == "cuda":
            return str(torch.cuda.get_device_name(self.index))
        if self.kind == "npu":
            return str(torch.npu.get_device_name(self.index))  # type: ignore[attr-defined]
        return "CPU"

    def to(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy there; the same tensor on the CPU."""
        return tensor if self.is_cpu else tensor.to(self.name)

    def autocast(self, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
        """The device's autocast in a half type; nothing for others."""
        if dtype not in (torch.float16, torch.bfloat16):
            return contextlib.nullcontext()
        return torch.autocast(self.kind, dtype=dtype)

    def empty_cache(self) -> None:
        """Give cached memory back, after an allocation failed."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        elif self.kind == "npu":
            torch.npu.empty_cache()  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1)
def _available() -> list[str]:
    kinds = []
    npu = npu_package()
    if npu is not None and torch.npu.is_available():  # type: ignore[attr-defined]
        kinds.append("npu")
    if torch.cuda.is_available():
        kinds.append("cuda")
    return kinds


def choose_device(kind: str, index: int, *, jit_compile: bool = False, tf32: bool = False) -> Device:
    """The device to run on, set up for exact work.

    Args:
        kind: npu, cuda, cpu, auto (NPU, CUDA, then CPU) or empty (NPU, then CUDA).
        index: Its number.
        jit_compile: NPU: compile operators just in time and allow private formats.
        tf32: CUDA: allow TF32 and reduced-precision sums.

    Raises:
        PrecheckError: There is no such device; never another one silently.
    """
    found = _available()
    if not kind and not found:
        raise PrecheckError(
            ErrorCode.NOT_FOUND,
            "--device: no NPU and no CUDA device answers; use --device cpu to replay on this machine's CPU",
        )
    chosen = kind if kind not in ("", "auto") else (found[0] if found else "cpu")
    if chosen != "cpu" and chosen not in found:
        raise PrecheckError(ErrorCode.NOT_FOUND, f"--device: no {chosen} device answers; use --device auto or cpu")
    device = Device(chosen, 0 if chosen == "cpu" else index)
    try:
        _set_up(device, jit_compile, tf32)
    except (RuntimeError, AssertionError) as e:
        raise PrecheckError(
            ErrorCode.NOT_FOUND, f"-d: {device.name} cannot be used: {str(e).splitlines()[0]}"
        ) from None
    return device


def _set_up(device: Device, jit_compile: bool, tf32: bool) -> None:
    if device.kind == "cuda":
        torch.cuda.set_device(device.index)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = tf32
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = tf32
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    elif device.kind == "npu":
        npu = torch.npu  # type: ignore[attr-defined]
        npu.set_device(device.index)
        npu.set_compile_mode(jit_compile=jit_compile)
        npu.config.allow_internal_format = jit_compile
    else:
        torch.set_flush_denormal(False)
