"""The nets of the fault corpus, their data and one training step: small, seeded, on the CPU.

Six are architectures of the `transformers` package built from a configuration with random weights; the others are a
residual convolution net with batch norm, an LSTM language model and a two-rank net with collectives of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, TOKENS, VOCABULARY, BATCH, SIDE, CLASSES = 32, 4, 2, 12, 64, 4, 16, 10
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Options:
    """How a net is built and trained; what differs between the two sides of a harmless case."""

    attention: str = "eager"  # of transformers: eager or sdpa
    dropout: float = 0.0
    autocast: bool = False  # bfloat16
    dtype: torch.dtype = torch.float32
    micro: int = 1  # backward passes per step
    clip: float = 0.0  # largest norm of all gradients; 0: no clipping
    scale: float = 1.0  # of the loss, taken out of the gradients before the update
    recompute: bool = False  # activation checkpointing
    optimizer: str = "adamw"
    rate: float = 1e-3
    decay: float = 0.0
    channels_last: bool = False
    parts: bool = False  # layers written out as elementary calls where the net offers it
    poison: bool = False  # one weight is NaN from the beginning
    inside: bool = False  # the optimizer runs inside the recorded window


def _from(model: Any, config: Any, **values: Any) -> nn.Module:
    """A model of `transformers` with random weights."""
    built: nn.Module = model(config(**values))
    return built


def _bert(options: Options) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return _from(
        BertForMaskedLM,
        BertConfig,
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=2 * TOKENS,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        initializer_range=0.15,
        attn_implementation=options.attention,
    )


def _llama(options: Options) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _from(
        LlamaForCausalLM,
        LlamaConfig,
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=2 * TOKENS,
        attention_dropout=options.dropout,
        initializer_range=0.15,
        use_cache=False,
        attn_implementation=options.attention,
    )


def _gpt2(options: Options) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _from(
        GPT2LMHeadModel,
        GPT2Config,
        vocab_size=VOCABULARY,
        n_positions=2 * TOKENS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=options.dropout,
        embd_pdrop=options.dropout,
        attn_pdrop=options.dropout,
        initializer_range=0.15,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=options.attention,
    )


def _t5(options: Options) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return _from(
        T5ForConditionalGeneration,
        T5Config,
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout_rate=options.dropout,
        relative_attention_num_buckets=8,
        decoder_start_token_id=0,
        use_cache=False,
    )


def _vit(options: Options) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return _from(
        ViTForImageClassification,
        ViTConfig,
        image_size=SIDE,
        patch_size=4,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        initializer_range=0.15,
        num_labels=CLASSES,
        attn_implementation=options.attention,
    )


def _mixtral(options: Options) -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return _from(
        MixtralForCausalLM,
        MixtralConfig,
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=WIDTH,
        num_local_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.15,
        max_position_embeddings=2 * TOKENS,
        use_cache=False,
        attn_implementation=options.attention,
        experts_implementation="eager",
    )


class Residual(nn.Module):
    """Two convolutions with batch norm and a shortcut; gradients of their biases are zero in exact arithmetic."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, inputs, height, width)."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.short(x))


class ConvNet(nn.Module):
    """A stem, two residual blocks, mean pooling, a head."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.recompute = options.recompute
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.drop = nn.MaxPool2d(2), nn.Dropout(options.dropout)
        self.blocks = nn.ModuleList([Residual(8, 16, 1), Residual(16, 16, 2)])
        self.average, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits; x: (batch, 3, side, side)."""
        y = self.pool(torch.relu(self.norm(self.stem(x))))
        for block in self.blocks:
            y = checkpoint(block, y, use_reentrant=False) if self.recompute else block(y)
        result: torch.Tensor = self.head(self.drop(self.average(y).flatten(1)))
        return result


class LstmNet(nn.Module):
    """Embedding, two LSTM layers, a cell of our own written out, a projection, a tied head."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=options.dropout)
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.norm, self.project = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next tokens; tokens: (batch, tokens)."""
        x, _ = self.lstm(self.tokens(tokens))
        h, c = torch.zeros(x.shape[0], WIDTH, dtype=x.dtype), torch.zeros(x.shape[0], WIDTH, dtype=x.dtype)
        states = []
        for t in range(4):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        x = torch.cat([torch.stack(states, 1), x[:, 4:]], 1)
        x = torch.tanh(self.project(self.norm(x)))
        return torch.matmul(x, self.tokens.weight.t()) + self.bias


