"""What in a model cannot be seen, or is seen in another way than one would expect. Imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_SHOWN = 5


def describe(given: Any) -> list[str]:
    """A line per kind of thing, with the modules concerned."""
    models = [m for m in (given if isinstance(given, list | tuple) else [given]) if isinstance(m, nn.Module)]
    found: dict[str, list[str]] = {}
    for number, model in enumerate(models):
        prefix = f"[{number}]." if len(models) > 1 else ""
        for name, module in model.named_modules():
            for kind in kinds(module):
                found.setdefault(kind, []).append(prefix + (name or "the model itself"))
    return [f"{kind}: {_some(names)}" for kind, names in found.items()]


def kinds(module: nn.Module) -> list[str]:
    """What is special in one module, without its children."""
    out = []
    if type(module).__name__ == "OptimizedModule":
        out.append('compiled modules run eagerly while recording ("compiled": "leaf" keeps them compiled)')
    if type(module).__name__ in ("FullyShardedDataParallel", "FSDPModule") or "FSDP" in type(module).__name__:
        out.append("FSDP: parameters are recorded as the sharded pieces that the module holds")
    if "quantized" in type(module).__module__:
        out.append("quantised modules: statistics are those of the dequantised values")
    for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
        kind = tensor_kind(tensor)
        if kind and kind not in out:
            out.append(kind)
    return out


def tensor_kind(tensor: torch.Tensor) -> str | None:
    """Why the values of a parameter or buffer cannot be read, or need a note; None when they can."""
    if tensor.is_meta:
        return "parameters on the meta device have no values to record"
    if tensor.layout != torch.strided:
        return "sparse parameters: statistics are those of the stored values"
    if type(tensor).__name__ == "DTensor":
        return "distributed tensors: each rank records its own piece"
    if torch.nn.parameter.is_lazy(tensor):
        return "lazy parameters have no values before the first call"
    return None


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
