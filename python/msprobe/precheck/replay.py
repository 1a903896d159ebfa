"""Replaying one recorded call: inputs, the two calls, gradients, rows."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from msprobe import _core
from msprobe.errors import ErrorCode, PrecheckError
from msprobe.precheck import fused
from msprobe.precheck.devices import Device
from msprobe.precheck.dump import Call
from msprobe.precheck.error_data import save_error_data
from msprobe.precheck.functions import Function, UnknownFunction, candidates, npu_package
from msprobe.precheck.inputs import Arguments, InputMaker, Unsupported, first_line
from msprobe.precheck.judging import Context, dropout_rows, host, rows_of
from msprobe.precheck.memory import machine_bytes, needed_bytes, shown
from msprobe.precheck.names import words
from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome, skipped
from msprobe.precheck.precision import (
    Copy,
    Precision,
    choose_precision,
    device_copier,
    flat_tensors,
    largest_rms,
    reference_copier,
)
from msprobe.precheck.random_ops import dropout_share, is_random, judge_dropout, random_rows
from msprobe.precheck.settings import Settings

Candidate = Callable[[str, Function, list[Any], dict[str, Any]], Any]

_NO_BACKWARD = {
    "repeat_interleave": "no_backward_data: repeat_interleave records no backward data",
    "masked_select": "backward_unsupported: the gradient of masked_select has the size of its random selection",
}
# Their results amplify rounding by the condition of the input, so a fixed bound says nothing.
_AMPLIFYING = words(
    "cholesky cholesky_inverse cholesky_solve cond corrcoef cov cumprod cumprod_ det eig eigh eigvals eigvalsh "
    "geqrf householder_product inv inverse ldl_factor ldl_solve logdet lstsq lu lu_factor lu_solve matrix_exp "
    "matrix_power matrix_rank orgqr ormqr pinv pinverse pow pow_ __pow__ __ipow__ __rpow__ prod qr renorm slogdet "
    "solve solve_triangular svd svdvals symeig tensorinv tensorsolve triangular_solve"
)


@dataclass(slots=True)
class _Side:
    """One of the calls: its arguments and result."""

    copy: Copy
    output: Any


def load_candidate(text: str) -> Candidate | None:
    """The function of --candidate module:function.

    Raises:
        PrecheckError: It cannot be imported or is no function.
    """
    if not text:
        return None
    module, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as e:  # whatever the user's module raises while it is imported
        raise PrecheckError(ErrorCode.NOT_FOUND, f"--candidate: {text}: {first_line(e)}") from None
    if not callable(found):
        raise PrecheckError(ErrorCode.INVALID_ARGUMENT, f"--candidate: {text} is no function")
    return found  # type: ignore[no-any-return]


def is_out_of_memory(e: Exception) -> bool:
    """Did an allocation fail, on the device or here?"""
    if isinstance(e, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(e, RuntimeError) and ("can't allocate memory" in str(e) or "out of memory" in str(e))


class Replayer:
    """Replays calls of one dump on one device."""

    def __init__(
        self,
        options: Options,
        settings: Settings | None,
        device: Device,
        data_folder: str,
        has_data_files: bool,
        error_folder: str = "",
    ) -> None:
        """Nothing is run yet. `error_folder`: where tensors of calls that fail are saved; empty: nowhere.

        Raises:
            PrecheckError: The candidate cannot be loaded.
        """
        self._error_folder = error_folder
        self._options = options
        self._settings = settings
        self._device = device
        self._data_folder = data_folder
        self._has_data_files = has_data_files
        self._candidate = load_candidate(options.candidate)
        self._memory = options.memory_limit or machine_bytes()
        self._base = options.rules == "base"
        self._corrected = options.small_values == "corrected"
        self._old = options.standard == "old"
        self._hf32 = self._base or device.kind == "npu"
        self._baseline_rows = options.baseline == "cpu"
        self._with_baseline = self._baseline_rows or (
            not self._base and (not device.is_cpu or self._candidate is not None)
        )

    def run(self, call: Call) -> Outcome:
        """Replay a call. Never raises for what is wrong with the call: that is a SKIP with its reason."""
        if call.forward is None:
            return skipped(call.name, call.problem)
        parts = call.name.split(".")
        if parts[0] in ("Distributed", "MindSpeed"):
            return skipped(call.name, f"unsupported: {parts[0]} calls need other processes and are not replayed")
        if len(parts) not in (3, 4):
            return skipped(call.name, "unsupported: the name is not Type.name.N")
        bare = ".".join(parts[1:-1])
        if self._settings is not None and (reason := self._settings.skip_reason(bare)):
            return skipped(call.name, reason)
        if reason := self._too_large(call):
            return skipped(call.name, reason)
        try:
            return self._run_twice(call, parts[0], bare)
        except (Unsupported, UnknownFunction) as e:
            return skipped(call.name, str(e))
        except Exception as e:  # operators raise anything
            if is_out_of_memory(e):
                return skipped(call.name, f"out_of_memory: {first_line(e)}")
            return skipped(call.name, f"failed: {type(e).__name__}: {first_line(e)}")

    def _too_large(self, call: Call) -> str:
        needs = needed_bytes(call, on_cpu=self._device.is_cpu, always_f64=self._options.reference == "f64")
        if needs <= self._memory:
            return ""
        limit = "--memory-limit" if self._options.memory_limit else "this machine"
        return f"memory_limit: its tensors take {shown(needs)}, more than the {shown(self._memory)} of {limit}"

    def _run_twice(self, call: Call, prefix: str, bare: str) -> Outcome:
        """A call that ran out of memory gets a second chance when everything that can be freed is free."""
        try:
            return self._run(call, prefix, bare)
        except Exception as e:
            if not is_out_of_memory(e):
                raise
        gc.collect()
        self._device.empty_cache()
        try:
            return self._run(call, prefix, bare)
        finally:
            self._device.empty_cache()

    def _run(self, call: Call, prefix: str, bare: str) -> Outcome:
        assert call.forward is not None
        functions = self._functions(call, prefix, bare)
        maker = self._maker(call, bare)
        arguments = maker.make(call.forward)
        if self._base and self._device.kind != "npu" and arguments.has_float8():
            raise Unsupported(f"unsupported_dtype: 8-bit floats are not replayed on {self._device.kind}")
        work = _Work(self, call, bare, maker, arguments)
        outcome = Outcome(call.name, "pass", " ", inputs=arguments.checksum(self._options.seed))
        work.run(functions, outcome)
        mark = f"inputs={outcome.inputs:016x}"
        for row in (*outcome.rows, *outcome.baseline_rows):
            row.message = f"{row.message}\n{mark}" if row.message else mark
        if self._error_folder and {outcome.forward, outcome.backward} & {"warning", "error"}:
            outcome.warning = save_error_data(self._error_folder, call, outcome, work.parts(), self._options.seed)
        return outcome

    def _maker(self, call: Call, bare: str) -> InputMaker:
        return InputMaker(
            call.name, bare, self._options.seed, self._data_folder, self._has_data_files, self._hf32, self._memory
        )

    def prepare(self, call: Call) -> Prepared:
        """The arguments and functions of a call, for tools that run it themselves.

        Raises:
            Unsupported, UnknownFunction: It cannot be replayed.
        """
        if call.forward is None:
            raise Unsupported(call.problem)
        parts = call.name.split(".")
        if parts[0] in ("Distributed", "MindSpeed") or len(parts) not in (3, 4):
            raise Unsupported("unsupported: calls of this kind are not replayed")
        bare = ".".join(parts[1:-1])
        maker = self._maker(call, bare)
        return Prepared(call, bare, maker, maker.make(call.forward), self._functions(call, parts[0], bare))

    def judge(self, prepared: Prepared) -> tuple[Outcome, _Work]:
        """Run a prepared call. Raises whatever the operator raises."""
        work = _Work(self, prepared.call, prepared.bare, prepared.maker, prepared.arguments)
        outcome = Outcome(prepared.call.name, "pass", " ")
        work.run(prepared.functions, outcome)
        return outcome, work

    def three_results(self, call: Call) -> tuple[Any, Any, Any]:
        """Results of the device and of the CPU in the recorded dtypes, and of the CPU in float64."""
        prepared = self.prepare(call)
        work = _Work(self, dataclasses.replace(call, backward=None), prepared.bare, prepared.maker, prepared.arguments)
        return work.three_results(prepared.functions)

    def _functions(self, call: Call, prefix: str, bare: str) -> list[tuple[Function, Function]]:
        """Pairs of device function and reference function to try, likeliest first."""
        assert call.forward is not None
        if prefix == "NPU":
            reference = fused.reference_function(bare)
            package = npu_package() if self._device.kind == "npu" else None
            real = getattr(package, bare, None)
            if real is None:
                raise UnknownFunction(f"no_npu: {bare} needs an NPU; no NPU operator here")
            return [(real, reference)]
        if prefix == "VF" and self._base:
            raise UnknownFunction("unsupported: calls recorded as VF are not replayed by the base rules")
        qualified = call.forward.get("qualified")
        found = candidates(prefix, bare, qualified if isinstance(qualified, str) else "")
        return [(f, f) for _, f in found]


class Gradients(Protocol):
    """Where the gradients that arrive at the outputs come from."""

    seed: int

    def gradients(self, backward: dict[str, Any]) -> list[torch.Tensor | None]:
        """One for each recorded gradient."""


@dataclass(slots=True)
class Prepared:
    """A call that is ready to run."""

    call: Call
    bare: str
    maker: Gradients
    arguments: Arguments
    functions: list[tuple[Function, Function]]


class _Work:
    """The steps of one call."""

    def __init__(self, owner: Replayer, call: Call, bare: str, maker: Gradients, arguments: Arguments) -> None:
        assert call.forward is not None
        self._owner = owner
        self._call = call
        self._forward_record = call.forward
        self._bare = bare
        self._last = bare.rpartition(".")[2]
        self._maker = maker
        self._arguments = arguments
        self._device = owner._device
        self._backward_reason = self._why_no_backward()
        self._backward_due = call.backward is not None and not self._backward_reason
        self._precision: Precision = choose_precision(
            arguments, call.forward, always_f64=owner._options.reference == "f64"
        )
        self._is_dropout = "dropout" in call.name
        self._is_random = is_random(self._last, arguments.args, arguments.kwargs)
        self._reference: _Side | None = None
        self._candidate: _Side | None = None
        self._gradients: list[torch.Tensor | None] = []

    def _why_no_backward(self) -> str:
        reasons = []
        if "out" in self._arguments.kwargs:
            reasons.append("out_argument: a call with out= has no gradient")
        if self._last in _NO_BACKWARD:
            reasons.append(_NO_BACKWARD[self._last])
        return "; ".join(reasons)

    def run(self, functions: list[tuple[Function, Function]], outcome: Outcome) -> None:
        """Both calls, gradients, and the rows and statuses of the outcome."""
        if len(functions) == 1 and not self._device.is_cpu:
            # Devices work asynchronously: the reference is computed meanwhile.
            self._candidate = self._call_device(functions[0][0])
        real, self._reference = self._call_reference(functions)
        if self._candidate is None:
            self._candidate = self._call_device(real)
        baseline = self._call_baseline(real)
        context = self._context()
        context.q_rules = context.q_rules and not self._is_dropout
        rows = self._rows(
            context,
            f"{self._call.name}.forward.output",
            self._reference.output,
            self._candidate.output,
            baseline.output if baseline else None,
        )
        outcome.rows = rows
        if baseline is not None:
            outcome.baseline_rows = self._baseline_rows(context, rows, self._reference.output, baseline.output)
        outcome.forward = self._worst(rows)
        if outcome.forward == "SKIP" and rows:
            outcome.message = rows[0].message
        self._backward(baseline, context, outcome)

    def three_results(self, functions: list[tuple[Function, Function]]) -> tuple[Any, Any, Any]:
        """Device, CPU and CPU in float64; all in the recorded dtypes but the last."""
        real, _ = self._call_reference(functions)
        there = self._call_device(real).output
        here = self._execute(
            real, device_copier(Device("cpu", 0), self._arguments, backward=False).copy(self._arguments), 0
        )
        precision = Precision(torch.float64, None)
        copier = reference_copier(self._last, precision, self._arguments, base=False, hf32=False, backward=False)
        return there, here, self._execute(real, copier.copy(self._arguments), 0)

    # ---- calls

    def _call_reference(self, functions: list[tuple[Function, Function]]) -> tuple[Function, _Side]:
        """The first function that takes the arguments and gives the recorded shapes; the last error when none does."""
        error: Exception | None = None
        fallback: tuple[Function, _Side] | None = None
        for real, reference in functions:
            copier = reference_copier(
                self._last,
                self._precision,
                self._arguments,
                base=self._owner._base,
                hf32=self._owner._hf32,
                backward=self._backward_due,
            )
            copy = copier.copy(self._arguments)
            try:
                side = _Side(copy, self._execute(reference, copy, 0))
            except Exception as e:
                error = error or e
                continue
            if len(functions) == 1 or self._fits(side.output):
                return real, side
            fallback = fallback or (real, side)
        if fallback:
            return fallback
        assert error is not None
        if len(functions) > 1 and error.args and "deprecated" in str(error):
            raise Unsupported("ambiguous_function: none of the functions of this name takes the recorded arguments")
        raise error

    def _fits(self, output: Any) -> bool:
        """Do shapes agree with the recorded outputs (as far as there are any)?"""
        recorded = self._forward_record.get("output")
        if not isinstance(recorded, list) or not recorded:
            return True
        shapes = [r.get("shape") for r in recorded if isinstance(r, dict) and "shape" in r]
        return shapes == [list(t.shape) for t in flat_tensors(output)]

    def _call_device(self, real: Function) -> _Side:
        copy = device_copier(self._device, self._arguments, backward=self._backward_due).copy(self._arguments)
        candidate = self._owner._candidate
        with self._device.autocast(self._precision.autocast):
            if candidate is None:
                return _Side(copy, self._execute(real, copy, 1))

            def call(*args: Any, **kwargs: Any) -> Any:
                return candidate(self._call.name, real, list(args), kwargs)

            return _Side(copy, self._execute(call, copy, 1))

    def _call_baseline(self, real: Function) -> _Side | None:
        """The CPU in the recorded dtypes: what rounding alone does to this call."""
        if not self._owner._with_baseline or self._is_dropout or self._is_random:
            return None
        cpu = Device("cpu", 0)
        copy = device_copier(cpu, self._arguments, backward=self._backward_due).copy(self._arguments)
        try:
            with cpu.autocast(self._precision.autocast):
                return _Side(copy, self._execute(real, copy, 0))
        except Exception:  # a dtype that the CPU has no kernel for: no baseline
            return None

    def _execute(self, function: Function, copy: Copy, draw: int) -> Any:
        if self._is_random or self._is_dropout:
            torch.manual_seed((self._maker.seed << 1) + draw)
        mode = torch.enable_grad() if self._backward_due else torch.no_grad()
        with mode:
            result = function(*copy.args, **copy.kwargs)
        if result is None and not self._owner._base and copy.args and isinstance(copy.args[0], torch.Tensor):
            return copy.args[0]  # __setitem__ and its like: what they changed is their result
        return result

    # ---- gradients

    def _backward(self, baseline: _Side | None, context: Context, outcome: Outcome) -> None:
        prefix = f"{self._call.name}.backward.output"
        reason = self._backward_reason
        if self._backward_due:
            try:
                reason = self._run_backward(prefix, baseline, context, outcome)
            except Unsupported as e:
                reason = str(e)
            except Exception as e:
                reason = f"backward_failed: {type(e).__name__}: {first_line(e)}"
        if reason:
            outcome.backward = "SKIP"
            outcome.rows.append(_core.PrecheckRow(f"{prefix}.0", "SKIP", reason))
            outcome.message = outcome.message or reason

    def _run_backward(self, prefix: str, baseline: _Side | None, context: Context, outcome: Outcome) -> str:
        """Rows of the gradients; a reason when there are none."""
        assert self._call.backward is not None and self._reference is not None and self._candidate is not None
        self._gradients = self._maker.gradients(self._call.backward)
        if self._is_random and not self._is_dropout:
            return "random: gradients of random results are not compared"
        targets = match_gradients(self._reference.output, self._gradients)
        if isinstance(targets, str):
            return targets
        if self._device.is_cpu:
            run_gradients(self._reference.output, targets, None)
            run_gradients(self._candidate.output, targets, self._device)
        else:  # as the forward: the device works meanwhile
            run_gradients(self._candidate.output, targets, self._device)
            run_gradients(self._reference.output, targets, None)
        kept = None
        if baseline is not None:
            with contextlib.suppress(Exception):  # no baseline then
                run_gradients(baseline.output, targets, None)
                kept = gradients_of(baseline.copy, baseline.copy)
        bench = gradients_of(self._reference.copy, self._reference.copy)
        device = gradients_of(self._candidate.copy, self._reference.copy)
        if not bench:
            return ""
        context.gradient = True
        if context.q_rules:
            given = [g for g in self._gradients if g is not None]
            context.scale = largest_rms([*given, *(g for g in bench if g is not None)])
            context.input_elements = max([g.numel() for g in given], default=1)
        rows = self._rows(context, prefix, bench, device, kept)
        outcome.rows.extend(rows)
        if kept is not None:
            outcome.baseline_rows.extend(self._baseline_rows(context, rows, bench, kept))
        outcome.backward = self._worst(rows)
        return ""

    # ---- judging

    def _context(self) -> Context:
        owner = self._owner
        tensors = self._arguments.tensors()
        context = Context(
            self._last,
            any(str(t.dtype).startswith("torch.float8") for t in tensors),
            owner._old,
            not owner._base,
            amplifies=self._last in _AMPLIFYING,
            corrected=owner._corrected,
        )
        if context.q_rules:
            context.scale = largest_rms(tensors)
            context.input_elements = max([t.numel() for t in tensors], default=1)
        return context

    def _rows(self, context: Context, prefix: str, bench: Any, device: Any, kept: Any) -> list[_core.PrecheckRow]:
        if self._is_dropout:
            rows = dropout_rows(context, prefix, bench, device)
            self._judge_dropout(rows[0], context, device)
            return rows
        if self._is_random:
            return random_rows(self._last, prefix, bench, device)
        return rows_of(context, prefix, bench, device, kept)

    def _judge_dropout(self, row: _core.PrecheckRow, context: Context, device: Any) -> None:
        """The default rules know what dropout does to its input, or its gradient to the one that arrives."""
        found = flat_tensors(device)
        sources = [g for g in self._gradients if g is not None] if context.gradient else self._arguments.tensors()
        if self._owner._base or row.status == "SKIP" or not found or not sources:
            return
        p = dropout_share(self._arguments.args, self._arguments.kwargs)
        judge_dropout(row, self._last, p, sources[0], host(found[0]))

    def _baseline_rows(
        self, context: Context, like: list[_core.PrecheckRow], bench: Any, baseline: Any
    ) -> list[_core.PrecheckRow]:
        """The baseline judged as a device of its own, by the base rules: findings are the device's business."""
        if not self._owner._baseline_rows or not like:
            return []
        base = dataclasses.replace(context, q_rules=False)
        return rows_of(base, like[0].name.rpartition(".")[0], bench, baseline, None)

    def _worst(self, rows: list[_core.PrecheckRow]) -> str:
        statuses = {row.status for row in rows}
        for status in ("error", "warning", "pass"):
            if status in statuses:
                return status
        if not statuses:
            return " "
        return "pass" if self._owner._base and self._call.name.partition(".")[0] != "VF" else "SKIP"

    @property
    def precision(self) -> Precision:
        """Dtypes of the reference and of autocast."""
        return self._precision

    @property
    def is_random(self) -> bool:
        """Does the call draw numbers?"""
        return self._is_random or self._is_dropout

    def targets(self) -> list[torch.Tensor | None]:
        """The gradient sent to each output tensor; empty when no backward was run."""
        if not self._gradients or self._reference is None:
            return []
        matched = match_gradients(self._reference.output, self._gradients)
        return [] if isinstance(matched, str) else matched

    def parts(self) -> dict[str, list[torch.Tensor]]:
        """Inputs and results, by the part of the call that they belong to."""
        parts: dict[str, Any] = {"forward.input": self._arguments.tensors()}
        if self._reference is not None and self._candidate is not None:
            parts["forward.output.bench"] = self._reference.output
            parts["forward.output.device"] = self._candidate.output
            parts["backward.input"] = self._gradients
            parts["backward.output.bench"] = gradients_of(self._reference.copy, self._reference.copy)
            parts["backward.output.device"] = gradients_of(self._candidate.copy, self._reference.copy)
        return {part: [t.detach().cpu() for t in flat_tensors(value)] for part, value in parts.items()}


