"""Two Ray actors train; one call of the driver makes them collect.

    python examples/ray/two_actors.py OUTPUT_FOLDER

Rank 1 of the second run has a wrong activation. The last line is the command that finds it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import ray
from msprobe.scale import attach


@ray.remote
class Trainer:
    """A training actor without a line of msprobe."""

    def __init__(self, activation: str) -> None:
        """A small net and data that are the same each time."""
        torch.manual_seed(7)
        layer = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU}[activation]
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), layer(), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.data = torch.randn(4, 8)

    def train(self) -> float:
        """One step."""
        loss = self.model(self.data).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())


def run(folder: Path, activations: tuple[str, str]) -> None:
    """Train two steps and record both."""
    config = folder / "config.json"
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"task": "statistics", "level": "mix", "dump_path": str(folder / "dump")}))
    trainers = [Trainer.remote(a) for a in activations]  # type: ignore[attr-defined]
    job = attach(trainers, config)
    for _ in range(2):
        job.start(model="model")
        losses = ray.get([t.train.remote() for t in trainers])
        job.stop()
        job.step()
        print(folder.name, losses)
    for place in job.places:
        print(f"rank {place.rank}: {place.folder}")
    for trainer in trainers:
        ray.kill(trainer)


def main() -> None:
    """A right run and a wrong one."""
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "output/ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    run(output / "good", ("relu", "relu"))
    run(output / "bad", ("relu", "gelu"))
    ray.shutdown()
    good, bad = output / "good" / "dump" / "step0", output / "bad" / "dump" / "step0"
    print(f"msprobe compare -tp {bad} -gp {good} -o {output / 'report'}")


if __name__ == "__main__":
    main()
