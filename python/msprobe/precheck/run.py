"""The commands of the pre-check that need PyTorch, from checked options to files and exit status."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from msprobe import _core
from msprobe._files import create, make_folder
from msprobe.errors import ErrorCode, MsprobeError, PrecheckError
from msprobe.precheck import generate, overflow
from msprobe.precheck.console import Console
from msprobe.precheck.devices import Device, choose_device
from msprobe.precheck.dump import Call, read_dump, without_repeats
from msprobe.precheck.judging import quiet_warnings
from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome
from msprobe.precheck.replay import Replayer, load_candidate
from msprobe.precheck.settings import read_settings
from msprobe.precheck.workers import Job, run_workers

_DONE, _FAILED, _REFUSED, _FAIL_ON, _SIGNAL_BASE = 0, 1, 2, 3, 128
_STATUSES = ("pass", "warning", "error", "SKIP")


class _Terminated(BaseException):
    """SIGTERM came."""


class Engine(Protocol):
    """Where calls are replayed when not in processes of this machine."""

    def choose_device(self, options: Options) -> Device:
        """The device of its workers. Raises PrecheckError when they have none of that kind."""

    def run(self, job: Job, device: Device, calls: list[Call]) -> Iterator[Outcome]:
        """Outcomes in the order of the calls."""


def main(options_json: str, engine: Engine | None = None) -> int:
    """Run a command with checked options and return its exit status (decisions: 0, 1, 2, 3, 130, 143)."""
    options = Options.from_json(options_json)
    console = Console(options)
    try:
        if options.command == "op_generate":
            return generate.from_config(options, console)
        if options.command == "run_overflow_check":
            return overflow.run(options, console)
        if options.reproduce:
            return generate.reproduce(options, console)
        return _run(options, console, engine)
    except MsprobeError as e:
        if options.debug:
            traceback.print_exc()
        console.error(e.message)
        return _FAILED if e.code in (ErrorCode.IO, ErrorCode.NO_SPACE, ErrorCode.INTERNAL) else _REFUSED
    except KeyboardInterrupt:
        console.line("interrupted; results so far are kept")
        return _SIGNAL_BASE + int(signal.SIGINT)
    except _Terminated:
        console.line("terminated; results so far are kept")
        return _SIGNAL_BASE + int(signal.SIGTERM)
    except Exception as e:
        if options.debug:
            traceback.print_exc()
        console.error(f"{options.command}: {type(e).__name__}: {e}; this is a fault of msprobe; please report it")
        return _FAILED


@dataclass(slots=True)
class Counts:
    """Statuses of calls, forward and backward."""

    forward: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATUSES, 0))
    backward: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATUSES, 0))
    tool_failed: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one call; a backward that was not due is not counted."""
        self.forward[outcome.forward] += 1
        if outcome.backward in self.backward:
            self.backward[outcome.backward] += 1
        self.tool_failed += outcome.tool_failed

    def text(self) -> str:
        """The closing line of counts."""
        parts = []
        for name, counts in (("forward", self.forward), ("backward", self.backward)):
            words = ", ".join(f"{status.lower()} {n}" for status, n in counts.items())
            parts.append(f"{name}: {words}, total {sum(counts.values())}")
        return "; ".join(parts)

    def document(self) -> dict[str, dict[str, int]]:
        """For the summary."""
        out = {}
        for name, counts in (("forward", self.forward), ("backward", self.backward)):
            out[name] = {status.lower(): n for status, n in counts.items()} | {"total": sum(counts.values())}
        return out

    def reached(self, options: Options) -> bool:
        """Did --fail-on ask for status 3?"""
        both = {s: self.forward[s] + self.backward[s] for s in _STATUSES}
        return bool(
            (options.fail_on_error and both["error"])
            or (options.fail_on_warning and both["warning"])
            or (options.fail_on_skip and both["SKIP"])
        )


