"""Surroundings of a running collection: rank, threads, forks, compiled regions, optimizer phases."""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from msprobe._core import Collector, capture
from msprobe.pytorch import _log
from msprobe.pytorch._intercept import Swap

# Launchers that number their processes; torch.distributed wins.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def detect_rank() -> int | None:
    """The rank by `msprobe.scale.attach`, torch.distributed or the launcher; None when there is none."""
    given = os.environ.get("MSPROBE_RANK", "")
    if given.isdecimal():
        return int(given)
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def world_size() -> int | None:
    """Number of processes by torch.distributed; None outside of it."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return None


class Threads:
    """Python threads that start while recording get the mode too."""

    def __init__(self) -> None:
        """Nothing is wrapped yet."""
        self._name = "_bootstrap_inner" if hasattr(threading.Thread, "_bootstrap_inner") else "run"
        self._original: Callable[[threading.Thread], None] | None = None
        self._older: list[threading.Thread] = []
        self._said: set[int | None] = set()

    def install(self) -> None:
        """Wrap the function that every new thread runs."""
        own = threading.current_thread()
        self._older = [t for t in threading.enumerate() if t is not own]
        original = getattr(threading.Thread, self._name)

        @functools.wraps(original)
        def with_mode(thread: threading.Thread) -> None:
            if self._original is not None:
                capture.push_mode()
            try:
                original(thread)
            finally:
                capture.remove_mode()

        self._original = original
        setattr(threading.Thread, self._name, with_mode)

    def warn_of_older(self) -> None:
        """Name the threads that are older than start() and run code that uses torch, once each (decisions.md 16)."""
        frames = sys._current_frames()
        for thread in self._older:
            frame = frames.get(thread.ident or -1)
            if frame is None or thread.ident in self._said or not _uses_torch(frame):
                continue
            self._said.add(thread.ident)
            _log.log(
                _log.WARNING,
                f"thread {thread.name!r} is older than start(): its calls are recorded in part or not at all; "
                "call start() in that thread too",
            )
        self._older = []

    def uninstall(self) -> None:
        """Put the original back."""
        if self._original is not None:
            setattr(threading.Thread, self._name, self._original)
            self._original = None


def _uses_torch(frame: types.FrameType | None) -> bool:
    while frame is not None:
        # The thread that pins memory for a DataLoader, and its like, compute nothing.
        if not str(frame.f_globals.get("__name__", "")).startswith("torch.utils.data.") and (
            frame.f_globals.get("torch") is torch
        ):
            return True
        frame = frame.f_back
    return False


class Eager:
    """Compiled regions run eagerly while recording (torch.compiler.set_stance)."""

    def __init__(self) -> None:
        """The stance is untouched."""
        self._prior: Any = None
        self._compile: Any = None
        self.used = False

    def install(self) -> None:
        """Take the stance; when Dynamo is not loaded, only once something is compiled (loading it takes a second)."""
        if "torch._dynamo.eval_frame" in sys.modules:
            self._take()
        elif hasattr(torch, "compile"):
            self._compile = original = torch.compile

            @functools.wraps(original)
            def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self._compile is not None and self._prior is None and "torch._dynamo.eval_frame" in sys.modules:
                    self._take()
                return result

            torch.compile = compile_eagerly

    def _take(self) -> None:
        frame: Any = sys.modules["torch._dynamo.eval_frame"]
        if not hasattr(frame, "_set_stance") or not hasattr(frame, "DynamoStance"):
            return
        try:
            self._prior = frame._set_stance(frame.DynamoStance("force_eager"))
            self.used = True
        except RuntimeError as error:  # started inside a compiled region
            capture.report("running compiled regions eagerly", str(error))

    def uninstall(self) -> None:
        """Restore the stance of before."""
        if self._compile is not None:
            torch.compile = self._compile
            self._compile = None
        if self._prior is not None:
            sys.modules["torch._dynamo.eval_frame"]._set_stance(self._prior)
            self._prior = None


class Waits:
    """Asynchronous collectives: their output is described once somebody has waited for them."""

    def __init__(self) -> None:
        """Nothing is patched yet."""
        self._work: Any = None
        self._original: Any = None

    def install(self) -> None:
        """Let `Work.wait` tell us; its result stays what it is."""
        if not torch.distributed.is_available():
            return
        work: Any = torch.distributed.distributed_c10d.Work
        self._work = work
        self._original = original = work.wait

        @functools.wraps(original)
        def wait(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(handle, *args, **kwargs)
            capture.collective_done(handle)
            return result

        work.wait = wait

    def uninstall(self) -> None:
        """Put the original back."""
        if self._work is not None:
            self._work.wait = self._original
            self._work = None


class _Region:
    """The function of one checkpointed region; its second run is a recomputation."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self._region = capture.new_region()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        capture.enter_region(self._region)
        try:
            return self.__wrapped__(*args, **kwargs)
        finally:
            capture.leave_region()

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


def _mark_region(body: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and callable(args[0]):
            args = (_Region(args[0]), *args[1:])
        elif callable(kwargs.get("function")):
            kwargs = {**kwargs, "function": _Region(kwargs["function"])}
        return body(*args, **kwargs)

    return run


class Regions:
    """Checkpointed regions are told apart while recording, so that a recomputed call names the call it repeats."""

    def __init__(self) -> None:
        """Prepare the swap of torch.utils.checkpoint.checkpoint."""
        function: Any = torch.utils.checkpoint.checkpoint
        function = getattr(function, "__wrapped__", function)
        self._swap = Swap(function, _mark_region) if isinstance(function, types.FunctionType) else None

    def install(self) -> None:
        """Exchange its code."""
        if self._swap is not None:
            self._swap.swap()

    def uninstall(self) -> None:
        """Put the code back."""
        if self._swap is not None:
            self._swap.restore()


class Phases:
    """Optimizer steps and gradient clipping, the parents of the APIs inside them at level mix."""

    _CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")

    def __init__(self, collector: Collector) -> None:
        """Prepare the swaps of the clipping functions."""
        self._collector: Collector | None = collector
        self._handles: list[Any] = []
        self._swaps: list[Swap] = []
        for name in self._CLIPPING:
            function = getattr(torch.nn.utils, name, None)
            if isinstance(function, types.FunctionType):
                self._swaps.append(Swap(function, self._clipping_hook))

    def _clipping_hook(self, body: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            collector = self._collector
            if collector is None:
                return body(*args, **kwargs)
            collector.enter_phase("clip_grad")
            try:
                return body(*args, **kwargs)
            finally:
                collector.leave_phase()

        return run

    def install(self) -> None:
        """Hook optimizers and clipping."""
        from torch.optim import optimizer

        collector = self._collector
        if collector is None:
            return

        def before(*_: Any) -> None:
            collector.enter_phase("optimizer")

        def after(*_: Any) -> None:
            collector.leave_phase()

        self._handles.append(optimizer.register_optimizer_step_pre_hook(before))
        self._handles.append(optimizer.register_optimizer_step_post_hook(after))
        for swap in self._swaps:
            swap.swap()

    def close(self) -> None:
        """Let go of the collector: code that is in a function's hands once stays, and holds this object."""
        self._collector = None

    def uninstall(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for swap in self._swaps:
            swap.restore()
