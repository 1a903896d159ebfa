"""Record every run of runs.py.

    python make_dumps.py FOLDER [NAME…]

Writes FOLDER/tensor/<name>/step0/rank/ (task tensor) and FOLDER/statistics/<name>/dump.json, the same record without
its files, which is what task statistics writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from runs import CONTROLS, FAULTS, GOLDEN, TOKENS, VOCABULARY, Decoder, Images, Variant

from msprobe.pytorch import PrecisionDebugger


def step(how: Variant) -> torch.Tensor:
    """One forward and backward pass."""
    if how.net == "images":
        net: torch.nn.Module = Images()
        images, labels = torch.randn(4, 3, 12, 12), torch.arange(4)
        prepare(how, net)
        with how.around():
            loss = net(how.data(images), labels)
            loss.backward()
        return loss
    net = Decoder(how)
    tokens = torch.randint(0, VOCABULARY, (2, TOKENS + 1))
    prepare(how, net)
    net.to(how.dtype)
    with how.around():
        loss = net(how.data(tokens))
        loss.backward()
    return loss


def prepare(how: Variant, net: torch.nn.Module) -> None:
    """The change before the step, without a record of it."""
    with torch._C.DisableTorchFunction():
        how.prepare(net)


def record(how: Variant, folder: Path) -> None:
    """One run with collection on."""
    dump = folder / "tensor" / how.name
    config = folder / f"{how.name}.json"
    settings = {"task": "tensor", "level": "L1", "dump_path": str(dump), "rank": [], "step": []}
    settings["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}
    config.write_text(json.dumps(settings))
    torch.manual_seed(1)
    torch.set_num_threads(how.threads)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start()
    step(how)
    debugger.stop()
    debugger.step()
    (written,) = dump.glob("step0/*/dump.json")
    whole = json.loads(written.read_text())
    whole["task"] = "statistics"
    drop_files(whole["data"])
    target = folder / "statistics" / how.name / "dump.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps(whole))


def drop_files(value: object) -> None:
    """Take `data_name` out of every leaf."""
    if isinstance(value, dict):
        value.pop("data_name", None)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            drop_files(item)


def main() -> None:
    """Record all runs, or those named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for how in [*GOLDEN, *CONTROLS, *FAULTS]:
        if len(sys.argv) < 3 or how.name in sys.argv[2:]:
            record(how, folder)


if __name__ == "__main__":
    main()
