"""A transformers Trainer whose first two steps are recorded: `python trainer.py CONFIG DUMP_PATH`."""

from __future__ import annotations

import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from msprobe.integrations.transformers import MsprobeCallback
from msprobe.pytorch import seed_all


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random words."""

    def __len__(self) -> int:
        """Number of sentences."""
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Words and their class."""
        words = torch.randint(0, 100, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words[0] % 2}


def main(config: str, dump_path: str) -> None:
    """Train four steps of two sentences."""
    seed_all(seed=1234, mode=True)
    sizes = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 16}
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=2, num_attention_heads=2, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=2,
            max_steps=4,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        callback = MsprobeCallback(config, dump_path=dump_path, step=[0, 1])
        Trainer(model=model, args=arguments, train_dataset=Sentences(), callbacks=[callback]).train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
