"""Collection in actors that a job runs already: one call of the driver gives each its rank, step and folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.errors import ConfigError, ErrorCode
from msprobe.scale import cluster


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor records."""

    rank: int
    step: int
    folder: str  # dump_path; the dump is in step{S}/rank{R} below
    node: str


class Attached:
    """Actors that collect. Every method is one call of the driver for all of them, and waits for all."""

    def __init__(self, actors: Sequence[Any], places: list[Place]) -> None:
        """Made by `attach`."""
        self._actors = list(actors)
        self.places = places

    def start(self, model: str | None = "model") -> None:
        """Begin to record.

        Args:
            model: Name of the attribute of the actor that holds its model (`"policy.net"` works too); None: calls
                alone are recorded.
        """
        _all(self._actors, [(_start, model)] * len(self._actors))

    def stop(self) -> None:
        """End of what is recorded of this step."""
        _all(self._actors, [(_stop, None)] * len(self._actors))

    def step(self) -> None:
        """End the step; the next one has the next number in every actor."""
        _all(self._actors, [(_step, None)] * len(self._actors))


def attach(
    actors: Sequence[Any],
    config_path: str | os.PathLike[str] | None = None,
    *,
    dump_path: str | os.PathLike[str] | None = None,
    group: str = "",
    ranks: Sequence[int] | None = None,
    step: int = 0,
) -> Attached:
    """Make every actor a rank that collects.

    The actors need no line of msprobe in their code; where they want to choose the place themselves, they call
    `PrecisionDebugger.start()`, `stop()` and `step()`, which find the debugger made here.

    Args:
        actors: Handles of Ray actors, each in a process of its own.
        config_path: config.json of the driver's host; its text goes to the actors.
        dump_path: Instead of the file's; a folder that all hosts see, or else each host has its own part of the dump.
        group: Name of a folder below it, for a job with several groups of actors whose ranks begin at 0 each.
        ranks: Of the actors; their order by default.
        step: Number of the step that begins.

    Returns:
        The actors, with `start`, `stop` and `step` for all of them.

    Raises:
        ConfigError: An argument or the configuration is wrong.
    """
    numbers = list(range(len(actors))) if ranks is None else list(ranks)
    if not actors or len(numbers) != len(actors) or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        raise ConfigError(
            ErrorCode.INVALID_ARGUMENT, f"ranks: {len(actors)} different numbers from 0 on were expected", "ranks"
        )
    if group in (".", "..") or "/" in group:
        raise ConfigError(ErrorCode.INVALID_ARGUMENT, f"group: {group!r} is no name of a folder", "group")
    config = ""
    if config_path is not None:
        try:
            config = Path(config_path).read_text(encoding="utf-8")
        except OSError as e:
            raise ConfigError(ErrorCode.NOT_FOUND, f"{config_path}: {e.strerror}", str(config_path)) from None
    settings = {"config": config, "folder": str(Path(dump_path).absolute()) if dump_path else "", "group": group}
    places = _all(list(actors), [(_begin, {**settings, "rank": rank, "step": step}) for rank in numbers])
    return Attached(actors, places)


def _all(actors: list[Any], calls: list[tuple[Any, Any]]) -> list[Any]:
    ray = cluster.import_ray()
    refs = [actor.__ray_call__.remote(function, value) for actor, (function, value) in zip(actors, calls, strict=True)]
    return list(ray.get(refs))


def _begin(actor: Any, settings: dict[str, Any]) -> Place:
    import contextlib
    import json

    from msprobe.pytorch import PrecisionDebugger

    os.environ["MSPROBE_RANK"] = str(settings["rank"])
    folder = settings["folder"]
    path = None
    if settings["config"]:
        handle, path = tempfile.mkstemp(prefix="msprobe-", suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            f.write(settings["config"])
        with contextlib.suppress(ValueError, AttributeError):  # the debugger says what is wrong with the file
            folder = folder or json.loads(settings["config"]).get("dump_path", "")
    if settings["group"]:
        folder = os.path.join(folder or "dump_path", settings["group"])
    debugger = PrecisionDebugger(config_path=path, dump_path=folder or None)
    debugger.set_init_step(settings["step"])
    return Place(settings["rank"], settings["step"], os.path.abspath(folder or "dump_path"), os.uname().nodename)


def _start(actor: Any, model: str | None) -> None:
    from msprobe.pytorch import PrecisionDebugger

    found: Any = None
    if model is not None:
        found = actor
        for part in model.split("."):
            found = getattr(found, part)
    PrecisionDebugger.start(model=found)


def _stop(actor: Any, _: None) -> None:
    from msprobe.pytorch import PrecisionDebugger

    PrecisionDebugger.stop()


def _step(actor: Any, _: None) -> None:
    from msprobe.pytorch import PrecisionDebugger

    PrecisionDebugger.step()
