"""The figures behind src/metrics/rounding.cc: what harmless differences really do, per family of operators.

    python make_dumps.py FOLDER
    python calibrate.py FOLDER

An own implementation in NumPy over the recorded tensors of the controls: `c` is the largest deviation of a result whose
inputs are equal, in units of u + u_acc * sqrt(K); `gain` the largest ratio of the deviation of a result to that of its
inputs; `noise` the largest deviation anywhere, per dtype. The constants in use have to be larger.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runs import CONTROLS

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
PRODUCTS = {"linear", "matmul", "__matmul__", "bmm", "conv2d", "scaled_dot_product_attention"}
SUMS = {"sum", "mean"}
NORMS = {"layer_norm", "batch_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss"}
ADDS = {"__add__", "add", "__sub__", "sub", "sum", "mean"}


def family(api: str) -> str:
    for name, apis in (("product", PRODUCTS), ("sum", SUMS), ("norm and loss", NORMS)):
        if api in apis:
            return name
    return "other"


def leaves(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict) and "data_name" in value:
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [leaf for item in inner for leaf in leaves(item)]


class Side:
    """One dump."""

    def __init__(self, folder: Path) -> None:
        (self.file,) = folder.glob("step0/*/dump.json")
        self.data = json.loads(self.file.read_text())["data"]

    def tensor(self, leaf: dict[str, Any]) -> torch.Tensor:
        return torch.load(self.file.parent / "dump_tensor_data" / leaf["data_name"], weights_only=True)


def deviation(a: np.ndarray, b: np.ndarray, scale: float) -> float:
    return float(np.max(np.abs(a - b) / (np.abs(b) + scale), initial=0.0)) if scale > 0 else 0.0


def main() -> None:
    folder = Path(sys.argv[1]) / "tensor"
    own: dict[str, float] = defaultdict(float)
    gain: dict[str, float] = defaultdict(float)
    noise: dict[str, float] = defaultdict(float)
    for how in CONTROLS:
        if how.parts or how.fused or how.recompute:
            continue
        target, golden = Side(folder / how.name), Side(folder / how.net)
        for name, entry in golden.data.items():
            api = name.split(".")[1]
            if name not in target.data or not name.endswith("forward") or api.endswith("_"):
                continue
            measured: dict[str, list[tuple[float, float, int, torch.dtype]]] = {}
            for part in ("input_args", "output"):
                measured[part] = []
                for t, g in zip(leaves(target.data[name].get(part)), leaves(entry.get(part)), strict=True):
                    x, y = target.tensor(t), golden.tensor(g)
                    if not y.is_floating_point():
                        continue
                    coarse = x.dtype if UNIT[x.dtype] > UNIT[y.dtype] else y.dtype
                    a, b = x.double().numpy(), y.double().numpy()
                    scale = math.sqrt(max(float(np.mean(a * a)), float(np.mean(b * b))))
                    if api in ADDS and part == "output":
                        scale = max([scale, *(s for _, s, _, _ in measured["input_args"])])
                    measured[part].append((deviation(a, b, scale), scale, b.size, coarse))
            incoming = max((d for d, *_ in measured["input_args"]), default=0.0)
            sizes = [n for _, _, n, _ in measured["input_args"][:2]]
            for d, _, n, coarse in measured["output"]:
                noise[str(coarse)] = max(noise[str(coarse)], d)
                kind = family(api)
                terms = {"product": math.sqrt(math.prod(sizes) / n) if len(sizes) == 2 else 1, "sum": sizes[0] / n}
                unit = UNIT[coarse] + min(UNIT[coarse], 2.0**-24) * math.sqrt(max(terms.get(kind, 1), 1))
                if incoming == 0:
                    own[kind] = max(own[kind], d / unit)
                elif d > 8 * unit:
                    gain[kind] = max(gain[kind], d / incoming)
    print("| family | largest c seen | largest gain seen |\n| --- | --- | --- |")
    for kind in sorted({*own, *gain}):
        print(f"| {kind} | {own[kind]:.2g} | {gain[kind]:.2g} |")
    print("\n| dtype | largest deviation of a result |\n| --- | --- |")
    for name, value in sorted(noise.items()):
        print(f"| {name} | {value:.2g} |")


if __name__ == "__main__":
    main()
