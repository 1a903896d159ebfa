"""A second set from outside, held out: written by somebody who had seen neither the rules nor any answer.

Neither the rules of the analysis, nor their documents, nor what is said of any case were known when this was written,
and it was committed before one of its cases was compared. The cases are what engineers meet when a model is carried
to another device, version or precision. Wrong kernels and wrong arguments are here; wiring, state and communication
are in `second_more`, clean runs in `second_clean`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import changes
import changes_outside as more
import torch
import torch.distributed as dist
from changes import Arguments
from inject import Case, Change, Run, case
from models import Options
from second_clean import SECOND_CLEAN
from second_more import SECOND_MORE
from torch.nn import functional as F

PART: list[Case] = []
SDPA, AUTOCAST, HALF = Options(attention="sdpa"), Options(autocast=True), Options(dtype=torch.bfloat16)
SGD = Options(optimizer="sgd", rate=0.05)


def short(x: torch.Tensor) -> torch.Tensor:
    """A float32 tensor with a mantissa of 10 bits, as matrix units keep it."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def short_convolution() -> Change:
    """A convolution whose operands have a mantissa of 10 bits."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(short(args[0]), short(args[1]), *args[2:])
        return result

    return change


def short_product() -> Change:
    """A matrix product whose operands have a mantissa of 10 bits."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        a, b, bias = changes.of_bias(args)
        return changes.product(short(a), short(b), bias)

    return change


