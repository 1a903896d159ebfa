"""From the notes of a fault to the names of entries in the dumps. Nothing of `compare` is used.

A note says "the third call of layer_norm, which returned these bytes", "the calls inside this module", or "whoever
takes this tensor first". Names are looked up in the tensor dump of the target and, for calls that are missing there,
in the golden one. A note that cannot be found, or a call whose recorded output is not what the fault returned, is an
error: a case with an uncertain truth is not scored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from inject import digest, key_of


class TruthError(RuntimeError):
    """The truth of a case cannot be worked out."""


@dataclass
class Step:
    """One step of one rank of a tensor dump."""

    folder: Path
    data: dict[str, Any] = field(default_factory=dict)
    parents: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = json.loads((self.folder / "dump.json").read_text())["data"]
        self.parents = json.loads((self.folder / "construct.json").read_text())

    def calls(self, key: str) -> list[str]:
        """Forward entries of API calls of that name, in order."""
        apis = [n for n in self.data if n.endswith(".forward") and not n.startswith("Module.")]
        return [n for n in apis if key_of(n.split(".")[-3]) == key]

    def leaf(self, name: str) -> str:
        """The hash of one tensor file."""
        if name not in self.digests:
            path = self.folder / "dump_tensor_data" / name
            self.digests[name] = digest(torch.load(path, weights_only=True)) if path.exists() else ""
        return self.digests[name]

    def files(self, value: Any) -> list[str]:
        """The tensor files that a part of an entry names, in order."""
        if isinstance(value, dict):
            if "data_name" in value:
                return [value["data_name"]]
            return [f for part in value.values() for f in self.files(part)]
        if isinstance(value, list):
            return [f for part in value for f in self.files(part)]
        return []

    def has_value(self, name: str, wanted: object) -> bool:
        """Whether a number or text among the arguments is this one."""

        def look(part: Any) -> bool:
            if isinstance(part, dict):
                return (part.get("value") == wanted and "value" in part) or any(look(p) for p in part.values())
            return isinstance(part, list) and any(look(p) for p in part)

        entry = self.data[name]
        return look([entry.get(k) for k in ("input", "input_args", "input_kwargs")])

    def takes(self, name: str, wanted: str) -> bool:
        """Whether an input of the entry has these bytes."""
        entry = self.data[name]
        parts = [entry.get(k) for k in ("input", "input_args", "input_kwargs")]
        return any(self.leaf(f) == wanted for f in self.files(parts))

    def returns(self, name: str, wanted: str) -> bool:
        """Whether an output, a parameter's gradient or an argument changed in place has these bytes."""
        entry = self.data[name]
        parts = entry if ".parameters_grad" in name else [entry.get("output"), entry.get("mutated")]
        return any(self.leaf(f) == wanted for f in self.files(parts))


def steps_of(folder: Path, rank: int = 0) -> list[Step]:
    """The steps of a tensor dump."""
    found = []
    for number in range(len(list(folder.glob("step*")))):
        parent = folder / f"step{number}"
        (where,) = [p for p in (parent / "rank", parent / f"rank{rank}") if p.exists()]
        found.append(Step(where))
    return found


def of_call(note: dict[str, Any], target: list[Step]) -> set[str]:
    """A forward call, checked by its bytes; or its backward entry with those that hand the wrong gradient on."""
    step = target[note["step"]]
    calls = step.calls(note["call"])
    if note["number"] >= len(calls):
        raise TruthError(f"call {note['number']} of {note['call']} is not recorded; there are {len(calls)}")
    name = calls[note["number"]]
    if "digest" in note:
        if not step.returns(name, note["digest"]):
            raise TruthError(f"{name} did not return what the fault returned")
        return {name}
    backward = f"{name.removesuffix('.forward')}.backward"
    names = {backward}
    order = list(step.data)
    for other in order[order.index(backward) + 1 :] if backward in step.data else []:
        api = ".backward" in other and not other.startswith("Module.")
        if ".forward" not in other and step.returns(other, note["gradient"]):
            names.add(other)
        elif ".forward" not in other and step.takes(other, note["gradient"]):
            names.add(other)
            if api:
                break
    return names


def of_module(note: dict[str, Any], sides: list[list[Step]]) -> set[str]:
    """A module with the calls made directly in it, as far as either side has them."""
    pattern = re.compile(rf"Module\.{re.escape(note['module'])}\.\w+\.forward\.\d+")
    names: set[str] = set()
    for steps in sides:
        for step in steps:
            modules = {n for n in step.data if pattern.fullmatch(n)}
            inside = {n for n in step.data if n.endswith(".forward") and step.parents.get(n) in modules}
            if note["apis"]:
                modules, inside = set(), {n for n in inside if key_of(n.split(".")[-3]) in note["apis"]}
            if note["value"] is not None:
                inside = {n for n in inside if step.has_value(n, note["value"])}
            if note["backward"]:
                names |= {n.replace(".forward", ".backward") for n in modules | inside}
                stem = f"Module.{note['module']}."
                names |= {n for n in step.data if n.startswith(stem) and ".parameters_grad" in n[len(stem) :]}
            else:
                names |= modules | inside
    if not names:
        raise TruthError(f"nothing is recorded in module {note['module']}")
    return names


def of_consumers(note: dict[str, Any], target: list[Step]) -> set[str]:
    """The first call that takes a tensor, with the modules it enters before that."""
    step = target[note["step"]]
    takers = [n for n in step.data if ".forward" in n and step.takes(n, note["consumers"])]
    apis = [n for n in takers if not n.startswith("Module.")]
    if len(apis) <= note["skip"]:
        raise TruthError("nobody takes the tensor of the fault")
    name = apis[note["skip"]]
    names = {name}
    parent = step.parents.get(name)
    while isinstance(parent, str) and parent in takers:
        names.add(parent)
        parent = step.parents.get(parent)
    return names


def resolve(notes: list[dict[str, Any]], target: Path, golden: Path, rank: int) -> list[str]:
    """The acceptable names of a case.

    Args:
        notes: What the fault wrote down.
        target: Tensor dump of the target (holds step folders).
        golden: Tensor dump of the golden side.
        rank: Whose notes these are.

    Raises:
        TruthError: A note cannot be found in the dumps.
    """
    sides = [steps_of(target, rank), steps_of(golden, rank)]
    names: set[str] = set()
    for note in notes:
        if "call" in note:
            names |= of_call(note, sides[0])
        elif "module" in note:
            names |= of_module(note, sides)
        elif "consumers" in note:
            names |= of_consumers(note, sides[0])
        else:
            if not any(note["entry"] in step.data for steps in sides for step in steps):
                raise TruthError(f"{note['entry']} is in neither dump")
            names.add(note["entry"])
    if not names:
        raise TruthError("the fault says nowhere")
    return sorted(names)