def match_gradients(output: Any, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None] | str:
    """Recorded gradients by position among the tensors of the output, or why they do not fit.

    A gradient belongs to the output at its position when one was recorded for each output; otherwise they go, in order,
    to the outputs that require grad.
    """
    tensors = flat_tensors(output)
    out: list[torch.Tensor | None] = [None] * len(tensors)
    if not any(t.requires_grad for t in tensors):
        return "no_gradient: no output depends on an input that requires grad"
    if len(gradients) == len(tensors):
        pairs = [(i, g) for i, g in enumerate(gradients) if g is not None and tensors[i].requires_grad]
    else:
        places = [i for i, t in enumerate(tensors) if t.requires_grad]
        pairs = list(zip(places, [g for g in gradients if g is not None], strict=False))
    if not pairs:
        return "no_gradient: the backward entry holds no input gradients"
    for i, gradient in pairs:
        if gradient.shape != tensors[i].shape:
            if gradient.numel() != tensors[i].numel():
                return (
                    f"gradient_shape: the recorded gradient has shape {list(gradient.shape)},"
                    f" the output {list(tensors[i].shape)}"
                )
            gradient = gradient.reshape(tensors[i].shape)  # composite APIs record that of their last node
        out[i] = gradient
    return out


def run_gradients(output: Any, gradients: list[torch.Tensor | None], device: Device | None) -> None:
    """Send the gradients back from the outputs; they arrive at the leaves. `device`: where the outputs are."""
    outputs, sent = [], []
    for tensor, gradient in zip(flat_tensors(output), gradients, strict=False):
        if gradient is None or not tensor.requires_grad:
            continue
        if gradient.shape != tensor.shape:
            raise Unsupported(
                f"gradient_shape: the device result has shape {list(tensor.shape)}, its gradient {list(gradient.shape)}"
            )
        outputs.append(tensor)
        moved = gradient if device is None else device.to(gradient)
        sent.append(moved.to(tensor.dtype))
    if not outputs:
        raise Unsupported("no_gradient: the device result does not depend on its inputs")
    torch.autograd.backward(outputs, sent)


def gradients_of(copy: Copy, shown: Copy) -> list[torch.Tensor | None]:
    """Gradients of all positional tensors, None where there is none, then of keyword tensors with one in `shown`."""
    out = [leaf.grad if leaf is not None else None for leaf in copy.positional]
    for leaf, other in zip(copy.keyword, shown.keyword, strict=False):
        if leaf is not None and other is not None and other.grad is not None:
            out.append(leaf.grad)
    return out