class Attention(nn.Module):
    """Attention with a mask of -inf, as one call or in parts; the key has a bias, whose gradient is exactly zero."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x: (batch, tokens, width); mask: (tokens, tokens), True where attention is not allowed."""

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.shape[0], -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        if self.options.attention == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) / (WIDTH // HEADS) ** 0.5
            y = torch.matmul(F.softmax(scores.masked_fill(mask, -torch.inf), dim=-1), v)
        result: torch.Tensor = self.out(y.transpose(1, 2).reshape(x.shape))
        return result


class PlainNet(nn.Module):
    """A decoder written out: norms, linear layers and attention by one call or by their parts (`Options.parts`)."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.attentions = nn.ModuleList([Attention(options) for _ in range(LAYERS)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS)])
        self.ups = nn.ModuleList([nn.Linear(WIDTH, 2 * WIDTH) for _ in range(LAYERS)])
        self.downs = nn.ModuleList([nn.Linear(2 * WIDTH, WIDTH) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def norm(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """Layer normalisation, by one call or by its parts."""
        if not self.options.parts or not isinstance(layer, nn.LayerNorm):
            result: torch.Tensor = layer(x)
            return result
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + layer.eps) * layer.weight + layer.bias

    def linear(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """A linear layer, by one call or by its parts."""
        if not self.options.parts or not isinstance(layer, nn.Linear):
            result: torch.Tensor = layer(x)
            return result
        return torch.matmul(x, layer.weight.t()) + layer.bias

    def block(self, at: int, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Both halves with their residuals."""
        x = x + self.attentions[at](self.norm(self.norms[2 * at], x), mask)
        hidden = F.gelu(self.linear(self.ups[at], self.norm(self.norms[2 * at + 1], x)))
        return x + self.linear(self.downs[at], hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits; tokens: (batch, tokens)."""
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        x = self.tokens(tokens) + self.places
        for at in range(LAYERS):
            recompute = self.options.recompute
            x = checkpoint(self.block, at, x, mask, use_reentrant=False) if recompute else self.block(at, x, mask)
        return self.linear(self.head, x)


class ParallelNet(nn.Module):
    """Every rank holds a part of the hidden layer; all_reduce, all_gather and broadcast put the pieces together."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits; x: (batch, width)."""
        shift = x.mean(0)
        dist.broadcast(shift, src=0)
        y = self.down(F.gelu(self.up(self.norm(x - shift))))
        total = y.detach().clone()
        dist.all_reduce(total)
        y = y + (total - y.detach())
        pieces = [torch.empty_like(y) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, y.detach() * (dist.get_rank() + 1.0))
        others = torch.stack(pieces).sum(0)
        result: torch.Tensor = self.head(torch.cat([y, others], -1))
        return result


NETS: dict[str, Callable[[Options], nn.Module]] = {
    "bert": _bert,
    "llama": _llama,
    "gpt2": _gpt2,
    "t5": _t5,
    "vit": _vit,
    "mixtral": _mixtral,
    "conv": ConvNet,
    "lstm": LstmNet,
    "plain": PlainNet,
    "parallel": ParallelNet,
}
RANKS = {"parallel": 2}
BATCHES: dict[str, Callable[[Options, torch.Generator], Batch]] = {}  # of nets in other files
LOSSES: dict[str, Callable[[nn.Module, Batch], torch.Tensor]] = {}


def build(net: str, options: Options) -> nn.Module:
    """The net, with weights that depend on the name of the net and the rank only."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(17 + 100 * rank)
    model = NETS[net](options)
    model.train()
    if options.poison:
        with torch.no_grad():
            next(p for p in model.parameters() if p.dim() == 2)[3, 5] = torch.nan
    if options.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(options.dtype)


def batch(net: str, step: int, options: Options) -> Batch:
    """The data of one pass; equal for equal arguments."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    generator = torch.Generator().manual_seed(1000 + step + 50 * rank)
    if net in BATCHES:
        return BATCHES[net](options, generator)
    if net in ("vit", "conv"):
        images = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator).to(options.dtype)
        if options.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return {"images": images, "labels": torch.randint(0, CLASSES, (BATCH,), generator=generator)}
    if net == "parallel":
        x = torch.randn(BATCH, WIDTH, generator=generator).to(options.dtype)
        return {"x": x, "labels": torch.randint(0, CLASSES, (BATCH,), generator=generator)}
    tokens = torch.randint(1, VOCABULARY, (BATCH, TOKENS), generator=generator)
    seen = torch.ones(BATCH, TOKENS, dtype=torch.int64)
    seen[1, -3:] = 0  # padding at the end of one row
    return {"tokens": tokens, "seen": seen}


def loss_of(net: str, model: nn.Module, data: Batch) -> torch.Tensor:
    """The loss of one pass."""
    if net in LOSSES:
        return LOSSES[net](model, data)
    if net == "vit":
        inputs = {"pixel_values": data["images"], "labels": data["labels"]}
    elif net in ("bert", "llama", "gpt2", "t5", "mixtral"):
        inputs = {"input_ids": data["tokens"], "attention_mask": data["seen"], "labels": data["tokens"]}
    else:
        inputs = {}
    if inputs:
        loss: torch.Tensor = model(**inputs).loss
        return loss
    if net == "conv":
        return F.cross_entropy(model(data["images"]).float(), data["labels"])
    if net == "parallel":
        return F.cross_entropy(model(data["x"]).float(), data["labels"])
    logits = model(data["tokens"])[:, :-1].float()
    return F.cross_entropy(logits.flatten(0, 1), data["tokens"][:, 1:].flatten())


def optimizer_of(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """The optimizer over all parameters, or over those that the net says."""
    trained: Any = getattr(model, "trained", model.parameters)
    if options.optimizer == "sgd":
        return torch.optim.SGD(trained(), lr=options.rate, momentum=0.9, weight_decay=options.decay)
    return torch.optim.AdamW(trained(), lr=options.rate, weight_decay=options.decay)


def precision(options: Options) -> AbstractContextManager[Any]:
    """The surroundings of the forward pass."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if options.autocast else nullcontext()
