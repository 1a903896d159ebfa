"""Replays for `compare --culprit`: recorded calls in float64 on a side's own inputs, scored by what rounding explains.

The C++ core chooses the calls and judges the scores; see docs/culprit.md. One call of `scores` takes a batch of jobs as
JSON and gives the scores as JSON; nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

import torch

from msprobe.precheck.culprit_calls import Side, prepare
from msprobe.precheck.culprit_parameters import parameter_score
from msprobe.precheck.culprit_work import Backward, Forward, Work
from msprobe.precheck.dump import read_dump
from msprobe.precheck.functions import UnknownFunction
from msprobe.precheck.inputs import Unsupported, first_line
from msprobe.precheck.judging import quiet_warnings


def scores(jobs_json: str, stop: Callable[[], bool] | None = None) -> str:
    """Scores of a batch of jobs.

    Args:
        jobs_json: `dump` and `other` (paths of dump.json), `limit`, `calls` (lists of name, name in the other dump,
            forward, backward) and `parameters` (objects with `key`, `data_name`, `dtype`, `shape`, `uses`).
        stop: Asked before each call; true ends the work.

    Returns:
        An object: entry or key to `{"leaves": [...]}` or `{"reason": "..."}`.

    Raises:
        KeyboardInterrupt: `stop` said so.
    """
    jobs = json.loads(jobs_json)
    here = Side(read_dump(jobs["dump"]))
    other = Side(read_dump(jobs["other"])) if jobs["other"] else None
    replay = Replay(here, other, float(jobs["limit"]))
    out: dict[str, Any] = {}
    with quiet_warnings(), torch.random.fork_rng(devices=[]):
        for name, partner, forward, backward in jobs["calls"]:
            go_on(stop)
            replay.call(name, partner, forward, backward, out)
        for job in jobs["parameters"]:
            go_on(stop)
            out[job["key"]] = replay.parameter(job)
    return json.dumps(out)


def go_on(stop: Callable[[], bool] | None) -> None:
    """End here when that is wished."""
    if stop is not None and stop():
        raise KeyboardInterrupt


class Replay:
    """Replays calls of one side, and compares with the other where that is asked for."""

    def __init__(self, here: Side, other: Side | None, limit: float) -> None:
        """Scores above half the limit are looked at again with probes."""
        self._here = here
        self._other = other
        self._limit = limit

    def call(self, name: str, partner: str, forward: bool, backward: bool, out: dict[str, Any]) -> None:
        """Add the scores of a call and of its gradient to `out`."""
        wanted = [d for d, w in (("forward", forward), ("backward", backward)) if w]
        try:
            prepared = prepare(self._here, name)
        except Exception as e:  # files and records of others
            for direction in wanted:
                out[f"{name}.{direction}"] = {"reason": reason_of(e)}
            return
        for direction in wanted:
            try:
                work = Forward(prepared) if direction == "forward" else Backward(self._here, prepared)
                leaves = work.leaves(self._limit)
                if partner and self._other is not None and leaves:
                    self._effects(work, direction, partner, leaves)
                out[f"{name}.{direction}"] = {"leaves": leaves}
            except Exception as e:  # operators raise anything
                out[f"{name}.{direction}"] = {"reason": reason_of(e)}

    def _effects(self, work: Work, direction: str, partner: str, leaves: list[dict[str, Any]]) -> None:
        """What the other side inherits and introduces; `work` is the golden side here, `other` the target."""
        assert self._other is not None
        with contextlib.suppress(Exception):  # figures beside the verdict
            prepared = prepare(self._other, partner)
            target = Forward(prepared) if direction == "forward" else Backward(self._other, prepared)
            effects(work, target, leaves, with_loss=direction == "forward", sides=(self._here, self._other))

    def parameter(self, job: dict[str, Any]) -> dict[str, Any]:
        """The score of a parameter's gradient against the sum over its uses."""
        try:
            return {"leaves": [parameter_score(self._here, job)]}
        except Exception as e:
            return {"reason": reason_of(e)}


def reason_of(e: Exception) -> str:
    """The code of an exception of ours ("no_data_file"), or what an operator raised, in short."""
    if isinstance(e, (Unsupported, UnknownFunction)):
        return str(e).partition(":")[0]
    return f"failed: {type(e).__name__}: {first_line(e)[:80]}"


def effects(
    golden: Work, target: Work, leaves: list[dict[str, Any]], *, with_loss: bool, sides: tuple[Side, Side]
) -> None:
    """Add what the target inherits, how much the call amplifies, and the effect on the loss to the golden leaves."""
    ours, theirs = golden.reference(), target.reference()
    moved, size = 0.0, 0.0
    for a, b in zip(golden.prepared.arguments.tensors(), target.prepared.arguments.tensors(), strict=False):
        if a.is_floating_point() and a.shape == b.shape:
            moved += float((a.double() - b.double()).square().sum())
            size += float(a.double().square().sum())
    gradients = [arrived(side, work) for side, work in zip(sides, (golden, target), strict=True)]
    by_name = {leaf["leaf"]: leaf for leaf in leaves}
    for i, (name, y) in enumerate(golden.recorded):
        r, s, leaf = ours[i], theirs[i], by_name.get(name)
        z = target.recorded[i][1]
        if leaf is None or y is None or z is None or r is None or s is None or r.shape != s.shape:
            continue
        if not r.is_floating_point():
            continue
        leaf["inherited"] = float((s - r).norm())
        norm = float(r.norm())
        if moved > 0 and norm > 0:
            leaf["amplification"] = leaf["inherited"] * math.sqrt(size) / (math.sqrt(moved) * norm)
        g, h = (g[i] if g is not None and i < len(g) else None for g in gradients)
        if with_loss and g is not None and h is not None and g.numel() == h.numel() == y.numel():
            introduced = (z.double() - s) - (y.double() - r)
            mean = (g.double() + h.double()).reshape(y.shape) / 2
            leaf["impact"] = float((mean * introduced).sum())


def arrived(side: Side, work: Work) -> list[torch.Tensor | None] | None:
    """The gradients that arrived at the results of a call; None: not recorded."""
    record = work.prepared.call.backward
    if record is None:
        return None
    with contextlib.suppress(Unsupported):
        return side.maker(work.prepared.call.name, "").gradients(record)
    return None
