"""The neutrality matrix: kinds of training x levels x tasks, 20 steps each, with collection and without.

`python tools/neutrality_matrix.py` prints all of it; the tests run a part. Run as a program, this file is one of the
two processes of a kind that needs several.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import capture_nets
import torch
import torch.nn.functional as F
from capture_tools import write_config
from torch import nn

from msprobe.pytorch import PrecisionDebugger

STEPS = 20
LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor", "md5")
CELLS = (*product(LEVELS, TASKS), ("mix", "full"), ("mix", "device"), ("mix", "sketch"))
# Settings of a column beside its level. "full": everything that capture can do beyond the default.
SETTINGS: dict[str, dict[str, Any]] = {
    "statistics": {},
    "tensor": {"task": "tensor"},
    "md5": {"section": {"summary_mode": "md5"}},
    "device": {"device_statistics": "force"},
    "sketch": {"section": {"summary_mode": "sketch"}},
    "full": {"evidence": "full", "backward_layout": "arguments", "risk_level": "EVERY"},
}

Training = tuple[list[nn.Module], list[torch.optim.Optimizer], Callable[[], Any]]


def gan() -> Training:
    """Two models, two optimizers, detach between them."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 12), nn.Tanh())
    judge = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1))
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.5, 0.999)) for m in (maker, judge)]

    def step() -> None:
        real, noise = torch.rand(6, 12), torch.randn(6, 8)
        fake = maker(noise)
        optimizers[1].zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(real), torch.ones(6, 1))
        loss = loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(6, 1))
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.binary_cross_entropy_with_logits(judge(fake), torch.ones(6, 1)).backward()
        optimizers[0].step()

    return [maker, judge], optimizers, step


def accumulation() -> Training:
    """Four backward passes for one update."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(4):
            (model(torch.randn(5, 8)).pow(2).mean() / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    return [model], [optimizer], step


def double_backward() -> Training:
    """A penalty on the gradient of the output, by create_graph."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step() -> None:
        x = torch.randn(5, 6, requires_grad=True)
        out = model(x).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        optimizer.zero_grad()
        (out.pow(2) + (gradient.norm(dim=1) - 1).pow(2).mean()).backward()
        optimizer.step()

    return [model], [optimizer], step


def autocast() -> Training:
    """bfloat16 under autocast, with a scaler."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(torch.randn(6, 3, 8)), torch.randint(0, 5, (6,)))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return [model], [optimizer], step


class Clamp(torch.autograd.Function):
    """Hands the gradient on where the value was not clamped, and a tenth of it elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < ctx.limit, gradient, gradient * 0.1), None


def custom_function() -> Training:
    """An autograd function of the script's own, and hooks of the user's."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = Clamp.apply(self.a(x), 0.5)
            if y.requires_grad:
                y.register_hook(lambda g: g * 2)
            return self.b(y + y.detach())

    torch.manual_seed(0)
    model = nn.Sequential(Model())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(6, 8)).abs().sum().backward()
        optimizer.step()

    return [model], [optimizer], step


def views() -> Training:
    """Chunks and views written in place, dropout in place, a chain of in-place activations."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(8, 4)
            self.acts = nn.Sequential(nn.Dropout(0.2, inplace=True), nn.Hardtanh(inplace=True))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.a(x).clone().chunk(2, -1)
            y = self.acts(left + 1) * right.sigmoid()
            y[:, 0] = y[:, 1] * 2
            y.mul_(0.5)
            return self.b(y.view(-1, 8))

    torch.manual_seed(0)
    model = nn.Sequential(Model())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(6, 8)).pow(2).sum().backward()
        optimizer.step()

    return [model], [optimizer], step


def _stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.BatchNorm1d(16), nn.Linear(16, 4))


def _of_ranks(model: nn.Module, optimizer: torch.optim.Optimizer) -> Training:
    x = torch.randn(6, 8) + torch.distributed.get_rank()

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    return [model], [optimizer], step