def unbiased_batch_norm() -> Change:
    """A batch norm that divides by the root of the unbiased variance."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        n = args[0].numel() // args[0].shape[1]
        bias = args[2].reshape(1, -1, 1, 1)
        return (y - bias) * math.sqrt((n - 1) / n) + bias

    return change


def chopped(bits: int) -> Change:
    """The last bits of a float32 mantissa are cut off instead of rounded."""
    return lambda args, y: (y.contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)


# (a) An API is wrong.


@case(PART, "graph", "a", "introduced output", rounding="split")
def fast_exponential(run: Run) -> None:
    """A fast exponential is off by 0.05 % in both directions."""
    run.kernel("exp", 1, "exp", changes.noise(5e-4))


@case(PART, "denoise", "a", "introduced output", rounding="mkldnn")
def sine_by_lookup(run: Run) -> None:
    """Sines are looked up in a table of 512 steps."""
    run.kernel("sin", 0, "sin", changes.table_of(512))


@case(PART, "denoise", "a", "introduced output", rounding="double")
def convolution_on_matrix_units(run: Run) -> None:
    """The operands of a convolution are kept with 10 bits by default."""
    run.kernel("conv2d", 10, "convolution", short_convolution())


@case(PART, "llama", "a", "introduced output", rounding="split")
def product_on_matrix_units(run: Run) -> None:
    """The operands of a projection are kept with 10 bits by default."""
    run.kernel("linear", 11, "mm", short_product())


@case(PART, "scan", "a", "introduced output", rounding="ulp")
def gate_saturates(run: Run) -> None:
    """A sigmoid does not go beyond 0.75."""
    run.kernel("sigmoid", 1, "sigmoid", lambda args, y: y.clamp(max=0.75))


@case(PART, "towers", "a", "introduced output", rounding="double")
def norm_stored_in_bfloat16(run: Run) -> None:
    """A layer norm writes its result in bfloat16."""
    run.kernel("layer_norm", 1, "native_layer_norm", changes.rounded(torch.bfloat16))


@case(PART, "adversary", "a", "introduced output", rounding="ulp")
def tanh_saturates_early(run: Run) -> None:
    """A tanh is one beyond 0.97."""
    run.kernel("tanh", 0, "tanh", lambda args, y: torch.where(y.abs() > 0.97, y.sign(), y * 1.0003))


@case(PART, "conv", "a", "introduced output", rounding="mkldnn")
def unbiased_variance(run: Run) -> None:
    """A batch norm normalises with the unbiased variance."""
    run.kernel("batch_norm", 4, "native_batch_norm", unbiased_batch_norm())


@case(PART, "lstm", "a", "introduced output", rounding="double")
def forget_gate_off(run: Run) -> None:
    """A gate inside one call of a cell is 0.1 % too small."""
    run.kernel("lstm_cell", 2, "sigmoid_", changes.relative(-1e-3), which=1)


@case(PART, "mixtral", "a", "introduced output", rounding="split")
def embedding_cut_off(run: Run) -> None:
    """The last 13 bits of looked up vectors are cut off."""
    run.kernel("embedding", 0, "embedding", chopped(13))


@case(PART, "vit", "a", "introduced output", rounding="mkldnn", steps=2, options=SGD)
def gelu_of_the_second_step(run: Run) -> None:
    """A gelu is off by 0.1 % in the second step only."""
    run.kernel("gelu", 1, "gelu", changes.noise(1e-3), step=1)


@case(PART, "denoise", "a", "introduced output", rounding="split")
def squares_tail_missing(run: Run) -> None:
    """The squares of the last elements are not written before they are averaged."""
    run.kernel("mse_loss", 0, "mse_loss", changes.lost(0.02))


@case(PART, "t5", "a", "introduced output", rounding="double")
def gradient_through_closed_units(run: Run) -> None:
    """A relu hands its gradient on where it was closed."""
    run.gradient("relu", 1, "ReluBackward0", "threshold_backward", lambda args, y: args[0].clone())


@case(PART, "conv", "a", "introduced output", rounding="ulp")
def pooling_gradient_scattered_short(run: Run) -> None:
    """The gradient of a max pooling is not scattered to the last tenth."""
    run.gradient(
        "max_pool2d", 0, "MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices_backward", changes.lost(0.1)
    )


@case(PART, "denoise", "a", "introduced output accumulate", rounding="double")
def weight_gradient_of_a_convolution_noisy(run: Run) -> None:
    """The weight gradient of a convolution is off by 1 % in both directions."""
    run.gradient("conv2d", 7, "ConvolutionBackward0", "convolution_backward", changes.noise(1e-2), item=1)
    run.inside("middle.short", backward=True)


@case(PART, "adversary", "a", "introduced output accumulate", rounding="mkldnn")
def bias_gradient_of_a_transposed_convolution(run: Run) -> None:
    """The bias gradient of a transposed convolution is 3 % too small."""
    run.gradient("conv_transpose2d", 1, "ConvolutionBackward0", "convolution_backward", changes.relative(-3e-2), item=2)
    run.inside("make.leave", backward=True)


@case(PART, "towers", "a", "introduced output", rounding="split")
def logsumexp_gradient_one_row(run: Run) -> None:
    """One row of the gradient of a logsumexp is 2 % too large."""
    run.gradient("logsumexp", 0, "LogsumexpBackward0", "mul", more.row(1, 1.02))


@case(PART, "vit", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_block_not_written(run: Run) -> None:
    """A linear layer under autocast does not write its last fifth; all kernels round otherwise."""
    run.kernel("linear", 7, "addmm", changes.lost(0.2))


@case(PART, "denoise", "a", "introduced output", rounding="low", options=HALF)
def low_precision_image_lost(run: Run) -> None:
    """A convolution in a bfloat16 model leaves one image at zero; all kernels round otherwise."""
    run.kernel("conv2d", 3, "convolution", more.row(1, 0.0))


@case(PART, "graph", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_pooling_short(run: Run) -> None:
    """The sums over graphs miss the last graph, under autocast; all kernels round otherwise."""
    run.kernel("index_add", 4, "index_add", changes.lost(0.25))


@case(PART, "bert", "a", "introduced output", rounding="low", options=HALF)
def low_precision_gradient_of_a_softmax(run: Run) -> None:
    """The gradient of a softmax in a bfloat16 model misses its last quarter; all kernels round otherwise."""
    run.gradient("softmax", 1, "SoftmaxBackward0", "_softmax_backward_data", changes.lost(0.25))


@case(PART, "llama", "a", "introduced output", rounding="low", options=replace(AUTOCAST, attention="sdpa"))
def low_precision_fused_attention(run: Run) -> None:
    """A fused attention under autocast returns for the first sequence what belongs to the second."""
    run.kernel(
        "scaled_dot_product_attention", 0, "_scaled_dot_product_flash_attention_for_cpu", changes.row_of_another()
    )


# (b) Arguments, scalars, configuration.


@case(PART, "scan", "b", "argument", rounding="double")
def softplus_sharper(run: Run) -> None:
    """A softplus has the sharpness 1.2 instead of 1."""
    layer: Any = run.model.get_submodule("layers.1")

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        value, gate, delta = layer.inner(layer.norm(x)).chunk(3, -1)
        decay = F.softplus(delta, beta=1.2) * -0.2
        y = layer.scan(F.silu(layer.causal(value)).to(decay.dtype), decay)
        result: torch.Tensor = layer.out(layer.drop(y * torch.sigmoid(gate)))
        return result

    run.forward("layers.1", change)
    run.inside("layers.1", "softplus")


@case(PART, "graph", "b", "argument", rounding="split")
def knee_of_the_loss(run: Run) -> None:
    """The loss of another library has its knee at 0.5 instead of 1."""
    run.model.loss = lambda output, data: F.smooth_l1_loss(  # type: ignore[assignment]
        output.float(), data["values"].float(), beta=0.5
    )
    run.applied += 1
    run.entry("Functional.smooth_l1_loss.0.forward")


@case(PART, "adversary", "b", "argument", rounding="mkldnn")
def judged_by_the_sum(run: Run) -> None:
    """The judge's loss for real images is a sum instead of a mean."""
    model: Any = run.model

    def verdict(x: torch.Tensor, real: bool) -> torch.Tensor:
        score = model.judge(x).float()
        how = "sum" if run.counts.get("binary_cross_entropy_with_logits", 0) == 0 else "mean"
        return F.binary_cross_entropy_with_logits(score, model.wanted(score, real), reduction=how)

    model.verdict = verdict
    run.applied += 1
    run.entry("Functional.binary_cross_entropy_with_logits.0.forward")