def _run(options: Options, console: Console, engine: Engine | None) -> int:
    device = _device(options, engine)
    settings = read_settings(options.config_path)
    options.baseline = _baseline(options, device)
    dump = read_dump(options.api_info)
    load_candidate(options.candidate)
    for text in dump.warnings:
        console.warning(text)
    writer = _open_writer(options)
    calls = dump.calls
    if options.filter_api:
        calls = without_repeats(calls, base_rules=options.rules == "base")
        console.info(f"{len(dump.calls) - len(calls)} repeated calls of {len(dump.calls)} are left out")
    done = set(writer.done)
    left = [c for c in calls if c.name not in done]
    if not calls:
        console.warning(f"{options.api_info} holds no API calls")
    if device.is_cpu:
        console.info("CPU against CPU: the device under test is this machine's CPU")
    folder = os.path.join(settings.error_data_path, f"ut_error_data{writer.stamp}") if options.save_error_data else ""
    if folder:
        console.info(f"error data: {folder}")
    run = _Run(Job(options, settings, dump, folder), console, device, writer)
    run.engine = engine
    previous = signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        with quiet_warnings():
            run.replay(left)
    finally:
        signal.signal(signal.SIGTERM, previous)
        run.finish()
    return run.status()


def _device(options: Options, engine: Engine | None) -> Device:
    if engine is not None:
        return engine.choose_device(options)
    return choose_device(options.device, options.device_ids[0], jit_compile=options.jit_compile, tf32=options.tf32)


def _baseline(options: Options, device: Device) -> str:
    """none, cpu, or a details file: what was asked for, or what the spelling has on this device (precheck.md 19.3)."""
    if options.baseline == "cpu" and device.is_cpu and not options.candidate:
        raise PrecheckError(
            ErrorCode.INVALID_ARGUMENT,
            "--baseline: cpu would compare the CPU with itself; give --candidate, another --device or a details file",
        )
    if options.baseline:
        return options.baseline
    old = options.old_face or options.command.endswith("run_ut")
    return "none" if old or device.is_cpu else "cpu"


def _on_sigterm(*_: Any) -> None:
    raise _Terminated


def _open_writer(options: Options) -> _core.PrecheckWriter:
    with_baseline = options.baseline == "cpu"
    if options.csv_path:
        return _core.PrecheckWriter.resume(
            options.csv_path, options.retry_skips, options.old_face, options.digits, with_baseline
        )
    try:
        make_folder(options.out_path)
    except OSError as e:
        raise PrecheckError(
            ErrorCode.PERMISSION, f"{options.out_path}: {e.strerror}; a folder that can be written is expected"
        ) from None
    return _core.PrecheckWriter.create(
        options.out_path, options.old_face, options.digits, options.english, with_baseline
    )