def ddp() -> Training:
    """Replicas; like the next ones only where a process group exists."""
    model = nn.parallel.DistributedDataParallel(_stack())
    return _of_ranks(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


def _fsdp(use_orig_params: bool) -> Training:
    from torch.distributed.fsdp import FullyShardedDataParallel as Sharded

    settings: Any = {"device_id": torch.device("cpu"), "use_orig_params": use_orig_params}
    inner = _stack()
    inner[0] = Sharded(inner[0], **settings)
    model = Sharded(inner, **settings)
    return _of_ranks(model, torch.optim.AdamW(model.parameters(), lr=1e-2))


def fully_shard() -> Training:
    """The second FSDP: parameters are DTensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = _stack(), init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for module in (model[0], model):
        fully_shard(module, mesh=mesh)
    return _of_ranks(model, torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False))


def _of_script(name: str) -> Callable[[], Training]:
    def make() -> Training:
        captured: list[torch.optim.Optimizer] = []
        original = torch.optim.Optimizer.__init__

        def note(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            captured.append(self)

        torch.optim.Optimizer.__init__ = note  # type: ignore[method-assign]
        try:
            model, step = capture_nets.SCRIPTS[name]()
        finally:
            torch.optim.Optimizer.__init__ = original  # type: ignore[method-assign]
        return [model], captured, step

    return make


KINDS: dict[str, Callable[[], Training]] = {
    "conv, BatchNorm, in-place ReLU": _of_script("resnet_inplace"),
    "attention, residual, shared weight": _of_script("residual"),
    "Llama-like": _of_script("llama"),
    "BERT-like": _of_script("bert"),
    "mixture of experts with scatter": _of_script("routing"),
    "LSTM": _of_script("lstm"),
    "checkpoints of both sorts": _of_script("checkpoints"),
    "GAN, two optimizers": gan,
    "gradient accumulation": accumulation,
    "double backward": double_backward,
    "autocast and scaler": autocast,
    "custom autograd function": custom_function,
    "views and in-place chains": views,
}
DISTRIBUTED: dict[str, Callable[[], Training]] = {
    "DDP over gloo, 2 processes": ddp,
    "FSDP, flat parameters": lambda: _fsdp(False),
    "FSDP, original parameters": lambda: _fsdp(True),
    "FSDP2 (fully_shard)": fully_shard,
}
TRANSFORMERS = ("Llama-like", "BERT-like")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor the part of this rank."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def state_of(models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> Iterator[tuple[str, Any]]:
    """Everything that has to be the same: values, versions, flags, hooks, attributes and random states."""
    for i, model in enumerate(models):
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            yield f"{i}.{name}", _local(tensor).detach().clone()
            yield f"{i}.{name} gradient", None if tensor.grad is None else _local(tensor.grad).clone()
            after = tensor._post_accumulate_grad_hooks if tensor.is_leaf else None
            hooks = tensor._backward_hooks, after or None  # FSDP leaves an empty dictionary behind
            yield f"{i}.{name} version, flags, hooks", (tensor._version, tensor.requires_grad, type(tensor), hooks)
        for name, module in model.named_modules():
            hooks = [len(v) for k, v in vars(module).items() if k.endswith("_hooks") and hasattr(v, "__len__")]
            yield f"{i}.{name} hooks, attributes, mode", (hooks, sorted(vars(module)), module.training)
    for i, optimizer in enumerate(optimizers):
        for p, values in enumerate(optimizer.state.values()):
            for key, value in values.items():
                yield f"optimizer {i}.{p}.{key}", _local(value).clone() if isinstance(value, torch.Tensor) else value
    yield "random state of torch", torch.get_rng_state()
    yield "random state of Python", random.getstate()


def same(a: Any, b: Any) -> bool:
    """Bit-identical (a NaN equals itself)."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.is_floating_point() and a.numel() > 0:
            a, b = a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)
        return torch.equal(a, b)
    return bool(type(a) is type(b) and a == b)


