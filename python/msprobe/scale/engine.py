"""The driver of `--engine ray`: items out to tasks, results back in order, to one writer.

The core plans, runs and joins; what is here moves bytes. Scheduling, retries of lost workers and spilling of results
that wait are Ray's.
"""

from __future__ import annotations

import concurrent.futures
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from msprobe import _core
from msprobe.errors import ErrorCode, MsprobeError
from msprobe.scale import cluster

_AHEAD = 2  # results that may wait for an earlier one, per place
_TICK = 0.1  # seconds between looks at a cancel


def slots(request: dict[str, Any]) -> int:
    """Items that run at a time: what was asked for, else the CPUs of the cluster."""
    return int(in_thread(lambda: _places(request)))


def _places(request: dict[str, Any]) -> int:
    ray = cluster.connect(request["address"], request["workers"])
    return int(request["workers"] or max(1, ray.cluster_resources().get("CPU", 1)))


def run_items(
    request: dict[str, Any],
    items: list[tuple[bytes, list[int]]],
    chunk: Callable[[int, bytes], bool],
    done: Callable[[int], bool],
    failed: Callable[[int, str], bool],
    cancelled: Callable[[], bool],
) -> None:
    """Run items of one command.

    Args:
        request: `address`, `workers`, and the command: `old_face`, `name`, `arguments`.
        items: Payload, and numbers of earlier items whose results it is given.
        chunk: Takes a piece of an item's result; items that are nobody's input come in their order. False ends the run.
        done: An item is complete.
        failed: An item was given up, with the reason.
        cancelled: Ends the run when true.

    Raises:
        MsprobeError: There is no Ray, or no cluster answers.
    """
    if items:
        in_thread(lambda: _Run(request, items, cancelled).run(chunk, done, failed))


_beside: list[concurrent.futures.ThreadPoolExecutor] = []


def in_thread(work: Callable[[], Any]) -> Any:
    """Run beside the main thread: Ray would take over the signals there, which belong to the command.

    Always the same thread: the processes of a cluster of our own end with the thread that started them.
    """
    if not _beside:
        _beside.append(concurrent.futures.ThreadPoolExecutor(1, "msprobe-ray"))
    future = _beside[0].submit(work)
    while not future.done():
        concurrent.futures.wait([future], timeout=_TICK)
    return future.result()


class _Run:
    """The items of one call, and where they are."""

    def __init__(
        self, request: dict[str, Any], items: list[tuple[bytes, list[int]]], cancelled: Callable[[], bool]
    ) -> None:
        self._request = {key: request[key] for key in ("old_face", "name", "arguments")}
        self._items = items
        self._cancelled = cancelled
        self._limit = _places(request)
        self._ray = cluster.connect(request["address"], request["workers"])
        remote = self._ray.remote(max_retries=cluster.RETRIES, num_cpus=1)
        self._whole = remote(whole_item)
        streaming = self._ray.remote(max_retries=cluster.RETRIES, num_cpus=1, num_returns="streaming")
        self._streamed = streaming(stream_item)
        self._inputs = {i for _, inputs in items for i in inputs}
        self._order = [i for i in range(len(items)) if i not in self._inputs]
        self._next = 0  # item to hand out
        self._running: dict[Any, int] = {}  # reference that is ready at the end -> item
        self._results: dict[int, Any] = {}  # of inputs: reference, or None
        self._streams: dict[int, Any] = {}
        self._where = _here()

    def run(
        self, chunk: Callable[[int, bytes], bool], done: Callable[[int], bool], failed: Callable[[int, str], bool]
    ) -> None:
        try:
            for item in self._order:
                self._deliver(item, chunk, done, failed)
        finally:
            for ref in self._running:
                self._ray.cancel(ref, force=True)

    def _deliver(
        self,
        item: int,
        chunk: Callable[[int, bytes], bool],
        done: Callable[[int], bool],
        failed: Callable[[int, str], bool],
    ) -> None:
        while item not in self._streams:
            self._turn(wait=True)
        stream = self._streams[item]
        try:
            while True:
                ready, _ = self._ray.wait([stream], timeout=_TICK)
                self._turn(wait=False)
                if not ready:
                    continue
                piece = self._ray.get(next(stream))
                if not chunk(item, piece):
                    raise MsprobeError(ErrorCode.CANCELLED, "the writer refused a result")
                del piece
        except StopIteration:
            kept = done(item)
        except self._ray.exceptions.RayError as e:
            kept = failed(item, cluster.reason(self._ray, e))
        del self._streams[item], stream
        if not kept:
            raise MsprobeError(ErrorCode.CANCELLED, "the writer refused a result")

    def _turn(self, *, wait: bool) -> None:
        """Notice what ended, hand out what fits."""
        if self._cancelled():
            raise MsprobeError(ErrorCode.CANCELLED, "interrupted")
        self._hand_out()
        if not self._running:
            return
        ready, _ = self._ray.wait(
            list(self._running), num_returns=1 if wait else len(self._running), timeout=_TICK if wait else 0
        )
        for ref in ready:
            item = self._running.pop(ref)
            if item in self._inputs:
                self._results[item] = self._settled(ref)
        self._hand_out()

    def _settled(self, ref: Any) -> Any:
        """The reference, or None when the item was given up: whoever needs it goes on without."""
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError:
            return None
        return ref

    def _hand_out(self) -> None:
        while self._next < len(self._items) and len(self._running) < self._limit:
            item = self._next
            payload, inputs = self._items[item]
            if any(i not in self._results for i in inputs):
                return
            if item in self._inputs:
                ref = self._whole.remote(self._where, self._request, payload)
            elif len(self._streams) > _AHEAD * self._limit:
                return
            else:
                given = [self._results.pop(i) for i in inputs]
                known = [b"" if ref is None else ref for ref in given]
                stream = self._streamed.remote(self._where, self._request, payload, *known)
                self._streams[item] = stream
                ref = stream.completed()
            self._running[ref] = item
            self._next += 1


def _here() -> dict[str, str]:
    import os

    return {"folder": os.getcwd(), "version": _core.__version__}


def whole_item(where: dict[str, str], request: dict[str, Any], payload: bytes) -> bytes:
    """In a worker: an item whose result is small."""
    pieces: list[bytes] = []
    _run_here(where, request, payload, [], pieces.append)
    return b"".join(pieces)


def stream_item(where: dict[str, str], request: dict[str, Any], payload: bytes, *inputs: bytes) -> Iterator[bytes]:
    """In a worker: an item whose result comes in pieces, the same ones each time."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2)

    def work() -> None:
        try:
            _run_here(where, request, payload, list(inputs), pieces.put)
        except BaseException as e:
            pieces.put(e)
        else:
            pieces.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (piece := pieces.get()) is not None:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def _run_here(
    where: dict[str, str], request: dict[str, Any], payload: bytes, inputs: list[bytes], emit: Callable[[bytes], None]
) -> None:
    import os

    if where["version"] != _core.__version__:
        raise MsprobeError(
            ErrorCode.MISMATCH,
            f"msprobe-native {_core.__version__} on {os.uname().nodename}, {where['version']} where the command runs",
        )
    os.chdir(where["folder"])  # paths are what the user typed
    with tempfile.TemporaryDirectory(prefix="msprobe-") as scratch:
        _core.run_item(request, payload, inputs, scratch, emit)