class _Run:
    """The state of a run between its files."""

    def __init__(self, job: Job, console: Console, device: Device, writer: _core.PrecheckWriter) -> None:
        self._job = job
        self._options = job.options
        self._console = console
        self._device = device
        self._writer = writer
        self._final: dict[str, Any] | None = None
        self._counts = Counts()
        self._inputs: dict[str, str] = {}
        self._started = time.time()
        self._complete = False
        self.engine: Engine | None = None

    def replay(self, calls: list[Call]) -> None:
        """Run the calls and write their rows, in order."""
        for n, outcome in enumerate(self._outcomes(calls), 1):
            rows = outcome.rows
            baseline = complete_baseline(outcome) if self._writer.baseline_path else []
            self._writer.append(outcome.name, outcome.forward, outcome.backward, outcome.message, rows, baseline)
            self._counts.add(outcome)
            if outcome.inputs is not None:
                self._inputs[outcome.name] = f"{outcome.inputs:016x}"
            if outcome.warning:
                self._console.warning(outcome.warning)
            self._console.skip(outcome)
            self._console.progress(n, len(calls))
        self._complete = True

    def _outcomes(self, calls: list[Call]) -> Iterator[Outcome]:
        if self.engine is not None:
            return self.engine.run(self._job, self._device, calls)
        if self._options.multi:
            return run_workers(self._job, self._device, calls)
        return self._here(calls)

    def _here(self, calls: Iterable[Call]) -> Iterator[Outcome]:
        job = self._job
        replayer = Replayer(
            job.options,
            job.settings,
            self._device,
            job.dump.data_folder,
            job.dump.has_data_files,
            job.error_folder,
        )
        for call in calls:
            yield replayer.run(call)

    def _judge_finally(self, folder: str) -> None:
        """The final verdict against the baseline, in files beside the others."""
        options, console = self._options, self._console
        other = self._writer.baseline_path or options.baseline
        self._final = _core.precheck_final(
            self._writer.details_path,
            other,
            folder,
            options.standard == "old",
            options.rules == "base",
            options.digits,
            options.english,
        )
        for text in self._final["messages"]:
            console.warning(text)
        what = "the CPU in the recorded dtypes" if self._writer.baseline_path else other
        console.info(f"final verdict against {what}")
        for line in self._final["answer"].splitlines():
            console.info(line)

    def finish(self) -> None:
        """Closing lines, summary and meta file; also after an interrupt."""
        options, console = self._options, self._console
        folder = os.path.dirname(self._writer.result_path) or "."
        if self._complete and options.baseline != "none":
            self._judge_finally(folder)
        for kind, document in (("meta", self._meta()), ("summary", self._summary())):
            write_json(os.path.join(folder, f"accuracy_checking_{kind}_{self._writer.stamp}.json"), document)
        if self._complete:
            console.info(f"result: {self._writer.result_path}")
            console.info(f"details: {self._writer.details_path}")
            word = "run_ut" if options.old_face or options.command.endswith("run_ut") else "acc_check"
            console.closing(f"Successfully completed {word}/multi_{word}.")
            if not options.multi:
                console.closing("UT task completed." if word == "run_ut" else "acc_check task completed.")
        console.line(f"{options.command}: {self._counts.text()}; path {self._writer.result_path}")
        if self._final is not None:
            console.line(f"final verdict: {self._final['closing']}")

    def status(self) -> int:
        """Exit status of a run that came to its end."""
        if self._counts.tool_failed:
            return _FAILED
        return _FAIL_ON if self._reached() else _DONE

    def _reached(self) -> bool:
        """Did --fail-on ask for status 3? Of two verdicts the final one counts."""
        if self._final is None:
            return self._counts.reached(self._options)
        options, final = self._options, self._final
        return bool(
            (options.fail_on_error and final["error"])
            or (options.fail_on_warning and final["warning"])
            or (options.fail_on_skip and final["skip"])
        )

    def _meta(self) -> dict[str, Any]:
        npu = sys.modules.get("torch_npu")
        return {
            "format_version": 1,
            "device": {"kind": self._device.kind, "name": self._device.describe(), "reference": "CPU"},
            "torch": torch.__version__,
            "torch_npu": getattr(npu, "__version__", None),
            "threads": torch.get_num_threads(),
            "seed": self._options.seed,
            "standard": self._options.standard,
            "rules": self._options.rules,
            "small_values": self._options.small_values,
            "inputs": self._inputs,
        }

    def _summary(self) -> dict[str, Any]:
        return {
            "format_version": 1,
            "tool_version": _core.__version__,
            "command": self._options.command,
            "options": self._options.echo,
            "inputs": [os.path.abspath(self._options.api_info)],
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
            "seconds": round(time.time() - self._started, 3),
            "complete": self._complete,
            "standard": self._options.standard,
            "rules": self._options.rules,
            "small_values": self._options.small_values,
            "device": self._device.kind,
            "compared": "CPU against CPU" if self._device.is_cpu else f"{self._device.kind.upper()} against CPU",
            "counts": self._counts.document(),
            "baseline": self._options.baseline,
            "reports": [
                self._writer.result_path,
                self._writer.details_path,
                *([self._writer.baseline_path] if self._writer.baseline_path else []),
                *(self._final["reports"] if self._final else []),
            ],
            "messages": self._console.messages,
        }


def write_json(path: str, document: dict[str, Any]) -> None:
    """Write a file that is there as a whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with create(temporary) as f:
            json.dump(document, f, indent=1)
        os.replace(temporary, path)
    except OSError as e:
        raise PrecheckError(ErrorCode.IO, f"{path}: {e.strerror}", path) from None


def complete_baseline(outcome: Outcome) -> list[_core.PrecheckRow]:
    """A baseline row for each row of the outcome, in its order; SKIP where there is none."""
    known = {row.name: row for row in outcome.baseline_rows}
    out = []
    for row in outcome.rows:
        reason = row.message if row.status == "SKIP" else "no_baseline: the CPU gave no result in the recorded dtypes"
        out.append(known.get(row.name) or _core.PrecheckRow(row.name, "SKIP", reason))
    return out
