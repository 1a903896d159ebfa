"""Two data-parallel ranks: `torchrun --nproc_per_node 2 ranks.py CONFIG DUMP_PATH [--wrong]`.

With --wrong rank 1 scales its loss, the kind of fault that shows in the reduced gradients of every rank.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from msprobe.pytorch import PrecisionDebugger, seed_all


def main(config: str, dump_path: str, wrong: bool) -> None:
    """Train two steps on the ranks of the launcher."""
    dist.init_process_group("gloo")
    seed_all(seed=1234, mode=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(config_path=config, dump_path=dump_path)
    scale = 3.0 if wrong and dist.get_rank() == 1 else 1.0
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        x = torch.randn(4, 8, generator=generator)
        debugger.start(model=model)
        loss = model(x).square().mean() * scale
        optimizer.zero_grad()
        loss.backward()
        debugger.stop()
        optimizer.step()
        debugger.step()
    dist.barrier()  # gloo may end the process when one rank leaves before the other is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--wrong" in sys.argv)
