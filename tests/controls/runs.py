"""The nets, the harmless variants and the seeded faults behind test_controls.py.

Every run is the same training step of one of two small nets, recorded by our own PrecisionDebugger (level L1, task
tensor). Kernels are replaced below the recorded API by a dispatch mode, so that an entry keeps its name and arguments
and only its result changes, as on another device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, TOKENS, VOCABULARY = 32, 4, 12, 40


class Kernels(TorchDispatchMode):
    """Gives the results of chosen operators to `change(name, calls so far, arguments, result)`."""

    def __init__(self, change: Callable[[str, int, tuple[Any, ...], Any], Any]) -> None:
        super().__init__()
        self.change = change
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, then the change."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        count = self.calls.get(name, 0)
        self.calls[name] = count + 1
        with torch._C.DisableTorchFunction():  # what the change calls is not recorded
            return self.change(name, count, args, result)


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, how: Variant) -> None:
        super().__init__()
        self.how = how
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def norm(self, layer: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
        """Layer normalisation, by one call or by its parts."""
        if not self.how.parts:
            return layer(x)
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + layer.eps) * layer.weight + layer.bias

    def linear(self, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """A linear layer, by one call or by its parts."""
        return torch.matmul(x, layer.weight.t()) + layer.bias if self.how.parts else layer(x)

    def attention(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Causal attention; x: (batch, tokens, width)."""
        batch = x.shape[0]

        def split(layer: nn.Linear) -> torch.Tensor:
            return self.linear(layer, x).view(batch, -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = split(self.query), split(self.key), split(self.value)
        if self.how.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) * (self.how.scale / math.sqrt(WIDTH // HEADS))
            y = torch.matmul(F.softmax(scores.masked_fill(mask, -1e4), dim=-1), v)
        return self.linear(self.out, y.transpose(1, 2).reshape(batch, -1, WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Both halves with their residuals."""
        x = x + self.attention(self.norm(self.norm1, x), mask)
        hidden = F.gelu(self.linear(self.up, self.norm(self.norm2, x)), approximate=self.how.gelu)
        return x + self.linear(self.down, hidden)


class Decoder(nn.Module):
    """Embeddings, two blocks, a head, cross entropy."""

    def __init__(self, how: Variant) -> None:
        super().__init__()
        self.how = how
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2 * TOKENS, WIDTH)
        self.blocks = nn.ModuleList([Block(how), Block(how)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of predicting each next token; tokens: (batch, tokens + 1)."""
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        count = inputs.shape[1]
        mask = torch.ones(count, count, dtype=torch.bool).triu(1 + self.how.mask_shift)
        x = self.tokens(inputs) + self.places(torch.arange(count) + self.how.place_shift)
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if self.how.recompute else block(x, mask)
        logits = self.head(self.norm(x)).float()
        if self.how.parts:
            return F.nll_loss(F.log_softmax(logits.flatten(0, 1), -1), labels.flatten())
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Images(nn.Module):
    """Two convolutions with batch norm (their biases have gradients that are zero in exact arithmetic), a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss; x: (batch, 3, height, width)."""
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


@dataclass
class Variant:
    """One run: how it differs from the golden one, and for a fault the entry that has to be named."""

    name: str
    what: str = ""
    net: str = "decoder"
    first: str = ""  # faults: the beginning of the first bad entry's name
    statistics: bool = True  # faults: visible in recorded statistics
    parts: bool = False
    fused: bool = False
    recompute: bool = False
    scale: float = 1.0
    gelu: str = "none"
    mask_shift: int = 0
    place_shift: int = 0
    threads: int = 1
    dtype: torch.dtype = torch.float32
    prepare: Callable[[Any], None] = lambda net: None
    data: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


def kernel(wanted: str, call: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Kernels]:
    """A fault in one call of one operator."""

    def apply(name: str, count: int, args: tuple[Any, ...], result: Any) -> Any:
        if name != wanted or (call >= 0 and count != call):
            return result
        if isinstance(result, tuple):
            return (change(result[0]), *result[1:])
        return change(result)

    return lambda: Kernels(apply)


def element(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Set one element."""

    def change(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.view(-1)[y.numel() // 2] = value
        return y

    return change


def bump(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Add `factor` root mean squares to one element."""

    def change(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.view(-1)[y.numel() // 2] += factor * x.pow(2).mean().sqrt()
        return y

    return change


ROUNDED = {"mm", "addmm", "bmm", "convolution", "native_layer_norm", "_softmax", "gelu", "sum", "mean"}


def in_double() -> Kernels:
    """Products and sums in float64, rounded once: another order of summation."""

    def apply(name: str, count: int, args: tuple[Any, ...], result: Any) -> Any:
        if name not in ("mm", "addmm", "bmm") or result.dtype != torch.float32:
            return result
        wide = [a.double() for a in args]
        return getattr(torch, name)(*wide).float()

    return Kernels(apply)


def one_unit() -> Kernels:
    """Every result of a kernel is off by up to one unit in the last place."""
    generator = torch.Generator().manual_seed(5)

    def apply(name: str, count: int, args: tuple[Any, ...], result: Any) -> Any:
        first = result[0] if isinstance(result, tuple) else result
        if name not in ROUNDED or not torch.is_tensor(first) or first.dtype != torch.float32:
            return result
        sign = torch.randint(-1, 2, first.shape, generator=generator).to(first.dtype)
        other = first * (1 + sign * 2.0**-23)
        return (other, *result[1:]) if isinstance(result, tuple) else other

    return Kernels(apply)


def low_precision_products() -> Kernels:
    """Products whose operands are cut to bfloat16."""

    def apply(name: str, count: int, args: tuple[Any, ...], result: Any) -> Any:
        if name != "addmm" or count != 7:
            return result
        return torch.addmm(*(a.bfloat16().float() for a in args))

    return Kernels(apply)


def set_value(path: str, change: Callable[[torch.Tensor], Any]) -> Callable[[nn.Module], None]:
    """Change a parameter or buffer before the step."""

    def apply(net: nn.Module) -> None:
        with torch.no_grad():
            change(net.get_parameter(path) if path in dict(net.named_parameters()) else net.get_buffer(path))

    return apply


def transpose_weights(net: nn.Module) -> None:
    """The same values in another memory order."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())


def channels_last(net: nn.Module) -> None:
    """The other layout of images."""
    net.to(memory_format=torch.channels_last)


GOLDEN = [Variant("decoder"), Variant("images", net="images")]

CONTROLS = [
    Variant("rerun", "the same program again"),
    Variant("threads", "two threads instead of one", threads=2),
    Variant("in-double", "products summed in float64", around=in_double),
    Variant("one-unit", "every kernel off by one unit in the last place", around=one_unit),
    Variant("transposed", "weights in the other memory order", prepare=transpose_weights),
    Variant("fused", "fused attention instead of its parts", fused=True),
    Variant("parts", "norms, linear layers and the loss by their parts", parts=True),
    Variant("recompute", "activations recomputed in the backward pass", recompute=True),
    Variant("no-onednn", "kernels without oneDNN", around=lambda: torch.backends.mkldnn.flags(enabled=False)),
    Variant("float64", "the whole run in float64", dtype=torch.float64),
    Variant("bfloat16", "the whole run in bfloat16", dtype=torch.bfloat16),
    Variant("images-threads", "two threads instead of one", net="images", threads=2),
    Variant("channels-last", "channels-last memory", net="images", prepare=channels_last),
    Variant("images-one-unit", "every kernel off by one unit in the last place", net="images", around=one_unit),
    Variant(
        "images-no-onednn",
        "convolutions without oneDNN",
        net="images",
        around=lambda: torch.backends.mkldnn.flags(enabled=False),
    ),
]


def eps(path: str, value: float) -> Callable[[nn.Module], None]:
    """Another epsilon of one norm layer."""

    def apply(net: nn.Module) -> None:
        net.get_submodule(path).eps = value  # type: ignore[assignment]

    return apply


def freeze(net: nn.Module) -> None:
    """One parameter without gradient."""
    net.get_parameter("blocks.0.up.weight").requires_grad_(False)


FAULTS = [
    Variant("eps", "epsilon of a layer norm", prepare=eps("blocks.1.norm1", 1e-2), first="Functional.layer_norm.2.f"),
    Variant("gelu", "another approximation of gelu", gelu="tanh", first="Functional.gelu.0.forward"),
    Variant("scale", "attention scale 1 % too large", scale=1.01, first="Tensor.__mul__.0.forward"),
    Variant("mask", "causal mask shifted by one", mask_shift=1, first="Tensor.masked_fill.0.forward"),
    Variant("places", "positions shifted by one", place_shift=1, first="Tensor.__add__.0.forward"),
    Variant(
        "weight",
        "one weight changed",
        prepare=set_value("blocks.1.up.weight", lambda w: w[3].add_(0.01)),
        first="Functional.linear.10.forward",
    ),
    Variant(
        "bias",
        "a bias lost",
        prepare=set_value("blocks.0.down.bias", lambda b: b.zero_()),
        first="Functional.linear.5.forward",
    ),
    Variant(
        "input",
        "one token of the input replaced",
        data=lambda x: x.clone().index_fill_(1, torch.tensor(5), 7),
        first="Functional.embedding.0.forward",
    ),
    Variant("frozen", "a parameter without gradient", prepare=freeze, first="Functional.linear.4.forward"),
    Variant(
        "softmax",
        "one element of a softmax off by 0.1 %",
        around=kernel("_softmax", 1, bump(1e-3)),
        first="Functional.softmax.1.forward",
    ),
    Variant(
        "nan",
        "one NaN in a matrix product",
        around=kernel("bmm", 2, element(float("nan"))),
        first="Torch.matmul.2.forward",
    ),
    Variant(
        "infinity",
        "one infinity in a gelu",
        around=kernel("gelu", 0, element(float("inf"))),
        first="Functional.gelu.0.forward",
    ),
    Variant(
        "low-precision",
        "a linear layer with operands cut to bfloat16",
        around=low_precision_products,
        first="Functional.linear.7.forward",
    ),
    Variant(
        "norm-kernel",
        "a layer norm that is 0.01 % too large",
        around=kernel("native_layer_norm", 3, lambda y: y * 1.0001),
        first="Functional.layer_norm.3.forward",
    ),
    Variant(
        "gather",
        "an embedding row read from the wrong place",
        around=kernel("embedding", 0, lambda y: y.roll(1, 1)),
        first="Functional.embedding.0.forward",
        statistics=False,
    ),
    Variant(
        "gelu-gradient",
        "gradient of gelu 1 % too large",
        around=kernel("gelu_backward", 0, lambda y: y * 1.01),
        first="Functional.gelu.1.backward",
    ),
    Variant(
        "softmax-gradient",
        "gradient of softmax lost",
        around=kernel("_softmax_backward_data", 0, torch.zeros_like),
        first="Functional.softmax.1.backward",
    ),
    Variant(
        "conv-kernel",
        "one element of a convolution lost",
        net="images",
        around=kernel("convolution", 0, element(0.0)),
        first="Functional.conv2d.0.forward",
    ),
    Variant(
        "conv-weight",
        "a convolution weight scaled",
        net="images",
        prepare=set_value("conv2.weight", lambda w: w.mul_(1.001)),
        first="Functional.conv2d.1.forward",
    ),
    Variant(
        "batch-norm-eps",
        "epsilon of a batch norm",
        net="images",
        prepare=eps("norm2", 1e-3),
        first="Functional.batch_norm.1.forward",
    ),
    Variant(
        "relu",
        "a relu that lets one negative value through",
        net="images",
        around=kernel("relu", 0, element(-1.0)),
        first="Torch.relu.0.forward",
    ),
]
