"""Recording the runs of the corpus, each in a process of its own.

Processes come from a fork server that has imported torch and transformers, so that a run costs its training and not its
imports. A folder of runs holds, per run, `<mode>/` (the dump) and `<mode>.json` (losses, truth, what was applied).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from inject import Calls, Case, Kernels, Run
from models import RANKS, Options, batch, build, loss_of, optimizer_of, precision

MODES = ("tensor", "sketch", "statistics")
SECONDS = 240  # after which a run is given up


def settings(mode: str, evidence: str, folder: Path) -> dict[str, Any]:
    """The config.json of one run."""
    task = "tensor" if mode == "tensor" else "statistics"
    section: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"]}
    if mode == "sketch":
        section["summary_mode"] = "sketch"
    return {
        "task": task,
        "level": "mix",
        "risk_level": "ALL",
        "dump_path": str(folder),
        "rank": [],
        "step": [],
        "evidence": "light" if mode == "statistics" else evidence,
        task: section,
    }


@contextmanager
def kernels_of(rounding: str) -> Iterator[None]:
    """Threads and libraries that compute the results."""
    torch.set_num_threads(2 if rounding == "threads" else 1)
    with torch.backends.mkldnn.flags(enabled=rounding != "mkldnn"):
        yield


def train(case: Case, options: Options, side: str, mode: str, folder: Path, rank: int) -> dict[str, Any]:
    """One short training under a debugger; its losses and the notes of the fault."""
    from msprobe.pytorch import PrecisionDebugger

    target = side == "target"
    model = build(case.net, options)
    optimizer = optimizer_of(model, options)
    run = Run(case.net, model, optimizer, rank)
    rounding = case.rounding if target else "none"
    if target:
        case.prepare(run)
    config = folder / f"{mode}.rank{rank}.config.json"
    config.write_text(json.dumps(settings(mode, case.evidence, folder / mode)))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(config_path=str(config))
    torch.manual_seed(4321 + rank)
    losses: list[float] = []
    with kernels_of(rounding), Calls(run), Kernels(run, rounding):
        for step in range(case.steps):
            run.start(step)
            debugger.start(model=model)
            losses.extend(passes(case.net, run, options, step))
            if options.inside:
                update(run, options)
            debugger.stop()
            if not options.inside:
                update(run, options)
            debugger.step()
    PrecisionDebugger.reset()
    if target and not case.clean:
        run.check()
    return {"losses": losses, "truth": run.truth, "applied": run.applied + sum(f.done for f in run.injections)}


def passes(net: str, run: Run, options: Options, step: int) -> list[float]:
    """The forward and backward passes of one step."""
    losses = []
    for part in range(options.micro):
        data = batch(net, step * options.micro + part, options)
        for change in run.data:
            data = change(step, data)
        with precision(options):
            loss = loss_of(net, run.model, data)
        scale = options.scale / options.micro
        (loss if scale == 1 else loss * scale).backward()  # type: ignore[no-untyped-call]
        for act in run.gradients:
            act(step, part)
        losses.append(float(loss.detach()))
    return losses


def update(run: Run, options: Options) -> None:
    """The optimizer's part of a step."""
    if options.scale != 1:
        for p in run.model.parameters():
            if p.grad is not None:
                p.grad.div_(options.scale)
    if options.clip:
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), options.clip)
    run.optimizer.step()
    run.optimizer.zero_grad()


def work(name: str, side: str, modes: tuple[str, ...], folder: str, rank: int) -> None:
    """The body of a recording process: every mode, one after the other; an error is written down and ends it."""
    from corpus import find

    case, where = find(name), Path(folder)
    log = os.open(where / f"log.rank{rank}", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    options = case.target if side == "target" and case.target is not None else case.options
    try:
        for mode in modes:
            if case.net in RANKS:
                store = torch._C._distributed_c10d.FileStore(str(where / f"{mode}.store"), RANKS[case.net])
                dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS[case.net])
            result = train(case, options, side, mode, where, rank)
            if dist.is_initialized():
                dist.destroy_process_group()
            (where / f"{mode}.rank{rank}.json").write_text(json.dumps(result))
    except Exception:
        (where / f"error.rank{rank}").write_text(traceback.format_exc())
        os._exit(1)  # the other rank may never answer


def record(case: Case, side: str, modes: tuple[str, ...], folder: Path) -> None:
    """Record one run in all modes.

    Raises:
        RuntimeError: The run failed, took too long, or is not the same run in all modes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    name = case.name if side == "target" else f"golden:{case.name}"
    ranks = range(RANKS.get(case.net, 1))
    processes = [
        context.Process(target=work, args=(case.name, side, modes, str(folder), rank), name=name) for rank in ranks
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    errors = [path.read_text() for path in sorted(folder.glob("error.rank*"))]
    if errors:
        raise RuntimeError(f"{name}: {errors[0].strip()}")
    if late or any(process.exitcode != 0 for process in processes):
        raise RuntimeError(f"{name}: ended with {[process.exitcode for process in processes]}")
    for rank in ranks:
        runs = {mode: json.loads((folder / f"{mode}.rank{rank}.json").read_text()) for mode in modes}
        losses = {mode: repr(run["losses"]) for mode, run in runs.items()}
        if len(set(losses.values())) > 1:
            raise RuntimeError(f"{name}: not the same run in all modes: {losses}")


def preload() -> None:
    """Let the fork server import what every run needs; to be called before the first run."""
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH", "")) if p)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["heavy", "corpus", "record", "score"])


def sketch_problem() -> str:
    """Why `summary_mode: sketch` cannot be recorded; empty when it can."""
    import msprobe
    from msprobe.pytorch import PrecisionDebugger

    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config.json"
        config.write_text(json.dumps(settings("sketch", "light", Path(name) / "dump")))
        try:
            PrecisionDebugger(config_path=str(config))
        except msprobe.MsprobeError as error:
            return str(error)
        finally:
            PrecisionDebugger.reset()
    return ""
