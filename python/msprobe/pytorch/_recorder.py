"""What is behind the one `PrecisionDebugger` of a process: the parts that are put in place while recording."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch import nn

from msprobe._core import Collector, capture
from msprobe.errors import MsprobeError
from msprobe.pytorch import _environment, _log
from msprobe.pytorch._added_apis import AddedApis
from msprobe.pytorch._compiled import CompiledLeaves
from msprobe.pytorch._evidence import State
from msprobe.pytorch._intercept import interception
from msprobe.pytorch._modules import ModuleHooks
from msprobe.pytorch._switch import ConfigWatch

Settings = tuple[str | None, str | None, str | None, str | None, str | None, str | None]


class Recorder:
    """Everything behind the one debugger of a process."""

    def __init__(self, settings: Settings, model: Any, log: Callable[[int, str], None] = _log.log) -> None:
        self.settings = settings
        self._log = log
        self.collector = Collector(*settings[:5], log=log, narrow_path=settings[5])
        self.pid = os.getpid()
        self.model = model
        self.running = False
        self.started = False
        self.recording = False
        self.said_eager = False
        self.rank: int | None = None
        self.hooks = ModuleHooks(self.collector)
        self.units = ModuleHooks(self.collector)  # of module_dump
        self.unit: nn.Module | None = None  # the one that is recorded now
        self.saved: list[Any] = []  # handles of the gradient hooks of save()
        self.leaves: CompiledLeaves | None = None
        self.state = State(self.collector) if self.collector.evidence == "full" else None
        self.regions = _environment.Regions()
        self.threads = _environment.Threads()
        self.eager = _environment.Eager()
        self.waits = _environment.Waits() if self.collector.wants_apis else None
        self.intercept = interception() if self.collector.wants_apis else None
        both = self.collector.wants_apis and self.collector.wants_modules
        self.phases = _environment.Phases(self.collector) if both else None
        interception()  # readies the C side for module hooks too
        if self.collector.compiled_as_leaf:
            aside = (self.eager, self.regions, self.intercept)
            self.leaves = CompiledLeaves([p for p in aside if p is not None])
        self.added = (
            AddedApis(self.collector.added_apis, self.collector.custom_op_namespaces)
            if self.collector.wants_apis
            else None
        )
        self.counter: TokenCounter | None = None
        self.step_open = False  # a start() of this step found it open for recording
        self.off = False  # switched off while the program runs
        dynamic = settings[0] is not None and self.collector.dump_enable is not None
        self.watch = ConfigWatch(settings[0]) if dynamic and settings[0] is not None else None
        self.collector.attach()

    def parts(self) -> list[Any]:
        """What is put in place at start, in this order, and taken away in the reverse one."""
        optional = (self.eager, self.threads, self.regions, self.waits, self.phases, self.state)
        return [p for p in optional if p is not None]

    def watchers(self) -> list[Any]:
        """What sees the calls: set aside while one module is recorded as a unit."""
        watchers = (self.hooks if self.collector.wants_modules else None, self.intercept, self.added, self.leaves)
        return [w for w in watchers if w is not None]

    def begin(self) -> None:
        """Put everything in place and record."""
        if self.running:
            if self.unit is None:
                self.hooks.install()
                if self.intercept is not None:
                    capture.push_mode()  # a thread that is older than the first start()
            return
        placed: list[Any] = []
        self.collector.set_unit(self.unit is not None)
        try:
            for part in [*self.parts(), *(self.watchers() if self.unit is None else [])]:
                placed.append(part)
                part.install()
            if self.unit is not None:
                self.units.install(self.unit)
        except BaseException:
            self.units.uninstall()
            for part in reversed(placed):
                part.uninstall()
            raise
        self.running = True
        if self.eager.used and not self.said_eager:
            self.said_eager = True
            what = "functions" if self.leaves is not None else "regions"
            _log.log(_log.INFO, f"{what} compiled by torch.compile run eagerly while recording")
        if self.counter is None:
            self.record()

    def record(self) -> None:
        """The hooks that are in place record from now on."""
        self.recording = True
        self.collector.begin_recording(self.unit is not None)

    def pause(self) -> None:
        """Hooks fall silent."""
        self.recording = False
        self.collector.end_recording()

    def switch(self, unit: nn.Module | None) -> None:
        """Record this module as one unit; None: everything again."""
        if not self.running:
            self.unit = unit
            return
        if self.unit is not None:
            self.units.uninstall(parameters=False)
        elif unit is not None:
            for part in reversed(self.watchers()):
                part.uninstall()
        before, self.unit = self.unit, unit
        self.collector.set_unit(unit is not None)
        if unit is not None:
            self.units.install(unit)
        elif before is not None:
            for part in self.watchers():
                part.install()
        if self.recording:
            self.record()

    def follow_config(self) -> Recorder:
        """Between two steps: read a config.json that has changed (dump_enable); the recorder that is in force now.

        A file that is wrong switches collection off until it is right again. Nothing is patched twice: what was put
        in place is taken away at every stop, and the new recorder begins where this one stands.
        """
        if self.watch is None or self.running or self.step_open or not self.watch.changed():
            return self
        try:
            fresh = Recorder(self.settings, self.model, self._log)
        except MsprobeError as error:
            self.off = True
            _log.log(_log.WARNING, f"the configuration has changed and is wrong; nothing is collected: {error}")
            return self
        # A key that was taken away keeps its value.
        enabled = not self.off if self.collector.dump_enable is None else self.collector.dump_enable
        fresh.off = fresh.collector.dump_enable is None and not enabled
        fresh.watch = self.watch
        fresh.collector.take_over(self.collector)
        fresh.started, fresh.rank, fresh.said_eager = self.started, self.rank, self.said_eager
        self.drop_saved()
        on = fresh.collector.dump_enable if fresh.collector.dump_enable is not None else enabled
        _log.log(_log.INFO, f"the configuration was read again: collection is {'on' if on else 'off'}")
        return fresh

    def drop_saved(self) -> None:
        """Take the gradient hooks of saved tensors off."""
        for handle in self.saved:
            handle.remove()
        self.saved.clear()

    def end(self) -> None:
        """Stop recording; every original is back in place."""
        self.pause()
        self.running = False
        for part in [self.units, *reversed([*self.parts(), *self.watchers()])]:
            try:
                part.uninstall()
            except Exception as error:
                _log.log(_log.ERROR, f"restoring after collection failed: {type(error).__name__}: {error}")
        if self.counter is not None:
            self.counter.remove()
            self.counter = None


class TokenCounter:
    """Records only the forward calls `first` to `last` (both inclusive) of a model, counted from start()."""

    def __init__(self, model: nn.Module, first: int, last: int, recorder: Recorder) -> None:
        self._first, self._last, self._recorder = first, last, recorder
        self._calls = 0
        self._handle = model.register_forward_pre_hook(self._count, prepend=True)

    def _count(self, *_: Any) -> None:
        if self._calls == self._first:
            self._recorder.record()
        elif self._calls == self._last + 1:
            self._recorder.pause()
        self._calls += 1

    def remove(self) -> None:
        self._handle.remove()
