"""A Lightning trainer whose first two batches are recorded: `python lightning_module.py CONFIG DUMP_PATH`."""

from __future__ import annotations

import sys

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from msprobe.integrations.lightning import MsprobeCallback
from msprobe.pytorch import seed_all


class Classifier(pl.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss."""
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(config: str, dump_path: str) -> None:
    """Train four batches."""
    seed_all(seed=1234, mode=True)
    data = TensorDataset(torch.randn(16, 16), torch.randint(0, 4, (16,)))
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[MsprobeCallback(config, dump_path=dump_path, step=[0, 1])],
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=4))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
