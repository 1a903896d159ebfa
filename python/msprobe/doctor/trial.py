"""Runs a script or model to the end of its first recorded step: `python -m msprobe.doctor.trial REQUEST.json`.

The debugger is the real one, with its own filters; only where it writes, and which step, are changed. What it said and
what it was given goes to the answer file named in the request.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

# What a configuration may hold that keeps a trial from recording its first step at once.
_DROPPED = ("rank", "dump_enable", "async_dump", "overwrite", "task")
_DROPPED_OF_SECTION = ("bench_path", "diff_nums", "tensor_list", "overflow_nums", "check_mode", "summary_mode")


class TrialOverError(SystemExit):
    """The first step is complete."""


class Trial:
    """Stands between a script and `PrecisionDebugger`."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.folder = Path(request["folder"])
        self.answer: dict[str, Any] = {
            "debugger": False,
            "started": False,
            "over": False,
            "error": None,
            "config": {},
            "log": [],
            "models": [],
        }

    def settings(self, given: tuple[str | None, ...]) -> tuple[Any, ...]:
        """The arguments of the debugger, changed: a configuration of ours in the folder of the trial."""
        path, task, dump_path, level, steps, *narrow = given
        config: dict[str, Any] = {}
        if path is not None:
            # The reader of the core has its say first, with the user's own file and arguments.
            core: Any = importlib.import_module("msprobe._core")
            core.Collector(path, task, dump_path, level, steps, self.said, *narrow)
            config = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        config |= {k: v for k, v in (("task", task), ("dump_path", dump_path), ("level", level)) if v}
        if steps is not None:
            config["step"] = json.loads(steps)
        self.answer["config"] = config
        target = self.folder / "config.json"
        target.write_text(json.dumps(trial_config(config, str(self.folder / "dump"), self.request["everything"])))
        rest = [None for _ in narrow] if self.request["everything"] else narrow
        return str(target), None, None, None, None, *rest

    def said(self, level: int, text: str) -> None:
        """Keep a warning or error of the debugger, once."""
        if level >= 2 and [level, text] not in self.answer["log"]:
            self.answer["log"].append([level, text])

    def install(self) -> None:
        """Put this object between."""
        log: Any = importlib.import_module("msprobe.pytorch._log")
        log.log = self.said
        debugger: Any = importlib.import_module("msprobe.pytorch.debugger")
        recorder_of = debugger.Recorder
        cls = debugger.PrecisionDebugger
        start, step = cls.start, cls.step

        def recorder(settings: tuple[str | None, ...], model: Any, _: Any = None) -> Any:
            self.answer["debugger"] = True
            return recorder_of(self.settings(settings), model, self.said)

        def started(model: Any = None, *args: Any, **kwargs: Any) -> None:
            if model is not None and not self.answer["models"]:
                from msprobe.doctor.models import describe

                self.answer["models"] = describe(model)
            start(model, *args, **kwargs)
            self.answer["started"] = True

        def stepped() -> None:
            step()
            if self.answer["started"]:
                self.answer["over"] = True
                raise TrialOverError(0)

        debugger.Recorder = recorder
        cls.start = staticmethod(started)
        cls.step = staticmethod(stepped)

    def run(self) -> None:
        """Run the script or model, and finish what it left open."""
        self.install()
        try:
            if self.request["script"]:
                sys.argv = [self.request["script"], *self.request["script_args"]]
                sys.path.insert(0, str(Path(self.request["script"]).resolve().parent))
                runpy.run_path(self.request["script"], run_name="__main__")
            else:
                self.run_model()
        except TrialOverError:
            pass
        except SystemExit as end:
            if end.code not in (None, 0):
                self.answer["error"] = f"the script ended with status {end.code}"
        except BaseException as error:
            self.answer["error"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        from msprobe.pytorch import PrecisionDebugger

        with contextlib.suppress(Exception):
            PrecisionDebugger.reset()
        Path(self.request["answer"]).write_text(json.dumps(self.answer), encoding="utf-8")

    def run_model(self) -> None:
        """Make the model, call it once, and send a gradient back."""
        import torch

        from msprobe.pytorch import PrecisionDebugger

        module, function = self.request["model"].split(":", 1)
        sys.path.insert(0, os.getcwd())
        made = getattr(importlib.import_module(module), function)()
        if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
            raise TypeError(f"{self.request['model']} has to return (model, arguments) or (model, arguments, keywords)")
        model, args, *rest = made
        args = args if isinstance(args, tuple | list) else (args,)
        kwargs = rest[0] if rest else {}
        path = self.request["config"] or None
        debugger = PrecisionDebugger(config_path=path, level=None if path else "mix")
        debugger.start(model=model)
        output = model(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # what follows is no part of the model
            total = differentiable_sum(output)
            if total is not None:
                total.backward()
        debugger.stop()
        with contextlib.suppress(TrialOverError):
            debugger.step()


def trial_config(config: dict[str, Any], dump_path: str, everything: bool) -> dict[str, Any]:
    """The configuration of a trial: the same filters, but statistics only, of the first step."""
    task = config.get("task") or "statistics"
    section = config.get(task)
    own = {key: value for key, value in config.items() if key not in _DROPPED and not isinstance(value, dict)}
    if isinstance(config.get("api_list"), dict):
        own["api_list"] = config["api_list"]
    own |= {"dump_path": dump_path, "step": [], "rank": []}
    if everything:
        level = "L1" if (config.get("level") or "L1") == "L1" else "mix"
        own |= {"risk_level": "EVERY", "level": level, "task": "statistics"}
        own.pop("api_list", None)
        return own
    own["task"] = "structure" if task == "structure" else "statistics"
    if isinstance(section, dict):
        own[own["task"]] = {key: value for key, value in section.items() if key not in _DROPPED_OF_SECTION}
    return own


def differentiable_sum(value: Any) -> Any:
    """The sum of all floating-point tensors in an output that need a gradient; None when there is none."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.sum() if value.requires_grad and value.is_floating_point() else None
    parts = value.values() if hasattr(value, "values") else value if isinstance(value, tuple | list) else ()
    sums = [s for s in map(differentiable_sum, parts) if s is not None]
    return sum(sums[1:], sums[0]) if sums else None


def main(argv: list[str]) -> int:
    """Run the trial of a request file."""
    Trial(json.loads(Path(argv[1]).read_text(encoding="utf-8"))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
