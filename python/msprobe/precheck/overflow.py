"""run_overflow_check: which recorded calls overflow on the device and not on the CPU, or the other way round.

Every call runs in the recorded dtypes on both, with equal inputs, and once more on the CPU in float64: when that one
overflows too, the result has no finite value in any dtype.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import torch

from msprobe.precheck.console import Console
from msprobe.precheck.devices import Device, choose_device
from msprobe.precheck.dump import Call, read_dump
from msprobe.precheck.functions import UnknownFunction
from msprobe.precheck.inputs import Unsupported, first_line
from msprobe.precheck.judging import quiet_warnings
from msprobe.precheck.options import Options
from msprobe.precheck.replay import Replayer, load_candidate

_WORDS = {True: "overflows", False: "does not"}


def run(options: Options, console: Console) -> int:
    """Check every call; a line per call, a line of counts. Exit status 3 by --fail-on error when one is abnormal."""
    device = choose_device(options.device, options.device_ids[0], jit_compile=options.jit_compile)
    dump = read_dump(options.api_info)
    for text in dump.warnings:
        console.warning(text)
    load_candidate(options.candidate)
    replayer = Replayer(options, None, device, dump.data_folder, dump.has_data_files)
    counts: Counter[str] = Counter()
    rows: list[str] = []
    with quiet_warnings():
        for n, call in enumerate(dump.calls, 1):
            kind, text = check(replayer, call, device)
            counts[kind] += 1
            rows.append(json.dumps({"row": n - 1, "entry": call.name, "verdict": kind, "reason": text}))
            if kind == "skipped":
                console.warning(f"{call.name}: {text}")
            else:
                console.info(f"{call.name}: {kind} overflow: {text}")
            console.progress(n, len(dump.calls))
    if options.rows_path:  # the command line takes it from there when the run ends well
        with open(options.rows_path, "w", encoding="ascii") as f:
            f.writelines(f"{row}\n" for row in rows)
    words = ", ".join(f"{kind} {counts[kind]}" for kind in ("normal", "abnormal", "skipped"))
    console.line(f"run_overflow_check: {words}, total {len(dump.calls)}; {device.describe()} against CPU")
    return 3 if options.fail_on_error and counts["abnormal"] else 0


def check(replayer: Replayer, call: Call, device: Device) -> tuple[str, str]:
    """normal, abnormal or skipped, and why."""
    if call.forward is None:
        return "skipped", call.problem
    if call.name.split(".")[0] in ("Distributed", "MindSpeed", "NPU"):
        return "skipped", "unsupported: calls of this kind are not checked"
    try:
        there, here, wide = replayer.three_results(call)
    except (Unsupported, UnknownFunction) as e:
        return "skipped", str(e)
    except Exception as e:  # operators raise anything
        return "skipped", f"failed: {type(e).__name__}: {first_line(e)}"
    if there is None or isinstance(there, bool):
        return "skipped", "no_result: the result is a bool or nothing"
    on_device, on_cpu = overflows(there), overflows(here)
    text = f"{device.kind} {_WORDS[on_device]}, CPU {_WORDS[on_cpu]}"
    if on_device or on_cpu:
        text += (
            ", float64 too: no dtype holds the result" if overflows(wide) else ", float64 does not: the dtype is short"
        )
    return ("normal" if on_device == on_cpu else "abnormal"), text


def overflows(value: Any) -> bool:
    """Is there a NaN or infinity in any tensor or number?"""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
            plain = value.float() if value.element_size() == 1 else value
            return not bool(torch.isfinite(plain).all())
        return False
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(overflows(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(overflows(v) for v in value)
