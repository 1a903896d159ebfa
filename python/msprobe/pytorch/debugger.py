"""`PrecisionDebugger`: records what a PyTorch program computes (dump.md 2)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from msprobe._core import capture
from msprobe.errors import ConfigError, DumpError, ErrorCode, MsprobeError
from msprobe.pytorch import _environment, _log, _neutral, _save
from msprobe.pytorch._compiled import CompiledLeaves
from msprobe.pytorch._intercept import custom_apis
from msprobe.pytorch._modules import check_models
from msprobe.pytorch._recorder import Recorder, Settings, TokenCounter


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ConfigError(
        ErrorCode.INVALID_ARGUMENT,
        f"PrecisionDebugger({name}=...): a str was expected, got {type(value).__name__}",
        name,
    )


def _steps(step: Any) -> str | None:
    if step is None:
        return None
    try:
        return json.dumps(list(step) if isinstance(step, tuple | range) else step)
    except (TypeError, ValueError):
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT, f"step: a list of int or str was expected, got {type(step).__name__}", "step"
        ) from None


def _check_token_range(token_range: Any) -> tuple[int, int]:
    good = isinstance(token_range, list | tuple) and len(token_range) == 2
    if not good or any(type(t) is not int for t in token_range) or not 0 <= token_range[0] <= token_range[1]:
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT,
            f"start(token_range={token_range!r}): two ints, 0 <= first <= last, were expected",
            "token_range",
        )
    return token_range[0], token_range[1]


def _tokens(scheduled_tokens: Any) -> list[tuple[str, int]] | None:
    """None when it was not given or is not what it should be; then whole batches are recorded (dump.md 9.5)."""
    if scheduled_tokens is None:
        return None
    good = isinstance(scheduled_tokens, dict) and all(
        isinstance(key, str) and type(count) is int and 0 <= count < 2**48 for key, count in scheduled_tokens.items()
    )
    if good:
        return list(scheduled_tokens.items())
    _log.log(
        _log.WARNING, "start(scheduled_tokens=...): a dict of request id to number of tokens was expected; ignored"
    )
    return None


class PrecisionDebugger:
    """Records API calls, modules and gradients between `start()` and `stop()`.

    One per process: a second construction returns the first object (and says so when it was given other settings).
    All methods work on the class as well as on the object.
    """

    _instance: ClassVar[PrecisionDebugger | None] = None
    _recorder: ClassVar[Recorder | None] = None
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __new__(cls, *_: Any, **__: Any) -> PrecisionDebugger:
        """The one object of the process."""
        with cls._lock:
            return cls._instance if cls._instance is not None else super().__new__(cls)

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        *positional: Any,
        model: Any = None,
        step: Any = None,
        narrow: str | None = None,
    ) -> None:
        """Read and check the configuration; nothing of torch is touched before `start()`.

        Args:
            config_path: A config.json; without it the built-in defaults (statistics, L1, `./dump_path`).
            task: Overrides the file's `task`.
            dump_path: Overrides the file's `dump_path`.
            level: Overrides the file's `level`.
            *positional: `step`; or, as releases 1.x and 8.x had it, `model, step`.
            model: Default of `start(model=...)` (deprecated).
            step: Overrides the file's `step`.
            narrow: A file that `msprobe narrow` wrote: what is collected comes from there, how from `config_path`.
                Without `dump_path` the dump goes to the file's `dump_path` with `_narrow` behind it.

        Raises:
            ConfigError: An argument or the file is wrong; then no debugger exists.
        """
        model, step = _positional(positional, model, step)
        settings = (
            _text("config_path", config_path),
            _text("task", task),
            _text("dump_path", dump_path),
            _text("level", level),
            _steps(step),
            _text("narrow", narrow),
        )
        cls = type(self)
        with cls._lock:
            if cls._recorder is not None:
                cls._repeat(cls._recorder, settings)
                return
            if model is not None:
                _log.log(_log.WARNING, "PrecisionDebugger(model=...) is deprecated: give the model to start()")
            cls._recorder = Recorder(settings, model)
            cls._instance = self

    @staticmethod
    def _repeat(recorder: Recorder, settings: Settings) -> None:
        if settings == recorder.settings:
            return
        differences = recorder.collector.differences(*settings)
        if not differences:
            return
        text = "a PrecisionDebugger exists already and stays in force; ignored: " + "; ".join(differences)
        if recorder.collector.strict:
            raise ConfigError(ErrorCode.INVALID_ARGUMENT, text)
        _log.log(_log.ERROR, text)

    @classmethod
    def _current(cls, method: str) -> Recorder:
        if cls._recorder is None:
            raise MsprobeError(
                ErrorCode.INVALID_ARGUMENT,
                f"{method}(): no PrecisionDebugger instance exists; construct one first",
            )
        return cls._recorder

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: Any = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> None:
        """Record from now on, if this step and rank are to be recorded.

        Args:
            model: A module or a list of modules; required at levels L0 and mix unless an earlier call gave it.
            token_range: `[first, last]`: only these forward calls of the model, counted from here.
            rank_id: Overrides the detected rank. Looked at by the first effective call only.
            scheduled_tokens: Request id to token count, together with the configuration's `request_id`.

        Raises:
            ConfigError: An argument is wrong.
            MsprobeError: There is no debugger.
            DumpError: The configuration says `"overwrite": "refuse"` and an earlier dump is there (first start only).
                A folder that cannot be written is one error line, and nothing is collected.
        """
        with cls._lock:
            recorder = cls._recorder = cls._current("start").follow_config()
            if recorder.pid != os.getpid() or recorder.collector.level == "debug":
                return
            models = cls._models(recorder, model, token_range is not None)
            tokens = None if token_range is None else _check_token_range(token_range)
            if rank_id is not None and (type(rank_id) is not int or rank_id < 0):
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, f"start(rank_id={rank_id!r}): an int >= 0 was expected", "rank_id"
                )
            if recorder.collector.terminated or recorder.off:
                return
            if not cls._open(recorder, rank_id, _tokens(scheduled_tokens)):
                return
            if models and recorder.collector.wants_modules:
                (recorder.hooks.add_list if isinstance(model or recorder.model, list | tuple) else recorder.hooks.add)(
                    models
                )
            if tokens is not None and recorder.counter is None:
                if len(models) > 1:
                    _log.log(_log.WARNING, "token_range: the forward calls of the first model are counted")
                recorder.counter = TokenCounter(models[0], *tokens, recorder)
            if recorder.state is not None:
                given = model if model is not None else recorder.model
                recorder.state.begin(check_models(given) if given is not None else [])
            recorder.begin()

    @staticmethod
    def _models(recorder: Recorder, model: Any, needed: bool) -> list[nn.Module]:
        needed = needed or recorder.collector.wants_modules
        if model is None:
            model = recorder.model
        elif needed:
            check_models(model)
            recorder.model = model
        if not needed:
            return []
        if model is None:
            raise ConfigError(
                ErrorCode.INVALID_ARGUMENT,
                "start(model=...) is required at levels L0 and mix and with token_range: a torch.nn.Module, "
                "or a list or tuple of them",
                "model",
            )
        return check_models(model)

    @staticmethod
    def _open(recorder: Recorder, rank_id: int | None, tokens: list[tuple[str, int]] | None) -> bool:
        if not recorder.started and rank_id is not None:
            recorder.rank = rank_id
        rank = recorder.rank if recorder.rank is not None else _environment.detect_rank()
        recorder.collector.set_environment(torch.__version__, platform.python_version(), _environment.world_size())
        try:
            recording = recorder.collector.start(rank, tokens)
        except DumpError as error:
            if not recorder.started:
                raise
            _log.log(_log.ERROR, f"this step is not recorded: {error}")
            return False
        recorder.started = True
        recorder.step_open = recorder.step_open or bool(recording)
        return bool(recording)

    @classmethod
    def stop(cls) -> None:
        """Stop recording and flush. May be followed by `start()` in the same step."""
        with cls._lock:
            recorder = cls._current("stop")
            if recorder.pid != os.getpid():
                return
            if recorder.intercept is not None:
                capture.remove_mode()  # also of a thread that stops after another did
            if not recorder.running:
                return
            recorder.end()
            recorder.collector.stop()
            if recorder.started:
                recorder.hooks.warn_of_unentered()
                recorder.threads.warn_of_older()

    @classmethod
    def step(cls) -> None:
        """End the step: its files are finished, numbers start anew. Follows `stop()`."""
        with cls._lock:
            recorder = cls._current("step")
            if recorder.pid == os.getpid():
                recorder.collector.end_step()
                recorder.hooks.end_step()
                recorder.units.end_step()
                recorder.step_open = False
                recorder.drop_saved()
                cls._recorder = recorder.follow_config()

    @classmethod
    @contextlib.contextmanager
    def record(
        cls,
        model: Any = None,
        token_range: Any = None,
        rank_id: int | None = None,
        scheduled_tokens: dict[str, int] | None = None,
    ) -> Iterator[None]:
        """One step: `start()` with these arguments, the body, `stop()` and `step()`, also when the body raises.

        Raises:
            ConfigError: An argument is wrong.
            MsprobeError: There is no debugger.
        """
        cls.start(model, token_range, rank_id, scheduled_tokens)
        try:
            yield
        finally:
            cls.stop()
            cls.step()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """At level debug: record a variable, and its gradients when they arrive, in debug.json.

        Needs neither `start()` nor `stop()`; `step()` separates steps. At other levels nothing happens.

        Args:
            variable: A tensor, int, float or str, or lists, tuples and dicts of them.
            name: Its name; the k-th call of a name in a step is `{name}.{k}.debug`.
            save_backward: Whether gradients are recorded, as `{name}_grad.{k}.debug`.

        Raises:
            MsprobeError: There is no debugger. (A wrong argument is a warning, the script goes on.)
        """
        with cls._lock:
            recorder = cls._current("save")
            collector = recorder.collector
            if recorder.pid != os.getpid() or collector.level != "debug" or recorder.off:
                return
            problem = _save.problem(variable, name, save_backward)
            if problem is not None:
                _log.log(_log.WARNING, f"save() is skipped: {problem}")
                return
            collector.set_environment(torch.__version__, platform.python_version(), _environment.world_size())
            recorder.saved += capture.save(variable, name, _environment.detect_rank(), save_backward)
            collector.drain_log()

    @classmethod
    def check_neutral(
        cls, step_fn: Callable[[], Any], model: Any = None, optimizer: Any = None, steps: int = 3
    ) -> _neutral.Neutrality:
        """Train with and without this collection from one state and compare every bit; says what it found.

        What is compared after each step: the returned value, gradients, parameters, buffers, optimizer and random
        states. Everything is put back afterwards. The dump of the check goes to a temporary folder. Call it between
        `stop()` and `start()`; `step_fn` itself must not call the debugger, and what else it advances (a data loader,
        a scheduler) has to be the same in each run.

        Args:
            step_fn: One training step, without arguments; may return the loss.
            model: The module or list of modules that it trains.
            optimizer: Its optimizer or list of optimizers.
            steps: Number of steps of each of the three runs.

        Raises:
            ConfigError: An argument is wrong, or the level is debug.
            MsprobeError: There is no debugger, or it is running.
        """
        with cls._lock:
            outer = cls._current("check_neutral")
            if outer.running:
                raise MsprobeError(ErrorCode.INVALID_ARGUMENT, "check_neutral(): call stop() first")
            if outer.collector.level == "debug":
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, "check_neutral(): the level is debug, where nothing is intercepted"
                )
            if type(steps) is not int or steps < 1:
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, f"check_neutral(steps={steps!r}): an int >= 1 was expected", "steps"
                )
            subject = _neutral.Subject(step_fn, model, optimizer)
            with _neutral.temporary_folder() as folder:
                try:
                    answer = cls._check_neutral(outer, subject, model, steps, folder)
                finally:
                    cls._recorder = outer
                    outer.collector.attach()
        _log.log(_log.INFO if answer else _log.WARNING, f"check_neutral: {answer}")
        return answer

    @classmethod
    def _check_neutral(
        cls, outer: Recorder, subject: _neutral.Subject, model: Any, steps: int, folder: str
    ) -> _neutral.Neutrality:
        def quiet(level: int, message: str) -> None:
            if level >= _log.ERROR:
                _log.log(level, message)

        config, task, _, level, _, narrow = outer.settings
        inner = cls._recorder = Recorder((config, task, folder, level, "[]", narrow), None, quiet)
        # What is compiled runs in the same way with and without collection (decisions.md 54).
        eager = _environment.Eager()
        leaves = CompiledLeaves([eager])

        def plain(step: Callable[[], Any]) -> Any:
            eager.install()
            if inner.leaves is not None:
                leaves.install()
            try:
                return step()
            finally:
                leaves.uninstall()
                eager.uninstall()

        written = 0

        def recorded(step: Callable[[], Any]) -> Any:
            nonlocal written
            cls.start(model)
            try:
                return step()
            finally:
                cls.stop()
                written += inner.collector.written
                cls.step()

        try:
            answer = _neutral.compare_runs(subject, steps, plain, recorded)
            if answer and eager.used:
                how = "modules ran compiled, compiled functions" if leaves.used else "regions ran"
                answer = replace(answer, text=f"{answer.text} (compiled {how} eagerly, in all runs)")
            if answer and written == 0:
                return _neutral.Neutrality(False, "not tested: with these settings nothing was recorded")
            return answer
        finally:
            if inner.running:
                inner.end()
            inner.collector.close()
            inner.collector.detach()

    @classmethod
    def monitor(cls, model: Any) -> None:
        """Not offered: monitoring of gradients (task grad_probe of 8.x). Says so; the script goes on."""
        cls._current("monitor")
        _log.log(
            _log.ERROR,
            "monitor(): the task grad_probe is not part of this tool and nothing is monitored; "
            'parameter gradients are recorded at level "L0" or "mix" as parameters_grad',
        )

    @classmethod
    def _begin_unit(cls, module: nn.Module, name: str) -> None:
        with cls._lock:
            recorder = cls._current("module_dump")
            if recorder.pid != os.getpid():
                return
            if recorder.collector.wants_modules and recorder.hooks.knows(module):
                _log.log(_log.INFO, f"module_dump({name!r}): this module is recorded already")
                return
            recorder.units.add_unit(module, name)
            recorder.switch(module)

    @classmethod
    def _end_unit(cls) -> None:
        with cls._lock:
            recorder = cls._current("module_dump_end")
            if recorder.pid == os.getpid():
                recorder.switch(None)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Set the number of the first step.

        Raises:
            ConfigError: `step` is no int >= 0.
        """
        with cls._lock:
            recorder = cls._current("set_init_step")
            if type(step) is not int or step < 0:
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, f"set_init_step({step!r}): an int >= 0 was expected", "step"
                )
            recorder.collector.set_init_step(step)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record `module.api` as `{prefix}.{api}.{n}`; the prefix is the module's `__name__` unless given.

        Raises:
            ConfigError: There is no such attribute, or the prefix is no str.
        """
        with cls._lock:
            cls._current("register_custom_api")
            if not isinstance(api, str) or not callable(getattr(module, api, None)):
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, f"register_custom_api: {module!r} has no function {api!r}", "api"
                )
            if api_prefix is not None and not isinstance(api_prefix, str):
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"register_custom_api(api_prefix=...): a str was expected, got {type(api_prefix).__name__}",
                    "api_prefix",
                )
            custom_apis.register(module, api, api_prefix or str(getattr(module, "__name__", "Custom")))

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Put the original of a registered function back; nothing happens when it was not registered.

        Raises:
            ConfigError: There is no such attribute.
        """
        with cls._lock:
            cls._current("restore_custom_api")
            if not isinstance(api, str) or not hasattr(module, api):
                raise ConfigError(
                    ErrorCode.INVALID_ARGUMENT, f"restore_custom_api: {module!r} has no attribute {api!r}", "api"
                )
            custom_apis.restore(module, api)

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """Old name of `stop()`."""
        cls.stop()

    @classmethod
    def reset(cls) -> None:
        """Finish what is open and forget the debugger, so that another can be constructed."""
        with cls._lock:
            recorder, cls._recorder, cls._instance = cls._recorder, None, None
            if recorder is None or recorder.pid != os.getpid():
                return
            if recorder.running:
                recorder.end()
            recorder.drop_saved()
            if recorder.phases is not None:
                recorder.phases.close()
            recorder.collector.close()
            recorder.collector.detach()

    @classmethod
    def _at_exit(cls) -> None:
        recorder = cls._recorder
        if recorder is None or recorder.pid != os.getpid():
            return
        if recorder.running:
            recorder.end()
        recorder.collector.close()

    @classmethod
    def _after_fork(cls) -> None:
        cls._lock = threading.RLock()
        recorder = cls._recorder
        if recorder is None:
            return
        recorder.collector.after_fork()
        recorder.running = False
        for part in [recorder.units, *reversed([*recorder.parts(), *recorder.watchers()])]:
            part.uninstall()
        capture.remove_mode()


def _positional(positional: tuple[Any, ...], model: Any, step: Any) -> tuple[Any, Any]:
    """`step` follows `level` in newer releases, `model, step` in older ones."""
    if len(positional) > 2:
        raise TypeError(f"PrecisionDebugger takes at most 6 arguments, got {4 + len(positional)}")
    if len(positional) == 2:
        return positional
    if len(positional) == 1:
        first = positional[0]
        is_model = isinstance(first, nn.Module) or (
            isinstance(first, list | tuple) and first and all(isinstance(m, nn.Module) for m in first)
        )
        return (first, step) if is_model else (model, first)
    return model, step


atexit.register(PrecisionDebugger._at_exit)
os.register_at_fork(after_in_child=PrecisionDebugger._after_fork)
