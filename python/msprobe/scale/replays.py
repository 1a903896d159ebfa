"""The pre-check on a Ray cluster: lists of calls go to tasks, each of which claims the accelerator it replays on.

A task hands its calls to a process of its own, by the protocol of `msprobe.precheck.workers`: a call that kills it, or
answers too late, is a SKIP with the same words as on one machine. A task that is lost itself is tried again by Ray, and
what is lost each time is tried call by call.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from msprobe.errors import ErrorCode, PrecheckError
from msprobe.precheck import run
from msprobe.precheck.devices import Device, choose_device
from msprobe.precheck.dump import Call
from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome, skipped
from msprobe.precheck.workers import Job, Replays
from msprobe.scale import cluster
from msprobe.scale.engine import in_thread

_MOST_CALLS = 32  # of one task
_TASKS_PER_PLACE = 8
_RESOURCES: dict[str, dict[str, Any]] = {
    "cuda": {"num_gpus": 1},
    "npu": {"resources": {"NPU": 1}},
    "cpu": {"num_cpus": 1},
}


class RayEngine:
    """What the pre-check runs on with `--engine ray`."""

    def choose_device(self, options: Options) -> Device:
        """A device of the cluster."""
        return _choose_device(options)

    def run(self, job: Job, device: Device, calls: list[Call]) -> Iterator[Outcome]:
        """Outcomes in the order of the calls."""
        return _run_tasks(job, device, calls)


def main(options_json: str) -> int:
    """As `msprobe.precheck.main`, on a Ray cluster."""
    return run.main(options_json, RayEngine())


@dataclass(frozen=True, slots=True)
class RemoteDevice(Device):
    """A device of a worker; this process may have none."""

    title: str

    def describe(self) -> str:
        """As the worker named it."""
        return self.title


def claim(kind: str) -> dict[str, Any]:
    """What a task on a device of that kind asks of the cluster."""
    return _RESOURCES[kind]


def _choose_device(options: Options) -> Device:
    """A device of the cluster, as a task that claimed it sees it.

    Raises:
        PrecheckError: No node has such a device; never another one silently.
    """
    ray = in_thread(lambda: cluster.connect(options.ray_address, options.workers))
    resources = ray.cluster_resources()
    found = [kind for kind, name in (("npu", "NPU"), ("cuda", "GPU")) if resources.get(name, 0) >= 1]
    kind = options.device
    if kind in ("", "auto"):
        kind = found[0] if found else ("cpu" if kind else "")
    if not kind or (kind != "cpu" and kind not in found):
        what = "NPU and no GPU" if not kind else {"npu": "NPU", "cuda": "GPU"}[kind]
        raise PrecheckError(
            ErrorCode.NOT_FOUND,
            f"--device: no node of the Ray cluster offers a {what}; start its nodes where the devices are, "
            "or use --device cpu",
        )
    probe = ray.remote(max_retries=cluster.RETRIES, **claim(kind))(describe_here)
    title = ray.get(probe.remote(kind, options.jit_compile, options.tf32))
    return RemoteDevice(kind, 0, title)


def _run_tasks(job: Job, device: Device, calls: list[Call]) -> Iterator[Outcome]:
    """Replay on the cluster and yield outcomes in the order of `calls`."""
    ray = in_thread(lambda: cluster.connect(job.options.ray_address, job.options.workers))
    options = replace(job.options, device=device.kind, device_ids=[0], workers=1)
    key = os.urandom(8).hex()
    shared = ray.put(replace(job, options=options, dump=replace(job.dump, calls=[])))
    task = ray.remote(max_retries=cluster.RETRIES, **claim(device.kind))(replay_here)
    limit = job.options.workers
    size = max(1, min(_MOST_CALLS, math.ceil(len(calls) / (limit * _TASKS_PER_PLACE))))
    parts = deque(calls[i : i + size] for i in range(0, len(calls), size))
    running: deque[tuple[list[Call], Any]] = deque()
    folder = os.getcwd()
    try:
        while parts or running:
            while parts and len(running) < limit:
                part = parts.popleft()
                running.append((part, task.remote(folder, key, shared, part)))
            part, ref = running.popleft()
            try:
                outcomes = ray.get(ref)
            except ray.exceptions.RayError as error:
                outcomes = (
                    [_lost(part[0], cluster.reason(ray, error))]
                    if len(part) == 1
                    else _one_by_one(ray, task, (folder, key, shared), part)
                )
            yield from outcomes
    finally:
        for _, ref in running:
            ray.cancel(ref, force=True)


def _one_by_one(ray: Any, task: Any, context: tuple[str, str, Any], calls: list[Call]) -> Iterator[Outcome]:
    """The calls of a list whose task was lost each time."""
    for call in calls:
        try:
            yield from ray.get(task.remote(*context, [call]))
        except ray.exceptions.RayError as error:
            yield _lost(call, cluster.reason(ray, error))


def _lost(call: Call, why: str) -> Outcome:
    outcome = skipped(call.name, f"worker_died: {why}")
    outcome.tool_failed = True
    return outcome


_here: dict[str, Replays] = {}  # of the run that this process works for


def replay_here(folder: str, key: str, job: Job, calls: list[Call]) -> list[Outcome]:
    """In a worker: replay calls in a process that stays for the next list of the same run."""
    os.chdir(folder)
    replays = _here.get(key)
    if replays is None:
        for old in _here.values():
            old.close()
        _here.clear()
        replays = _here[key] = Replays(job, Device(job.options.device, 0), threads=1)
    return list(replays.run(calls))


def describe_here(kind: str, jit_compile: bool, tf32: bool) -> str:
    """In a worker: the name of the device that it claimed."""
    return choose_device(kind, 0, jit_compile=jit_compile, tf32=tf32).describe()