def train(
    make: Callable[[], Training], around: Callable[[list[nn.Module], Callable[[], Any]], None]
) -> list[tuple[str, Any]]:
    """20 steps from a fixed start; the state after them."""
    torch.set_num_threads(1)
    random.seed(1)
    models, optimizers, step = make()
    before = [id(t) for m in models for t in m.state_dict(keep_vars=True).values()]
    torch.manual_seed(1)
    for _ in range(STEPS):
        around(models, step)
    after = [id(t) for m in models for t in m.state_dict(keep_vars=True).values()]
    return [("identities", before == after), *state_of(models, optimizers)]


def first_difference(a: list[tuple[str, Any]], b: list[tuple[str, Any]]) -> str | None:
    """None: bit-identical."""
    for (name, x), (other, y) in zip(a, b, strict=True):
        if name != other or not same(x, y):
            return name
    return None


def plain(make: Callable[[], Training]) -> list[tuple[str, Any]]:
    """Without collection."""
    return train(make, lambda models, step: step())


@contextlib.contextmanager
def collection(folder: Path, level: str, task: str) -> Iterator[Callable[[list[nn.Module], Callable[[], Any]], None]]:
    """What to put around a step so that it is recorded; checks at the end that something was."""
    folder.mkdir(parents=True, exist_ok=True)
    config = write_config(folder, level, **SETTINGS[task])
    PrecisionDebugger.reset()

    def around(models: list[nn.Module], step: Callable[[], Any]) -> None:
        PrecisionDebugger.start(models if len(models) > 1 else models[0])
        step()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()

    try:
        PrecisionDebugger(config_path=config)
        yield around
    finally:
        PrecisionDebugger.reset()
    steps = sorted((folder / "dump").glob("step*/rank*/dump.json"))
    if len(steps) < STEPS or b'"Norm"' not in steps[-1].read_bytes() + (b'"Norm"' if task == "md5" else b""):
        raise AssertionError(f"{len(steps)} of {STEPS} steps were recorded in {folder}")
    shutil.rmtree(folder)


def run_kind(
    make: Callable[[], Training], cells: Iterable[tuple[str, str]], folder: Path
) -> dict[tuple[str, str], str | None]:
    """The cells (level, task) of one kind: None, or what differs first."""
    reference = plain(make)
    if first_difference(reference, plain(make)) is not None:
        raise AssertionError("the training does not repeat itself even without collection")
    found = {}
    for level, task in cells:
        with collection(folder / f"{level}_{task}", level, task) as around:
            found[level, task] = first_difference(reference, train(make, around))
    return found


def run_distributed(name: str, cells: Iterable[tuple[str, str]], folder: Path) -> dict[tuple[str, str], str | None]:
    """The same in two processes; what differs first on any of them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "MSPROBE_LOG_LEVEL": "3"}
    text = json.dumps([list(c) for c in cells])
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, name, str(rank), str(port), str(folder), text],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for rank in range(2)
    ]
    outputs = [p.communicate(timeout=300)[0].decode() for p in processes]
    if any(p.returncode != 0 for p in processes):
        raise AssertionError("\n".join(outputs))
    answers = [json.loads(o.splitlines()[-1]) for o in outputs]
    return {(level, task): one or two for (level, task, one), (_, _, two) in zip(*answers, strict=True)}


def _process(name: str, rank: int, port: str, folder: Path, cells: list[tuple[str, str]]) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = run_kind(DISTRIBUTED[name], cells, folder / str(rank))
    torch.distributed.destroy_process_group()
    print(json.dumps([[*cell, difference] for cell, difference in found.items()]))


if __name__ == "__main__":
    chosen, number, at, where, wanted = sys.argv[1:]
    _process(chosen, int(number), at, Path(where), [tuple(c) for c in json.loads(wanted)])
