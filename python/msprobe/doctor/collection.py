"""What will and will not be collected, from two trials: with the given settings, and with everything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

from msprobe.doctor import disk
from msprobe.doctor.findings import Findings

_AREA = "Collection"
_CALL = re.compile(r"(.+)\.\d+\.(forward|backward)")
_SHOWN = 12


def look(findings: Findings, options: dict[str, Any]) -> dict[str, Any]:
    """Check the configuration and try the script or model; returns the facts as plain values."""
    config: dict[str, Any] = {}
    if options["config"]:
        checked = check_config(findings, options["config"])
        if checked is None:
            return {"collection": None}
        config = checked
    if not options["script"] and not options["model"]:
        if config:
            disk.look_at_folder(findings, str(config["dump_path"]))
        return {"collection": None}
    with tempfile.TemporaryDirectory(prefix="msprobe_doctor_") as folder:
        own = run_trial(options, Path(folder) / "own", everything=False)
        if not _say_how_it_went(findings, own):
            return {"collection": None}
        every = run_trial(options, Path(folder) / "every", everything=True)
        return _compare(findings, own, every, options)


def check_config(findings: Findings, path: str) -> dict[str, Any] | None:
    """Read a config.json as the debugger does; None when it is wrong."""
    from msprobe._core import Collector
    from msprobe.errors import MsprobeError

    warnings: list[str] = []
    try:
        Collector(path, None, None, None, None, log=lambda level, text: warnings.append(text) if level >= 2 else None)
    except MsprobeError as error:
        findings.add(_AREA, "problem", f"{path} is wrong", str(error).splitlines())
        return None
    findings.add(_AREA, "warning" if warnings else "ok", f"{path} can be read", warnings)
    config: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    return config


class Outcome:
    """What a trial left."""

    def __init__(self, folder: Path, answer: dict[str, Any] | None, reason: str, output: list[str]) -> None:
        self.answer = answer or {}
        self.reason = reason  # why there is no answer, or ""
        self.output = output  # its last lines
        name = "debug.json" if self.answer.get("config", {}).get("level") == "debug" else "dump.json"
        self.dump_folder = next(iter(sorted((folder / "dump").glob(f"step*/*/{name}"))), folder / "none").parent
        self.entries: dict[str, Any] = {}
        if (self.dump_folder / name).is_file():
            self.entries = json.loads((self.dump_folder / name).read_text(encoding="utf-8"))["data"]
        construct = self.dump_folder / "construct.json"
        if not self.entries and self.answer.get("config", {}).get("task") == "structure" and construct.is_file():
            self.entries = json.loads(construct.read_text(encoding="utf-8"))


def run_trial(options: dict[str, Any], folder: Path, everything: bool) -> Outcome:
    """Run the script or model in a process of its own, with its output kept."""
    folder.mkdir()
    request, answer, log = folder / "request.json", folder / "answer.json", folder / "log"
    keys = ("script", "script_args", "model", "config")
    content = {key: options[key] for key in keys} | {"folder": str(folder), "answer": str(answer)}
    request.write_text(json.dumps(content | {"everything": everything}), encoding="utf-8")
    command = [sys.executable, "-m", "msprobe.doctor.trial", str(request)]
    reason = ""
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = child.wait(options["timeout"])
            reason = f"it ended with signal {-status}" if status < 0 else f"it ended with status {status}"
        except subprocess.TimeoutExpired:
            reason = f"it took longer than {options['timeout']} seconds (--timeout)"
        finally:
            _end_group(child)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:]
    if answer.is_file():
        return Outcome(folder, json.loads(answer.read_text(encoding="utf-8")), "", lines)
    return Outcome(folder, None, reason, lines)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what the trial started; its group has the child's number and no other member than its descendants."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _say_how_it_went(findings: Findings, own: Outcome) -> bool:
    """Whether there is something to compare."""
    answer = own.answer
    if own.reason:
        findings.add(_AREA, "problem", f"the trial gave no answer: {own.reason}", own.output)
        return False
    if answer["error"]:
        findings.add(_AREA, "problem", f"the trial ended early: {answer['error']}", own.output)
        return bool(own.entries)
    if not answer["debugger"]:
        more = ["from msprobe.pytorch import PrecisionDebugger; see docs/quickstart.md; or use --model MODULE:FACTORY"]
        findings.add(_AREA, "problem", "the script makes no PrecisionDebugger: nothing will be collected", more)
        return False
    if not answer["started"]:
        findings.add(_AREA, "problem", "the script never calls start(): nothing will be collected")
        return False
    if not answer["over"]:
        more = ["without step() everything is one step: step0"]
        findings.add(_AREA, "warning", "the script ran to its end without calling step()", more)
    return True


def split(entries: dict[str, Any]) -> tuple[Counter[str], Counter[str]]:
    """Numbers of entries by kind, and of API calls by name."""
    kinds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for name in entries:
        match = _CALL.fullmatch(name)
        if name.endswith(".debug"):
            kinds["values given to save()"] += 1
        elif ".parameters_grad" in name:
            kinds["parameter gradients"] += 1
        elif name.startswith("Module."):
            kinds["module backward" if ".backward." in name else "module calls"] += 1
        elif match:
            backward = match[2] == "backward"
            kinds["API backward" if backward else "API calls"] += 1
            calls[match[1]] += not backward
    return kinds, calls


def risk_levels() -> dict[str, str]:
    """Listed API names as dumps write them ("Tensor.add") and their class: CORE, FOCUS or LOW."""
    text = resources.files("msprobe.pytorch").joinpath("api_list.json").read_text(encoding="utf-8")
    return {
        f"{section['prefix']}.{api}": level
        for section in json.loads(text).values()
        if isinstance(section, dict) and "apis" in section
        for api, level in section["apis"].items()
    }


def reason_of(name: str, config: dict[str, Any], levels: dict[str, str]) -> str:
    """Why calls of that name are left out."""
    section = config.get(config.get("task") or "statistics") or {}
    removed = (config.get("api_list") or {}).get("remove") or []
    if any(name == r or name.endswith("." + r) for r in removed):
        return "api_list.remove names it"
    if section.get("scope") or section.get("list"):
        return "outside of scope or list"
    if config.get("level") == "debug":
        return "level debug records what save() is given, nothing else"
    if config.get("level") == "L0":
        return "level L0 records modules only"
    if name in levels:
        given = config.get("risk_level") or "FOCUS"
        return f"risk_level {given} leaves it out (views, copies, factories); ALL has it"
    return 'no list names it; "risk_level": "EVERY" has it'


def _compare(findings: Findings, own: Outcome, every: Outcome, options: dict[str, Any]) -> dict[str, Any]:
    config = own.answer["config"]
    kinds, calls = split(own.entries)
    _, all_calls = split(every.entries)
    _say_collected(findings, kinds, own)
    left_out: dict[str, list[str]] = {}
    levels = risk_levels()
    for name, number in sorted((all_calls - calls).items()):
        reason = reason_of(name, config, levels)
        left_out.setdefault(reason, []).append(f"{name} ({number})")
    for reason, names in left_out.items():
        more = [", ".join(names[i : i + 4]) for i in range(0, min(len(names), 2 * _SHOWN), 4)]
        rest = len(names) - 2 * _SHOWN
        findings.add(_AREA, "note", f"not collected: {reason}", more + ([f"and {rest} more names"] if rest > 0 else []))
    for line in own.answer["models"]:
        findings.add(_AREA, "note", line)
    _say_absent(findings, own.entries)
    for level, text in own.answer["log"]:
        findings.add(_AREA, "problem" if level > 2 else "warning", text)
    step = disk.one_step(own.entries, own.dump_folder, config)
    free = disk.look_at_folder(findings, str(config.get("dump_path") or "./dump_path"))
    steps = disk.number_of_steps(config, options["steps"])
    if config.get("task") in ("nan_check", "overflow_check"):
        findings.add("Disk", "note", f"task {config['task']} writes little until NaN or infinity appears")
    elif free is not None:
        disk.look_at_size(findings, step, free, steps, options["ranks"])
    return {
        "collection": {
            "entries": dict(kinds),
            "calls": dict(calls),
            "not_collected": left_out,
            "models": own.answer["models"],
            "config": config,
        },
        "disk": {
            "bytes_per_step": step.total,
            "tensors_per_step": step.tensors,
            "steps": steps,
            "ranks": options["ranks"],
            "free": free,
        },
    }


def _say_collected(findings: Findings, kinds: Counter[str], own: Outcome) -> None:
    config = own.answer["config"]
    task, level = config.get("task") or "statistics", config.get("level") or "L1"
    if not kinds:
        findings.add(_AREA, "problem", f"nothing is collected with task {task}, level {level}")
        return
    text = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    findings.add(_AREA, "ok", f"collected in the first step (task {task}, level {level}): {text}")
    if config.get("dump_enable") is False:
        findings.add(_AREA, "warning", "dump_enable is false: nothing is recorded until the file says true")
    if config.get("rank"):
        findings.add(_AREA, "note", f"only ranks {config['rank']}; the trial recorded without that filter")
    if level != "debug" and not any("backward" in kind for kind in kinds):
        findings.add(
            _AREA, "note", "no gradients: no backward pass between start() and stop(), or data_mode is forward"
        )


def _say_absent(findings: Findings, entries: dict[str, Any]) -> None:
    reasons: Counter[str] = Counter()
    for entry in entries.values():
        absent = entry.get("absent") if isinstance(entry, dict) else None
        for leaf in (absent or {}).values():
            reasons[f"{leaf['code']}: {leaf['reason']}"] += 1
    for reason, number in reasons.most_common():
        if not reason.startswith("filtered"):
            findings.add(_AREA, "note", f"{number} values cannot be recorded and are null: {reason}")
