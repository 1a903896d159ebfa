"""Make pairs of dumps for timing `compare`: the same numbers on every machine.

    python gen_inputs.py FOLDER [--small] SET...

Each set becomes FOLDER/<set>/{target,golden}/dump.json with stack.json, construct.json and, for the task `tensor`,
dump_tensor_data/*.pt.

    big     4 entries x 1 output of 25,000,000 float32      400 MB a side
    long    16 entries, whose files are those of big four times, by hard links   1.6 GB a side
    half    200 entries x 1 output of 1,000,000 bfloat16    400 MB a side
    many    1,000 entries x 3 leaves of 1,024 float32       3,000 pairs of 4 kB
    stats   20,000 entries x 3 leaves, statistics only      60,000 rows
    ranks   8 ranks x 2,500 entries x 3 leaves, likewise    8 x 7,500 rows
    million 333,340 entries x 3 leaves, likewise            1,000,020 rows

In the target every tenth output differs by about 1e-3, every hundredth by about 0.5. `--small` divides the sizes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

OPERATORS = ["linear", "layer_norm", "matmul", "softmax", "add", "mul", "gelu", "conv2d", "sum", "cat"]
SIDES = ("target", "golden")


def statistics(values: np.ndarray) -> dict[str, float]:
    wide = values.astype(np.float64)
    norm = float(np.sqrt((wide * wide).sum()))
    return {"Max": float(wide.max()), "Min": float(wide.min()), "Mean": float(wide.mean()), "Norm": norm}


def leaf(shape: list[int], numbers: dict[str, float], dtype: str, file: str | None = None) -> dict[str, Any]:
    record = {"type": "torch.Tensor", "dtype": dtype, "shape": shape, **numbers, "requires_grad": False}
    return {**record, "data_name": file} if file else record


def write_dump(folder: Path, data: dict[str, Any], task: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    where = "dump_tensor_data" if task == "tensor" else None
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": where, "data": data}
    (folder / "dump.json").write_text(json.dumps(head, indent=1))
    names = list(data)
    lines = [f"File model.py, line {n}, in forward, \n x = layer(x)" for n in range(6)]
    stacks = {str(i // 8): [names[i : i + 8], lines] for i in range(0, len(names), 8)}  # eight entries share one
    (folder / "stack.json").write_text(json.dumps(stacks, indent=1))
    (folder / "construct.json").write_text("{}")


def difference(i: int) -> float:
    return 0.5 if i % 100 == 99 else (1e-3 if i % 10 == 9 else 0.0)


def entry_name(i: int) -> str:
    return f"Functional.{OPERATORS[i % 10]}.{i // 10}.forward"


def tensor_set(root: Path, entries: int, leaves: int, numel: int, dtype: torch.dtype) -> None:
    generator = np.random.default_rng(7)
    data: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    for side in SIDES:
        (root / side / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    for i in range(entries):
        parts: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for n in range(leaves):
            is_output = n == leaves - 1
            base = generator.standard_normal(numel, dtype=np.float32)
            file = f"{entry_name(i)}.{'output.0' if is_output else f'input.{n}'}.pt"
            for side in SIDES:
                values, d = base, np.float32(difference(i))
                if side == "target" and is_output and d:
                    values = base * (1 + d / 2) + d / 7
                torch.save(torch.from_numpy(values).to(dtype), root / side / "dump_tensor_data" / file)
                parts[side].append(leaf([numel], statistics(values), str(dtype), file))
        for side in SIDES:
            record = {"input_args": parts[side][:-1], "input_kwargs": {}, "output": parts[side][-1:]}
            data[side][entry_name(i)] = record
    for side in SIDES:
        write_dump(root / side, data[side], "tensor")


def long_set(root: Path, big: Path) -> None:
    data: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    for side in SIDES:
        records = list(json.loads((big / side / "dump.json").read_text())["data"].values())
        (root / side / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
        for i in range(4 * len(records)):
            output = dict(records[i % len(records)]["output"][0])
            source = big / side / "dump_tensor_data" / output["data_name"]
            output["data_name"] = f"{entry_name(i)}.output.0.pt"
            target = root / side / "dump_tensor_data" / output["data_name"]
            target.unlink(missing_ok=True)
            target.hardlink_to(source)
            data[side][entry_name(i)] = {"input_args": [], "input_kwargs": {}, "output": [output]}
        write_dump(root / side, data[side], "tensor")


def statistics_set(root: Path, entries: int, rank: str = "") -> None:
    for side in SIDES:
        generator, data = np.random.default_rng(3), {}
        for i in range(entries):
            leaves = []
            for n in range(3):
                v = generator.standard_normal(4)
                factor = 1 + difference(i) if side == "target" and n == 2 else 1.0
                numbers = {"Max": abs(v[0]) + 1, "Min": -abs(v[1]), "Mean": v[2] / 10, "Norm": abs(v[3]) * 30}
                rounded = {key: float(np.float32(value * factor)) for key, value in numbers.items()}
                leaves.append(leaf([8, 128, 512], rounded, "torch.float32"))
            data[entry_name(i)] = {"input_args": leaves[:2], "input_kwargs": {}, "output": leaves[2:]}
        write_dump(root / side / rank, data, "statistics")


def make(name: str, folder: Path, small: bool) -> None:
    root, cut = folder / name, 100 if small else 1
    if name == "big":
        tensor_set(root, 4, 1, 25_000_000 // cut, torch.float32)
    elif name == "long":
        if not (folder / "big" / "golden" / "construct.json").exists():
            make("big", folder, small)
        long_set(root, folder / "big")
    elif name == "half":
        tensor_set(root, max(2, 200 // cut), 1, 1_000_000 // cut, torch.bfloat16)
    elif name == "many":
        tensor_set(root, 1000 // cut, 3, 1024, torch.float32)
    elif name == "stats":
        statistics_set(root, 20_000 // cut)
    elif name == "ranks":
        for rank in range(8):
            statistics_set(root, 2_500 // cut, f"rank{rank}")
    elif name == "million":
        statistics_set(root, 333_340 // cut)
    else:
        raise SystemExit(f"unknown set {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        make(name, options.folder, options.small)


if __name__ == "__main__":
    main()
