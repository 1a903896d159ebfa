"""Replay in several processes: a queue of calls, one process per worker, results in the order of the calls.

A process that dies is replaced and its call tried once more; the second time, or when it answers too late, the call is
a SKIP with the reason and the run goes on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from msprobe.precheck.devices import Device, choose_device
from msprobe.precheck.dump import Call, Dump
from msprobe.precheck.judging import quiet_warnings
from msprobe.precheck.memory import elements, machine_bytes, needed_bytes, tensor_records
from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome, skipped
from msprobe.precheck.replay import Replayer
from msprobe.precheck.settings import Settings

_AHEAD = 64  # finished results that wait for an earlier one, per worker


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Connection
    index: int
    task: int | None = None
    since: float = field(default_factory=time.monotonic)
    needs: int = 0  # bytes of its call


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know once."""

    options: Options
    settings: Settings
    dump: Dump  # without its calls
    error_folder: str


def _work(pipe: Connection, job: Job, device_index: int, threads: int) -> None:
    """A worker process: calls in, outcomes out, until None comes."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    torch.set_num_threads(threads)
    options, dump = job.options, job.dump
    device = choose_device(options.device, device_index, jit_compile=options.jit_compile, tf32=options.tf32)
    replayer = Replayer(options, job.settings, device, dump.data_folder, dump.has_data_files, job.error_folder)
    with quiet_warnings(), contextlib.suppress(EOFError, BrokenPipeError):
        while (call := pipe.recv()) is not None:
            outcome = replayer.run(call)
            pipe.send(outcome)


class _Pool:
    def __init__(self, job: Job, device: Device, threads: int) -> None:
        options = job.options
        self._options = options
        self._job = replace(job, options=replace(options, device=device.kind), dump=replace(job.dump, calls=[]))
        self._context = multiprocessing.get_context("spawn")
        self._threads = threads or max(1, (os.cpu_count() or 1) // options.workers)
        self.workers: list[_Worker] = []
        self.memory_limit = options.memory_limit or machine_bytes()

    def needs(self, call: Call) -> int:
        """Bytes that a call takes while it runs; none when it is too large to be run at all."""
        f64 = self._options.reference == "f64"
        needs = needed_bytes(call, on_cpu=self._job.options.device == "cpu", always_f64=f64)
        return needs if needs <= self.memory_limit else 0

    def start(self, index: int) -> _Worker:
        """A new process, on the device that is its turn."""
        here, there = self._context.Pipe()
        ids = self._options.device_ids
        process = self._context.Process(
            target=_work,
            args=(there, self._job, ids[index % len(ids)], self._threads),
            daemon=True,
        )
        process.start()
        there.close()
        worker = _Worker(process, here, index)
        self.workers.append(worker)
        return worker

    def end(self, worker: _Worker) -> int | None:
        """Stop a process, and say how it ended."""
        worker.pipe.close()
        if worker.process.is_alive():
            worker.process.kill()
        worker.process.join()
        self.workers.remove(worker)
        return worker.process.exitcode  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stop all."""
        for worker in list(self.workers):
            with contextlib.suppress(OSError, BrokenPipeError):
                worker.pipe.send(None)
        for worker in list(self.workers):
            worker.process.join(0.5)
            self.end(worker)


def run_workers(job: Job, device: Device, calls: list[Call]) -> Iterator[Outcome]:
    """Replay in options.workers processes and yield outcomes in the order of `calls`."""
    with contextlib.closing(Replays(job, device)) as replays:
        yield from replays.run(calls)


