"""Tensors of calls that failed, kept for a closer look: one .pt file each, and what is needed to replay the call."""

from __future__ import annotations

import json
import os

import torch

from msprobe._files import create, make_folder
from msprobe.precheck.dump import Call
from msprobe.precheck.outcome import Outcome


def save_error_data(folder: str, call: Call, outcome: Outcome, parts: dict[str, list[torch.Tensor]], seed: int) -> str:
    """Write NAME.PART.N.pt for every tensor and NAME.json; what went wrong, empty when nothing did.

    The numbers of a part run over positional and keyword tensors together.
    """
    name = file_name(call.name)
    document = {
        "format_version": 1,
        "api": call.name,
        "seed": seed,
        "forward_status": outcome.forward,
        "backward_status": outcome.backward,
        "messages": [row.message for row in outcome.rows],
        "tensors": {
            f"{name}.{part}.{i}.pt": {"dtype": str(t.dtype), "shape": list(t.shape)}
            for part, tensors in parts.items()
            for i, t in enumerate(tensors)
        },
        "forward": call.forward,
        "backward": call.backward,
    }
    try:
        make_folder(folder)
        for part, tensors in parts.items():
            for i, tensor in enumerate(tensors):
                with create(os.path.join(folder, f"{name}.{part}.{i}.pt"), binary=True) as data:
                    torch.save(tensor.contiguous(), data)
        with create(os.path.join(folder, f"{name}.json")) as f:
            json.dump(document, f, indent=1)
    except (OSError, RuntimeError) as e:
        return f"{folder}: error data of {call.name} could not be saved: {str(e).splitlines()[0]}"
    return ""


def file_name(text: str) -> str:
    """A name without characters that lead elsewhere."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text).lstrip(".") or "_"
