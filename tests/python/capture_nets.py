"""Small training scripts for the capture tests. Each returns (model, step); step() trains once.

Only torch (and transformers for two of them) is imported: tools/record_upstream_names.py runs them elsewhere too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Script = tuple[nn.Module, Callable[[], None]]


def llama() -> Script:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=64,
    )
    config._attn_implementation = "sdpa"
    model = LlamaForCausalLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 256, (2, 32))

    def step() -> None:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def bert() -> Script:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    model = BertForMaskedLM(
        BertConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            vocab_size=256,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 256, (2, 32))
    mask = torch.ones(2, 32, dtype=torch.long)

    def step() -> None:
        model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


class Block(nn.Module):
    def __init__(self, channels: int, inplace: bool) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(channels)
        self.c2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(channels)
        self.r = nn.ReLU(inplace=inplace)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b2(self.c2(self.r(self.b1(self.c1(x)))))
        y = y + x
        return self.r(y)


def resnet(inplace: bool = True) -> Script:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        Block(16, inplace),
        Block(16, inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, target = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))

    def step() -> None:
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def lstm() -> Script:
    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(50, 16)
            self.l = nn.LSTM(16, 32, 2, batch_first=True)
            self.o = nn.Linear(32, 50)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            h, _ = self.l(self.e(ids))
            return self.o(h)

    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = torch.optim.Adam(model.parameters())
    ids = torch.randint(0, 50, (4, 12))

    def step() -> None:
        out = model(ids)
        F.cross_entropy(out[:, :-1].reshape(-1, 50), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


class Routing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Linear(32, 4)
        self.w = nn.Parameter(torch.randn(4, 32, 64) * 0.1)
        self.v = nn.Parameter(torch.randn(4, 64, 32) * 0.1)
        self.n = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.n(x)
        p = torch.softmax(self.g(h), -1)
        w, i = torch.topk(p, 2, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(h)
        for e in range(4):
            token, k = (i == e).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            y = torch.einsum("td,df->tf", h[token], self.w[e])
            y = F.silu(y) * y.sigmoid()
            y = torch.einsum("tf,fd->td", y, self.v[e])
            out = out.index_add(0, token, y * w[token, k].unsqueeze(-1))
        aux = torch.zeros(4).scatter_add(0, i.flatten(), torch.ones(i.numel()))
        y = 1.0 - out
        y = 2 * y
        y += x
        mask = y > 0
        return x + torch.where(mask, out, -out) + 1, (p.mean(0) * aux).sum()


def routing() -> Script:
    torch.manual_seed(0)
    model = nn.Sequential(Routing())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 32)

    def step() -> None:
        y, aux = model(x)
        (y.pow(2).mean() + 0.01 * aux).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


class Attention(nn.Module):
    """With a residual: the gradient of one tensor arrives from several users."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.n = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.n(x)
        q, k, v = self.q(h), self.k(h), self.v(h)
        return x + self.o(torch.softmax(q @ k.transpose(-1, -2) / 5.6, -1) @ v) + 0.1 * h


class Residual(nn.Module):
    """A shared weight and several consumers of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.ModuleList(Attention() for _ in range(3))
        self.w = nn.Linear(32, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.w(x)
        for m in self.a:
            x = m(x) + self.w(x)
        return x


def residual() -> Script:
    torch.manual_seed(0)
    model = nn.Sequential(Residual())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(4, 8, 32)

    def step() -> None:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def checkpoints() -> Script:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Attention(), Attention()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.b, checkpoint(self.a, x, use_reentrant=False), use_reentrant=True)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(4, 8, 32)

    def step() -> None:
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


SCRIPTS: dict[str, Callable[[], Script]] = {
    "llama": llama,
    "bert": bert,
    "resnet_inplace": lambda: resnet(True),
    "resnet": lambda: resnet(False),
    "lstm": lstm,
    "routing": routing,
    "residual": residual,
    "checkpoints": checkpoints,
}
