#!/usr/bin/env python3
"""How much of real models the pre-check judges: `precheck_models.py [--task statistics|tensor] [NAME ...]`.

Records one training step of small models with random weights, replays every call on this machine's CPU and prints, for
each model, how many calls got a verdict, which were SKIP and why, and every call that did not pass. Exit status 1 when
a clean model raises an error, or a SKIP has a reason that is not in the list of good ones. Needs transformers.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

Build = Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]

# Calls that no replay can judge: they only make or move memory, or other processes belong to them.
GOOD_REASONS = frozenset(("black_list", "unsupported", "no_backward_data", "random"))


def ids(length: int = 12, words: int = 128) -> torch.Tensor:
    return torch.randint(0, words, (2, length))


def llama() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    tokens = ids()
    return LlamaForCausalLM(config).to(torch.bfloat16), lambda m: m(tokens, labels=tokens).loss


def bert() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    tokens, mask = ids(), torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    labels = torch.tensor([0, 1])
    return BertForSequenceClassification(config), lambda m: m(tokens, attention_mask=mask, labels=labels).loss


def sentences() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """A sentence encoder as all-MiniLM-L6: BERT of 6 layers, mean of the tokens, unit length, contrastive loss."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=128, hidden_size=48, num_hidden_layers=6, num_attention_heads=12, intermediate_size=192
    )
    tokens, mask = ids(), torch.ones(2, 12, dtype=torch.long)
    mask[1, 7:] = 0

    def loss(m: nn.Module) -> torch.Tensor:
        hidden = m(tokens, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        unit = nn.functional.normalize(mean, p=2, dim=1)
        return nn.functional.cross_entropy(unit @ unit.T * 20, torch.arange(2))

    return BertModel(config, add_pooling_layer=False), loss


def gpt2() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    tokens = ids()
    return GPT2LMHeadModel(config), lambda m: m(tokens, labels=tokens).loss


def moe() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        output_router_logits=True,
    )
    tokens = ids()
    return MixtralForCausalLM(config), lambda m: m(tokens, labels=tokens).loss


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.group = nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.norm(self.first(x)))
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.silu(self.group(self.second(x)))
        x = nn.functional.interpolate(self.up(x), scale_factor=2.0, mode="bilinear", align_corners=False)
        x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.out(nn.functional.dropout(x, 0.1))


def conv() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])
    return Convolutions(), lambda m: nn.functional.cross_entropy(m(images), labels)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.gru, self.out = nn.GRU(32, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.words(tokens))
        _, last = self.gru(x)
        return torch.log_softmax(self.out(last[-1]), -1)


def lstm() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    tokens, labels = ids(words=50), torch.tensor([0, 2])
    return Recurrent(), lambda m: nn.functional.nll_loss(m(tokens), labels)


def vit() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=3,
    )
    images, labels = torch.randn(2, 3, 16, 16), torch.tensor([0, 1])
    return ViTForImageClassification(config), lambda m: m(images, labels=labels).loss


MODELS: dict[str, Build] = {
    "llama": llama,
    "bert": bert,
    "sentences": sentences,
    "gpt2": gpt2,
    "moe": moe,
    "conv": conv,
    "lstm": lstm,
    "vit": vit,
}


def record(name: str, folder: Path, task: str) -> Path:
    """One forward and backward of a model; the path of its dump.json."""
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    config = {
        "task": task,
        "dump_path": str(folder),
        "rank": [],
        "step": [],
        "level": "L1",
        task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model, loss = MODELS[name]()
    debugger = PrecisionDebugger(config_path=str(folder / "config.json"))
    debugger.start(model=model)
    loss(model).backward()
    debugger.stop()
    debugger.step()
    return next(folder.glob("step0/rank*/dump.json"))


def rows_of(folder: Path) -> list[list[str]]:
    (path,) = folder.glob("accuracy_checking_result_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as f:
        return list(csv.reader(f))[1:]


def report(name: str, rows: list[list[str]]) -> bool:
    """Print a model's share; False when something is wrong with it."""
    forward = Counter(row[1] for row in rows)
    backward = Counter(row[2] for row in rows if row[2].strip())
    reasons: Counter[str] = Counter()
    good = True
    for row in rows:
        for way, status in (("forward", row[1]), ("backward", row[2])):
            if status in ("error", "warning"):
                print(f"    {row[0]} {way}: {status}")
                good = good and status != "error"
            elif status == "SKIP" and (way == "forward" or row[1] != "SKIP"):
                reason = (row[3] if len(row) > 3 else "").split("\n")[0]
                reasons[reason] += 1
                good = good and reason.partition(":")[0] in GOOD_REASONS
    judged = len(rows) - forward["SKIP"]
    print(
        f"{name:8} {len(rows):5} calls, {judged} judged ({100 * judged / max(1, len(rows)):.1f} %); "
        f"forward {dict(forward)}, backward {dict(backward)}",
        flush=True,
    )
    for reason, count in reasons.most_common():
        print(f"    SKIP {count:4}: {reason}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; all when left out")
    parser.add_argument("--task", default="statistics", choices=("statistics", "tensor"))
    parser.add_argument("--keep", type=Path, help="folder for dumps and results")
    parser.add_argument("--record", nargs=2, metavar=("NAME", "DIR"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        print(record(given.record[0], Path(given.record[1]), given.task))
        return 0
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        root = given.keep or Path(scratch)
        for name in given.names or MODELS:
            folder = root / name
            (folder / "out").mkdir(parents=True, exist_ok=True)
            # A process for each: a debugger has one configuration.
            command = [sys.executable, __file__, "--task", given.task, "--record", name, str(folder)]
            made = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            dump = made.stdout.strip().splitlines()[-1]
            command = [sys.executable, "-m", "msprobe", "acc_check", "-api_info", dump, "-o", str(folder / "out")]
            command += ["--device", "cpu", "-q"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            good = report(name, rows_of(folder / "out")) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
