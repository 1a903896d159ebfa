"""More nets: a graph net, a denoising U-Net, a state-space scan, two towers with a queue, and a pair of adversaries.

Each offers `forward`, `loss` (of its output and the data) and a function that makes its data. What a fault is to change
lies in methods and modules of their own. They are merged into the tables of `models` when this file is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from models import BATCH, BATCHES, LOSSES, NETS, TOKENS, VOCABULARY, WIDTH, Batch, Options
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

NODES, EDGES, GRAPHS, NARROW, TIMES, QUEUE = 40, 120, 4, 16, 50, 16


class GraphLayer(nn.Module):
    """Messages along edges, weighted by a softmax over the edges of each node, into a gated cell."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.parts = options.parts
        self.message, self.score = nn.Linear(2 * NARROW, NARROW), nn.Linear(NARROW, 1, bias=False)
        self.cell, self.norm = nn.GRUCell(NARROW, NARROW), nn.LayerNorm(NARROW)

    def gathered(self, x: torch.Tensor, index: torch.Tensor, nodes: int) -> torch.Tensor:
        """Sums of the rows of x by their index; `parts`: by scatter_add instead of index_add."""
        zeros = x.new_zeros(nodes, *x.shape[1:])
        if self.parts:
            where = index if x.dim() == 1 else index.unsqueeze(-1).expand_as(x)
            return zeros.scatter_add(0, where, x)
        return zeros.index_add(0, index, x)

    def weights(self, s: torch.Tensor, target: torch.Tensor, nodes: int) -> torch.Tensor:
        """A softmax over the edges that end in the same node."""
        top = torch.full((nodes,), -torch.inf, dtype=s.dtype).scatter_reduce(0, target, s.detach(), "amax")
        w = torch.exp(s - top.gather(0, target))
        return w / self.gathered(w, target, nodes).gather(0, target)

    def forward(self, x: torch.Tensor, e: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """x: (nodes, features); e: (edges, features)."""
        m = F.silu(self.message(torch.cat([x.index_select(0, source), e], -1)))
        w = self.weights(F.leaky_relu(self.score(m).squeeze(-1), 0.2), target, x.shape[0])
        y = self.gathered(m * w.unsqueeze(-1), target, x.shape[0])
        result: torch.Tensor = self.norm(self.cell(y, x))
        return result


class GraphNet(nn.Module):
    """Kinds of nodes and features of edges to one number per graph."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.kinds, self.edges = nn.Embedding(8, NARROW), nn.Linear(4, NARROW)
        self.layers = nn.ModuleList([GraphLayer(options) for _ in range(2)])
        self.hidden, self.head = nn.Linear(NARROW, NARROW), nn.Linear(NARROW, 1)

    def forward(self, kinds: torch.Tensor, source: torch.Tensor, target: torch.Tensor, features: torch.Tensor,
                graph: torch.Tensor) -> torch.Tensor:  # fmt: skip
        """One value per graph."""
        x, e = self.kinds(kinds), self.edges(features)
        for layer in self.layers:
            x = layer(x, e, source, target)
        counts = torch.bincount(graph, minlength=GRAPHS).to(x.dtype)
        pooled = x.new_zeros(GRAPHS, NARROW).index_add(0, graph, x) / counts.unsqueeze(-1)
        result: torch.Tensor = self.head(F.silu(self.hidden(pooled))).squeeze(-1)
        return result

    def loss(self, output: torch.Tensor, data: Batch) -> torch.Tensor:
        """Huber's loss."""
        return F.smooth_l1_loss(output.float(), data["values"].float())


def _graph_batch(options: Options, generator: torch.Generator) -> Batch:
    source = torch.randint(0, NODES, (EDGES,), generator=generator)
    target = torch.randint(0, NODES, (EDGES,), generator=generator)
    itself = torch.arange(NODES)
    return {
        "kinds": torch.randint(0, 8, (NODES,), generator=generator),
        "source": torch.cat([source, itself]),
        "target": torch.cat([target, itself]),
        "features": torch.randn(EDGES + NODES, 4, generator=generator).to(options.dtype),
        "graph": torch.arange(NODES) % GRAPHS,
        "values": torch.randn(GRAPHS, generator=generator),
    }


class Noised(nn.Module):
    """Group norm, SiLU and convolution twice, the time added in between, a shortcut."""

    def __init__(self, inputs: int, outputs: int, options: Options) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(NARROW, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.drop, self.short = nn.Dropout(options.dropout), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """x: (batch, inputs, side, side); t: (batch, features)."""
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(t)).unsqueeze(-1).unsqueeze(-1)
        y = self.conv2(self.drop(F.silu(self.norm2(y))))
        result: torch.Tensor = y + self.short(x)
        return result


class DenoiseNet(nn.Module):
    """A U-Net that is asked for the noise in an image; the noise is drawn inside."""

    kept: torch.Tensor
    frequencies: torch.Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.recompute = options.recompute
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-3, 2e-2, TIMES), 0))
        self.register_buffer("frequencies", torch.exp(-torch.arange(NARROW // 2) * 0.8))
        self.time = nn.Sequential(nn.Linear(NARROW, NARROW), nn.SiLU(), nn.Linear(NARROW, NARROW))
        self.enter, self.down = nn.Conv2d(3, 8, 3, padding=1), Noised(8, 8, options)
        self.shrink, self.middle = nn.Conv2d(8, 16, 3, stride=2, padding=1), Noised(16, 16, options)
        self.grow, self.up = nn.Conv2d(16, 8, 3, padding=1), Noised(16, 8, options)
        self.norm, self.leave = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def angles(self, times: torch.Tensor) -> torch.Tensor:
        """Sines and cosines of the time."""
        phase = times.unsqueeze(-1).to(self.frequencies.dtype) * self.frequencies
        return torch.cat([torch.sin(phase), torch.cos(phase)], -1)

    def block(self, layer: nn.Module, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """A block, recomputed in the backward pass when that is wanted."""
        result: torch.Tensor = checkpoint(layer, x, t, use_reentrant=False) if self.recompute else layer(x, t)
        return result

    def larger(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the side."""
        return F.interpolate(x, scale_factor=2.0, mode="nearest")

    def joined(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """The way up beside what was kept on the way down."""
        return torch.cat([x, skip], 1)

    def forward(self, images: torch.Tensor, times: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The noise that was found, and that which is there."""
        noise = torch.randn_like(images)
        a = self.kept.gather(0, times).reshape(-1, 1, 1, 1)
        t = self.time(self.angles(times))
        skip = self.block(self.down, self.enter(torch.sqrt(a) * images + torch.sqrt(1 - a) * noise), t)
        x = self.block(self.middle, self.shrink(skip), t)
        x = self.block(self.up, self.joined(self.grow(self.larger(x)), skip), t)
        return self.leave(F.silu(self.norm(x))), noise

    def loss(self, output: tuple[torch.Tensor, torch.Tensor], data: Batch) -> torch.Tensor:
        """Squares, weighted by the share of the image that is left."""
        squares = F.mse_loss(output[0].float(), output[1].float(), reduction="none").mean((1, 2, 3))
        kept = self.kept.float().gather(0, data["times"])
        return (squares * torch.clamp(kept / (1 - kept), max=5.0)).mean()


def _denoise_batch(options: Options, generator: torch.Generator) -> Batch:
    images = torch.randn(BATCH, 3, 8, 8, generator=generator).to(options.dtype)
    if options.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return {"images": images, "times": torch.randint(5, TIMES - 2, (BATCH,), generator=generator)}


class RootNorm(nn.Module):
    """Division by the root of the mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(WIDTH)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., width)."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class ScanLayer(nn.Module):
    """A causal convolution and a decaying sum over time, by a loop or in closed form, with a gate."""

    def __init__(self, options: Options, loop: bool) -> None:
        super().__init__()
        self.loop = loop != options.parts
        self.norm, self.inner = RootNorm(), nn.Linear(WIDTH, 3 * WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH, padding=2)
        self.out, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(options.dropout)

    def causal(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution, which sees the token and two before it."""
        return self.conv(x.transpose(1, 2)).narrow(2, 0, x.shape[1]).transpose(1, 2)

    def scan(self, value: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        """Sums over time; decay holds logarithms."""
        if not self.loop:
            total = torch.cumsum(decay, 1)
            return torch.exp(total) * torch.cumsum(value * torch.exp(-total), 1)
        keep, buffer = torch.exp(decay), torch.zeros_like(value)
        state = torch.zeros_like(value.select(1, 0))
        for t in range(value.shape[1]):
            state = torch.addcmul(value.select(1, t), state, keep.select(1, t))
            buffer.select(1, t).copy_(state)
        return buffer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, tokens, width)."""
        value, gate, delta = self.inner(self.norm(x)).chunk(3, -1)
        decay = F.softplus(delta) * -0.2
        y = self.scan(F.silu(self.causal(value)).to(decay.dtype), decay)
        result: torch.Tensor = self.out(self.drop(y * torch.sigmoid(gate)))
        return result


class ScanNet(nn.Module):
    """Tokens and hashed pairs of tokens, two scans, a running mean that is taken out, a tied head."""

    average: torch.Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.recompute, self.in_place, self.preserve = options.recompute, True, True
        self.tokens, self.pairs = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(97, WIDTH)
        self.layers = nn.ModuleList([ScanLayer(options, True), ScanLayer(options, False)])
        self.norm, self.head = RootNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        with torch.no_grad():
            self.tokens.weight.mul_(0.3)
        self.register_buffer("average", torch.zeros(WIDTH))

    def hashed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The number of each token with the one before it."""
        before = F.pad(tokens.narrow(1, 0, tokens.shape[1] - 1), (1, 0))
        return torch.remainder(torch.add(torch.mul(tokens, 40503), torch.mul(before, 30011)), 97)

    def centred(self, x: torch.Tensor) -> torch.Tensor:
        """Without the running mean, which is carried from step to step."""
        if self.training:
            with torch.no_grad():
                self.average.lerp_(x.detach().mean((0, 1)).to(self.average.dtype), 0.3)
        return x - self.average

    def added(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The residual, in place or not."""
        return y.add_(x) if self.in_place else y + x

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.tokens(tokens) + self.pairs(self.hashed(tokens))
        for layer in self.layers:
            y = layer(x) if not self.recompute else checkpoint(
                layer, x, use_reentrant=False, preserve_rng_state=self.preserve)  # fmt: skip
            x = self.added(x, y)
        result: torch.Tensor = self.head(self.norm(self.centred(x)))
        return result

    def loss(self, output: torch.Tensor, data: Batch) -> torch.Tensor:
        """Cross entropy of the next token; zeros are padding."""
        length = data["tokens"].shape[1] - 1
        logits = output.narrow(1, 0, length).float().flatten(0, 1)
        return F.cross_entropy(logits, data["tokens"].narrow(1, 1, length).flatten(), ignore_index=0)


def _scan_batch(options: Options, generator: torch.Generator) -> Batch:
    tokens = torch.randint(1, VOCABULARY, (BATCH, TOKENS), generator=generator)
    tokens[1, -3:] = 0
    return {"tokens": tokens}


class Pool(nn.Module):
    """The mean over tokens that are there."""

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """x: (batch, tokens, width); seen: (batch, tokens)."""
        return (x * seen.unsqueeze(-1)).sum(1) / seen.sum(1, keepdim=True).clamp(min=1)


class Tower(nn.Module):
    """Two linear layers and a norm to a unit vector."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(inputs, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NARROW)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, inputs)."""
        return F.normalize(self.two(self.norm(F.gelu(self.one(x)))), dim=-1)


class TowersNet(nn.Module):
    """Text and images to one space; a slowly following copy of the image tower fills a queue of others."""

    queue: torch.Tensor
    place: torch.Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.tokens, self.pool = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0), Pool()
        self.text, self.image = Tower(WIDTH), Tower(48)
        self.shadow = copy.deepcopy(self.image).requires_grad_(False)
        self.scale, self.follow, self.by_einsum = nn.Parameter(torch.tensor(1.5)), 0.1, True
        self.register_buffer("queue", F.normalize(torch.randn(NARROW, QUEUE), dim=0))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def trained(self) -> Iterator[nn.Parameter]:
        """What the optimizer gets."""
        return (p for p in self.parameters() if p.requires_grad)

    def products(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Of all rows of a with all rows of b."""
        return torch.einsum("ic,jc->ij", a, b) if self.by_einsum else torch.matmul(a, b.t())

    def followed(self, images: torch.Tensor) -> None:
        """The copy follows; its vectors take the place of the oldest in the queue."""
        with torch.no_grad():
            for slow, fast in zip(self.shadow.parameters(), self.image.parameters(), strict=True):
                slow.lerp_(fast, self.follow)
            keys = self.shadow(images).to(self.queue.dtype)
            where = torch.remainder(self.place + torch.arange(keys.shape[0]), QUEUE)
            self.queue.index_copy_(1, where, keys.t())
            self.place.add_(keys.shape[0]).remainder_(QUEUE)

    def forward(self, tokens: torch.Tensor, seen: torch.Tensor, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Products with the images of this batch and with those of the queue."""
        a = self.text(self.pool(self.tokens(tokens), seen))
        b = self.image(images.flatten(1))
        factor = torch.exp(self.scale)
        pairs = self.products(a, b) * factor
        others = self.products(a, self.queue.clone().t()) * factor
        if self.training:
            self.followed(images.flatten(1))
        return pairs, others

    def loss(self, output: tuple[torch.Tensor, ...], data: Batch) -> torch.Tensor:
        """Each text has its image, each image its text."""
        pairs, others = output[0].float(), output[1].float()
        own = torch.diagonal(pairs)
        texts = torch.logsumexp(torch.cat([pairs, others], 1), 1) - own
        images = torch.logsumexp(pairs, 0) - own
        return (texts.mean() + images.mean()) / 2


def _towers_batch(options: Options, generator: torch.Generator) -> Batch:
    tokens = torch.randint(1, VOCABULARY, (BATCH, TOKENS), generator=generator)
    lengths = torch.tensor([TOKENS, TOKENS - 4, TOKENS - 1, 5])
    seen = (torch.arange(TOKENS) < lengths.unsqueeze(-1)).to(options.dtype)
    images = torch.randn(BATCH, 3, 4, 4, generator=generator).to(options.dtype)
    return {"tokens": tokens * seen.long(), "seen": seen, "images": images}


class Maker(nn.Module):
    """Noise to small images."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Linear(NARROW, 128), nn.BatchNorm2d(8)
        self.grow = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1, bias=False)
        self.leave = nn.ConvTranspose2d(8, 3, 3, padding=1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """z: (batch, features)."""
        x = F.leaky_relu(self.norm(self.grow(self.enter(z).reshape(-1, 8, 4, 4))), 0.2)
        return torch.tanh(self.leave(x))


class Judge(nn.Module):
    """Small images to one number."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.drop, self.head = nn.Dropout(options.dropout), nn.Linear(16 * 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 3, 8, 8)."""
        y = F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x), 0.2)), 0.2)
        result: torch.Tensor = self.head(self.drop(y.flatten(1))).squeeze(-1)
        return result


class AdversaryNet(nn.Module):
    """A maker and a judge; the judge is trained inside the step by an optimizer of its own."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.make, self.judge = Maker(), Judge(options)
        self.cleared, self.rival = True, self.optimizer(options)

    def optimizer(self, options: Options) -> torch.optim.Optimizer:
        """That of the judge."""
        if options.optimizer == "sgd":
            return torch.optim.SGD(self.judge.parameters(), lr=options.rate, momentum=0.9)
        return torch.optim.Adam(self.judge.parameters(), lr=options.rate, betas=(0.5, 0.99))

    def trained(self) -> Iterator[nn.Parameter]:
        """What the other optimizer gets."""
        return self.make.parameters()

    def cut(self, fake: torch.Tensor) -> torch.Tensor:
        """The image, for the judge's own step."""
        return fake.detach()

    def wanted(self, score: torch.Tensor, real: bool) -> torch.Tensor:
        """What the judge should say."""
        return torch.ones_like(score) if real else torch.zeros_like(score)

    def verdict(self, x: torch.Tensor, real: bool) -> torch.Tensor:
        """The judge's loss for these images."""
        score = self.judge(x).float()
        return F.binary_cross_entropy_with_logits(score, self.wanted(score, real))

    def forward(self, z: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """The judge's step; then the maker's loss."""
        fake = self.make(z)
        if self.training:
            if self.cleared:
                self.rival.zero_grad()
            both = self.verdict(images, True) + self.verdict(self.cut(fake), False)
            both.backward()  # type: ignore[no-untyped-call]
            self.rival.step()
        return self.verdict(fake, True)

    def loss(self, output: torch.Tensor, data: Batch) -> torch.Tensor:
        """The maker's loss."""
        return output


def _adversary_batch(options: Options, generator: torch.Generator) -> Batch:
    z = torch.randn(BATCH, NARROW, generator=generator).to(options.dtype)
    return {"z": z, "images": torch.randn(BATCH, 3, 8, 8, generator=generator).clamp(-1, 1).to(options.dtype)}


def _loss(model: Any, data: Batch) -> torch.Tensor:
    """The loss of one of these nets."""
    result: torch.Tensor = model.loss(model(**{k: x for k, x in data.items() if k != "values"}), data)
    return result


MAKERS: dict[str, tuple[Callable[[Options], nn.Module], Callable[[Options, torch.Generator], Batch]]] = {
    "graph": (GraphNet, _graph_batch),
    "denoise": (DenoiseNet, _denoise_batch),
    "scan": (ScanNet, _scan_batch),
    "towers": (TowersNet, _towers_batch),
    "adversary": (AdversaryNet, _adversary_batch),
}
for _name, (_net, _batch) in MAKERS.items():
    NETS[_name], BATCHES[_name], LOSSES[_name] = _net, _batch, _loss