@case(PART, "plain", "b", "argument", rounding="double", options=SDPA)
def scale_given_by_hand(run: Run) -> None:
    """Fused attention is given the scale 0.3 instead of the default of 0.354."""
    layer: Any = run.model.get_submodule("attentions.1")

    def change(original: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.shape[0], -1, 4, 8).transpose(1, 2)

        q, k, v = split(layer.query(x)), split(layer.key(x)), split(layer.value(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask, scale=0.3)
        result: torch.Tensor = layer.out(y.transpose(1, 2).reshape(x.shape))
        return result

    run.forward("attentions.1", change)
    run.inside("attentions.1", "scaled_dot_product_attention")


@case(PART, "conv", "b", "argument", rounding="ulp")
def pooled_over_three(run: Run) -> None:
    """A max pooling takes windows of three with padding instead of windows of two."""
    pool: Any = run.model.get_submodule("pool")
    pool.kernel_size, pool.stride, pool.padding = 3, 2, 1
    run.applied += 1
    run.inside("pool")


@case(PART, "lstm", "b", "argument", rounding="split")
def time_comes_first(run: Run) -> None:
    """An LSTM takes the batch for the time."""
    run.model.get_submodule("lstm").batch_first = False  # type: ignore[assignment]
    run.applied += 1
    run.inside("lstm")


@case(PART, "t5", "b", "argument", rounding="double")
def farthest_distance(run: Run) -> None:
    """The buckets of relative positions end at 16 instead of 128."""
    path = "encoder.block.0.layer.0.SelfAttention"
    run.model.get_submodule(path).relative_attention_max_distance = 16  # type: ignore[assignment]
    run.applied += 1
    run.inside(path, "div", value=math.log(16 / 2))


@case(PART, "parallel", "b", "argument introduced", rounding="double")
def sent_from_another_rank(run: Run) -> None:
    """A broadcast is sent by the second rank instead of the first."""
    original = dist.broadcast
    run.begin(0, lambda: setattr(dist, "broadcast", lambda x, src: original(x, src=1)))
    run.entry("Distributed.broadcast.0.forward")


@case(PART, "graph", "b", "argument", rounding="low", options=HALF)
def low_precision_slope(run: Run) -> None:
    """The scores of a bfloat16 model are rectified with the slope 1 below zero; all kernels round otherwise."""
    layer: Any = run.model.get_submodule("layers.0")

    def change(
        original: Any, x: torch.Tensor, e: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        m = F.silu(layer.message(torch.cat([x.index_select(0, source), e], -1)))
        w = layer.weights(F.leaky_relu(layer.score(m).squeeze(-1), 1.0), target, x.shape[0])
        y = layer.gathered(m * w.unsqueeze(-1), target, x.shape[0])
        result: torch.Tensor = layer.norm(layer.cell(y, x))
        return result

    run.forward("layers.0", change)
    run.inside("layers.0", "leaky_relu")


SECOND: list[Case] = [*PART, *SECOND_MORE]
__all__ = ["SECOND", "SECOND_CLEAN"]
