"""Programs of several processes for the capture tests: `python capture_ranks.py PROGRAM RANK RANKS PORT FOLDER`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from capture_tools import write_config
from torch import nn

from msprobe.pytorch import PrecisionDebugger


def run(program: str, ranks: int, folder: Path) -> list[Any]:
    """Run a program of this file; what each rank returned."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "MSPROBE_LOG_LEVEL": "3"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, program, str(rank), str(ranks), str(port), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for rank in range(ranks)
    ]
    outputs = [p.communicate(timeout=300)[0].decode() for p in processes]
    if any(p.returncode != 0 for p in processes):
        raise AssertionError("\n".join(outputs))
    return [json.loads(o.splitlines()[-1]) for o in outputs]


def entries(folder: Path, rank: int, step: int = 0) -> dict[str, Any]:
    """What one rank has recorded."""
    data: dict[str, Any] = json.loads((folder / f"dump/step{step}/rank{rank}/dump.json").read_text())["data"]
    return data


def one(rank: int) -> torch.Tensor:
    """What a rank brings to a collective."""
    return torch.full((4,), float(rank + 1))


def collectives(folder: Path, rank: int, ranks: int) -> Any:
    """Every kind that gloo has, once; the results go back so that they can be compared with those without the tool."""

    def work() -> list[Any]:
        found: list[Any] = []

        def keep(*tensors: torch.Tensor) -> None:
            found.extend(t.tolist() for t in tensors)

        x = one(rank)
        found.append(dist.all_reduce(x))
        keep(x)
        x = one(rank)
        handle = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
        found.append([handle.wait(), handle.is_completed()])
        keep(x)
        x = one(rank)
        dist.reduce(x, dst=0)
        keep(*([x] if rank == 0 else []))  # of the others the content is not defined
        x = one(rank)
        dist.broadcast(x, src=1)
        keep(x)
        parts = [torch.empty(4) for _ in range(ranks)]
        dist.all_gather(parts, one(rank))
        keep(*parts)
        whole = torch.empty(4 * ranks)
        dist.all_gather_single(output_tensor=whole, input_tensor=one(rank))
        keep(whole)
        own = torch.empty(4)
        dist.reduce_scatter(own, [one(rank) * i for i in range(ranks)])
        keep(own)
        own = torch.empty(4)
        dist.reduce_scatter_single(own, torch.cat([one(rank) * i for i in range(ranks)]))
        keep(own)
        own = torch.empty(4)
        dist.scatter(own, [one(i) for i in range(ranks)] if rank == 0 else None, src=0)
        keep(own)
        parts = [torch.empty(4) for _ in range(ranks)]
        dist.gather(one(rank), parts if rank == 0 else None, dst=0)
        keep(*(parts if rank == 0 else []))
        parts = [torch.empty(4) for _ in range(ranks)]
        dist.all_to_all(parts, [one(rank) * i for i in range(ranks)])
        keep(*parts)
        own = torch.empty(ranks)
        dist.all_to_all_single(own, torch.full((ranks,), float(rank)))
        keep(own)
        if rank == 0:
            dist.send(one(7), dst=1)
        if rank == 1:
            own = torch.empty(4)
            found.append(dist.recv(own, src=0))
            keep(own)
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        own = torch.empty(4)
        handles = [dist.isend(one(rank), after), dist.irecv(own, before)]
        found.append([h is not None and h.wait() for h in handles])
        keep(own)
        own = torch.empty(4)
        ops = [dist.P2POp(dist.isend, one(rank), after), dist.P2POp(dist.irecv, own, before)]
        found.append([w.wait() for w in dist.batch_isend_irecv(ops)])
        keep(own)
        dist.barrier()
        return found

    plain = work()
    PrecisionDebugger(config_path=write_config(folder / str(rank), "L1", dump_path=str(folder / "dump")))
    PrecisionDebugger.start()
    recorded = work()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    return {"same": plain == recorded, "results": recorded}


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(x)))


def plain_model() -> nn.Sequential:
    """What the sharded ones hold."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), Block(), nn.Linear(8, 2))


def input_of(rank: int) -> torch.Tensor:
    """The data of a rank."""
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(rank))


def sharded(kind: str) -> nn.Module:
    """FSDP around the block and around all."""
    model = plain_model()
    if kind == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in (model[1], model):
            fully_shard(module, mesh=mesh)
        return model
    from torch.distributed.fsdp import FullyShardedDataParallel

    settings: Any = {"device_id": torch.device("cpu"), "use_orig_params": kind == "original"}
    model[1] = FullyShardedDataParallel(model[1], **settings)
    return FullyShardedDataParallel(model, **settings)


FSDP_KINDS = ("flat", "original", "fully_shard")


def fsdp(folder: Path, rank: int, ranks: int) -> Any:
    """One forward and backward of each kind, a dump each."""
    for kind in FSDP_KINDS:
        PrecisionDebugger(config_path=write_config(folder / str(rank), "mix", dump_path=str(folder / kind / "dump")))
        model = sharded(kind)
        PrecisionDebugger.start(model)
        model(input_of(rank)).pow(2).mean().backward()
        PrecisionDebugger.stop()
        hooks = [h for m in model.modules() for h in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
        if any("msprobe" in type(h).__module__ for h in hooks):
            raise AssertionError(hooks)
        PrecisionDebugger.step()
        PrecisionDebugger.reset()
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    program, number, count, at, where = sys.argv[1:]
    (Path(where) / number).mkdir()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{at}", rank=int(number), world_size=int(count))
    answer = {"collectives": collectives, "fsdp": fsdp}[program](Path(where), int(number), int(count))
    dist.destroy_process_group()
    print(json.dumps(answer))