class Replays:
    """Processes that stay for several lists of calls."""

    def __init__(self, job: Job, device: Device, threads: int = 0) -> None:
        """Nothing is started yet.

        Args:
            job: options.workers says how many processes.
            device: What they replay on.
            threads: Of each process; 0: a fair share of this machine's cores.
        """
        self._options = job.options
        self._pool = _Pool(job, device, threads)

    def run(self, calls: list[Call]) -> Iterator[Outcome]:
        """Outcomes in the order of `calls`."""
        options, pool = self._options, self._pool
        queue = deque(heaviest_first([weight(call) for call in calls], _AHEAD * options.workers))
        deaths: dict[int, int] = {}
        finished: dict[int, Outcome] = {}
        following = 0
        for index in range(len(pool.workers), min(options.workers, len(calls))):
            pool.start(index)
        while following < len(calls):
            _hand_out(pool, queue, calls, following + 2 * _AHEAD * options.workers)
            _collect(pool, options, calls, queue, deaths, finished)
            while following in finished:
                yield finished.pop(following)
                following += 1

    def close(self) -> None:
        """Stop the processes."""
        self._pool.close()


def weight(call: Call) -> float:
    """A guess at the work of a call: elements of its tensors, to the power of 1.5 where rows meet columns."""
    products = ("matmul", "bmm", "mm", "addmm", "linear", "conv", "attention", "einsum", "lstm", "gru", "__matmul__")
    total = float(sum(elements(record["shape"]) for record in tensor_records(call.forward)))
    return total**1.5 if any(word in call.name for word in products) else total


def heaviest_first(weights: list[float], window: int) -> list[int]:
    """Indexes, heaviest first within windows: results are written in order, so none may wait for the whole run."""
    order: list[int] = []
    for begin in range(0, len(weights), window):
        part = range(begin, min(begin + window, len(weights)))
        order += sorted(part, key=lambda i: -weights[i])
    return order


def _hand_out(pool: _Pool, queue: deque[int], calls: list[Call], limit: int) -> None:
    """Give calls to idle workers, as long as all that run have room in memory; one alone always runs."""
    for worker in pool.workers:
        if worker.task is not None or not queue or queue[0] >= limit:
            continue
        needs = pool.needs(calls[queue[0]])
        running = sum(w.needs for w in pool.workers if w.task is not None)
        if running and running + needs > pool.memory_limit:
            return
        worker.task, worker.needs = queue.popleft(), needs
        worker.since = time.monotonic()
        with contextlib.suppress(OSError, BrokenPipeError):  # a dead one is noticed when results are collected
            worker.pipe.send(calls[worker.task])


def _collect(
    pool: _Pool,
    options: Options,
    calls: list[Call],
    queue: deque[int],
    deaths: dict[int, int],
    finished: dict[int, Outcome],
) -> None:
    """Wait for a result, a death or a timeout."""
    busy = {worker.pipe: worker for worker in pool.workers if worker.task is not None}
    for pipe in wait(list(busy), _patience(options, list(busy.values()))):
        worker = busy[pipe]  # type: ignore[index]
        assert worker.task is not None
        try:
            finished[worker.task] = worker.pipe.recv()
            worker.task = None
        except (EOFError, OSError):
            _mourn(pool, worker, calls, queue, deaths, finished)
    if not options.timeout:
        return
    now = time.monotonic()
    for worker in list(pool.workers):
        if worker.task is not None and now - worker.since > options.timeout and not worker.pipe.poll():
            task, index = worker.task, worker.index
            pool.end(worker)
            finished[task] = skipped(calls[task].name, f"timeout: no answer within {options.timeout} s")
            finished[task].tool_failed = True
            pool.start(index)


def _patience(options: Options, busy: list[_Worker]) -> float | None:
    if not options.timeout or not busy:
        return None
    oldest = min(worker.since for worker in busy)
    return max(0.05, oldest + options.timeout - time.monotonic() + 0.01)


def _mourn(
    pool: _Pool,
    worker: _Worker,
    calls: list[Call],
    queue: deque[int],
    deaths: dict[int, int],
    finished: dict[int, Outcome],
) -> None:
    task, index = worker.task, worker.index
    assert task is not None
    worker.process.join(5)
    code = pool.end(worker)
    deaths[task] = deaths.get(task, 0) + 1
    if deaths[task] >= 2:
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        finished[task] = skipped(calls[task].name, f"worker_died: the process died twice on this call ({how})")
        finished[task].tool_failed = True
    else:
        queue.appendleft(task)
    pool.start(index)
