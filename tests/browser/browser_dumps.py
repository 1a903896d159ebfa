"""Small dumps for the tests of reports and for the pictures of the documents."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

HOSTILE = [
    "</script><img src=x onerror=document.title='pwned'>",
    "<b onmouseover=alert(1)>\u2028\u202egnp",
    "'\"--><svg/onload=document.title='pwned'>",
]


def tensor(rng: random.Random, error: float = 0.0, shape: tuple[int, ...] = (4, 64)) -> dict[str, Any]:
    """A leaf whose statistics are off by a relative error."""
    top = rng.uniform(1.0, 3.0)
    factor = 1.0 + error
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(shape),
        "Max": top * factor,
        "Min": -top * 0.9 * factor,
        "Mean": top * 0.05 * factor,
        "Norm": top * 8 * factor,
        "requires_grad": False,
    }


class Network:
    """A stack of blocks with a linear, a norm and an activation, run forward and backward.

    From the call of `fault` on every output is off, by `size` at first and less behind it.
    """

    def __init__(self, blocks: int, fault: int = -1, size: float = 0.6, nan: bool = False) -> None:
        self.data: dict[str, Any] = {}
        self.construct: dict[str, str | None] = {}
        self.stack: dict[str, Any] = {}
        self.rng = random.Random(7)
        self.fault, self.size, self.nan = fault, size, nan
        for block in range(blocks):
            self.block(block, "forward")
        for block in reversed(range(blocks)):
            self.block(block, "backward")

    def error_in(self, block: int, direction: str) -> float:
        """What a block of a direction receives."""
        if self.fault < 0 or (direction == "forward" and block <= self.fault):
            return 0.0
        return self.size * 0.3 / (1 + abs(block - self.fault))

    def leaf(self, error: float) -> dict[str, Any]:
        made = tensor(self.rng, error)
        if self.nan and error > 0:
            made |= {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
        return made

    def block(self, block: int, direction: str) -> None:
        given = self.error_in(block, direction)
        faulty = self.fault == block and direction == "forward"
        module = f"Module.layers.{block}.Block.{direction}.0"
        for k, (path, kind, api) in enumerate(
            [("linear", "Linear", "linear"), ("norm", "LayerNorm", "layer_norm"), ("act", "GELU", "gelu")]
        ):
            inner = f"Module.layers.{block}.{path}.{kind}.{direction}.0"
            call = f"Functional.{api}.{block}.{direction}"
            wrong_in = given or (self.size * 0.4 if faulty and k == 2 else 0.0)
            wrong_out = given or (self.size * (1.0 if k == 1 else 0.4) if faulty and k >= 1 else 0.0)
            for name, parent in ((call, inner), (inner, module)):
                self.add(name, parent, wrong_in, wrong_out, path, kind)
        self.add(module, None, given, self.size * 0.4 if faulty else given, "block", "Block")

    def add(self, name: str, parent: str | None, wrong_in: float, wrong_out: float, path: str, kind: str) -> None:
        inputs, outputs = [self.leaf(wrong_in)], [self.leaf(wrong_out)]
        if "backward" in name:
            self.data[name] = {"input": inputs, "output": outputs}
        else:
            self.data[name] = {"input_args": inputs, "input_kwargs": {}, "output": outputs}
        self.construct[name] = parent
        lines = [
            f"File model.py, line {len(kind)}, in {path}, \n x = self.{path}(x)",
            "File train.py, line 30, in step",
        ]
        self.stack[str(len(self.stack))] = [[name], lines]

    def write(self, folder: Path) -> Path:
        """Write dump.json, construct.json and stack.json; returns dump.json."""
        folder.mkdir(parents=True, exist_ok=True)
        head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        (folder / "construct.json").write_text(json.dumps(self.construct))
        (folder / "stack.json").write_text(json.dumps(self.stack))
        path = folder / "dump.json"
        path.write_text(json.dumps(head | {"data": self.data}))
        return path


def add_hostile(network: Network) -> None:
    """Calls whose names, types and stacks try to leave their place in the page."""
    for k, name in enumerate(HOSTILE):
        entry = f"Functional.{name}.{k}.forward"
        network.add(entry, None, 0.0, 0.5 if network.fault >= 0 else 0.0, name, name)
        network.data[entry]["output"][0]["dtype"] = name


def write_many(folder: Path, calls: int, wrong: int = -1) -> None:
    """A dump of many equal calls with three inputs and an output, one of them wrong; made as text, which is quick."""
    folder.mkdir(parents=True)
    good, bad = (json.dumps(tensor(random.Random(3), error)) for error in (0.0, 0.7))
    entries = (
        f'"Torch.op.{i}.forward": {{"input_args": [{good}, {good}, {good}], "input_kwargs": {{}}, '
        f'"output": [{bad if i == wrong else good}]}}'
        for i in range(calls)
    )
    head = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {'
    (folder / "dump.json").write_text(head + ",\n".join(entries) + "}}")
