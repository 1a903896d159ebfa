"""A third part of the faults, written after five rules had been mended for what the second part showed.

Written from the list of kinds, without comparing one of them, and compared once; no rule was changed for them.
"""

from __future__ import annotations

from typing import Any

import changes
import torch
from inject import Case, Run, case
from models import Batch, Options
from torch.nn import functional as F

FRESH: list[Case] = []
SDPA, DROP, AUTOCAST = Options(attention="sdpa"), Options(dropout=0.1), Options(autocast=True)
SGD = Options(optimizer="sgd", rate=0.1)


# (a) An API is wrong.


@case(FRESH, "bert", "a", "introduced output", rounding="split")
def first_norm_noisy(run: Run) -> None:
    """A layer norm is off by 0.02 % in both directions."""
    run.kernel("layer_norm", 1, "native_layer_norm", changes.noise(2e-4))


@case(FRESH, "gpt2", "a", "introduced output", rounding="double")
def softmax_of_scaled_scores(run: Run) -> None:
    """A softmax kernel scales its scores by 1.003."""
    run.kernel("softmax", 1, "_softmax", changes.scores_scaled(1.003))


@case(FRESH, "llama", "a", "introduced output", rounding="split")
def silu_too_large(run: Run) -> None:
    """A silu is 0.03 % too large."""
    run.kernel("silu", 0, "silu", changes.relative(3e-4))


@case(FRESH, "vit", "a", "introduced output", rounding="ulp")
def gelu_by_sigmoid(run: Run) -> None:
    """A gelu kernel uses the sigmoid approximation."""
    run.kernel("gelu", 0, "gelu", changes.sigmoid_gelu())


@case(FRESH, "conv", "a", "introduced output", rounding="mkldnn")
def convolution_noisy(run: Run) -> None:
    """A convolution is off by 0.05 % in both directions."""
    run.kernel("conv2d", 1, "convolution", changes.noise(5e-4))


@case(FRESH, "lstm", "a", "introduced output", rounding="ulp")
def norm_one_element(run: Run) -> None:
    """One element of a layer norm is off by a twentieth of the root mean square."""
    run.kernel("layer_norm", 0, "native_layer_norm", changes.element(5e-2, at=0.7))


@case(FRESH, "t5", "a", "introduced output", rounding="double")
def linear_tail_lost(run: Run) -> None:
    """A linear layer does not write the last 3 % of its result."""
    run.kernel("linear", 12, "mm", changes.lost(0.03))


@case(FRESH, "plain", "a", "introduced output", rounding="split")
def linear_sums_in_half(run: Run) -> None:
    """A linear layer keeps its running sum in float16."""
    run.kernel("linear", 4, "addmm", changes.accumulate_in(torch.float16, block=4))


@case(FRESH, "mixtral", "a", "introduced output", rounding="split")
def projection_operands_cut(run: Run) -> None:
    """The operands of a projection are cut to bfloat16."""
    run.kernel("linear", 2, "mm", changes.cut_operands(torch.bfloat16))


@case(FRESH, "vit", "a", "introduced output", rounding="mkldnn")
def patches_in_bfloat16(run: Run) -> None:
    """The embedding of the patches went through bfloat16."""
    run.kernel("conv2d", 0, "convolution", changes.rounded(torch.bfloat16))


@case(FRESH, "gpt2", "a", "introduced output", rounding="double")
def loss_kernel_noisy(run: Run) -> None:
    """The logarithms inside a cross entropy are off by 1 %."""
    run.kernel("cross_entropy", 0, "_log_softmax", changes.noise(1e-2))


@case(FRESH, "llama", "a", "introduced output", rounding="split", options=SDPA)
def rsqrt_too_large(run: Run) -> None:
    """A reciprocal square root is 0.01 % too large."""
    run.kernel("rsqrt", 2, "rsqrt", changes.relative(1e-4))


@case(FRESH, "plain", "a", "introduced output", rounding="double")
def gelu_saturates(run: Run) -> None:
    """A gelu does not go beyond 1.5."""
    run.kernel("gelu", 1, "gelu", lambda args, y: y.clamp(max=1.5))


@case(FRESH, "bert", "a", "introduced output", rounding="double")
def embedding_rows_exchanged(run: Run) -> None:
    """An embedding returns for the first token what belongs to the second."""
    run.kernel("embedding", 0, "embedding", changes.row_of_another(1))


@case(FRESH, "conv", "a", "introduced output", rounding="ulp")
def average_of_one_less(run: Run) -> None:
    """An average pooling divides by one element less."""
    run.kernel("adaptive_avg_pool2d", 0, "mean", changes.relative(1 / 15))


@case(FRESH, "bert", "a", "introduced output", rounding="none", options=AUTOCAST)
def low_precision_tail_lost(run: Run) -> None:
    """A linear layer in bfloat16 does not write the last tenth of its result."""
    run.kernel("linear", 5, "addmm", changes.lost(0.1))


@case(FRESH, "gpt2", "a", "introduced output", rounding="none", options=AUTOCAST)
def low_precision_norm_in_half_size(run: Run) -> None:
    """A layer norm of a run under autocast returns half of its result."""
    run.kernel("layer_norm", 2, "native_layer_norm", changes.relative(-0.5))


@case(FRESH, "llama", "a", "introduced output", rounding="split")
def silu_gradient_too_large(run: Run) -> None:
    """The gradient of a silu is 0.2 % too large."""
    run.gradient("silu", 1, "SiluBackward0", "silu_backward", changes.relative(2e-3))


@case(FRESH, "gpt2", "a", "introduced output", rounding="double")
def softmax_gradient_too_large(run: Run) -> None:
    """The gradient of a softmax is 1 % too large."""
    run.gradient("softmax", 1, "SoftmaxBackward0", "_softmax_backward_data", changes.relative(1e-2))


@case(FRESH, "bert", "a", "introduced output", rounding="double")
def norm_gradient_too_small(run: Run) -> None:
    """The gradient that a layer norm hands on is 0.5 % too small."""
    run.gradient(
        "layer_norm", 2, "NativeLayerNormBackward0", "native_layer_norm_backward", changes.relative(-5e-3), item=0
    )


@case(FRESH, "conv", "a", "introduced output", rounding="mkldnn")
def convolution_gradient_noisy(run: Run) -> None:
    """The gradient that a convolution hands on is off by 1 % in both directions."""
    run.gradient("conv2d", 3, "ConvolutionBackward0", "convolution_backward", changes.noise(1e-2), item=0)


# (b) Arguments, scalars, configuration.


@case(FRESH, "conv", "b", "argument", rounding="mkldnn")
def batch_norm_epsilon(run: Run) -> None:
    """The epsilon of a batch norm is 1e-3 instead of 1e-5."""
    run.model.get_submodule("norm").eps = 1e-3  # type: ignore[assignment]
    run.applied += 1
    run.inside("norm")


@case(FRESH, "llama", "b", "argument", rounding="split")
def root_mean_square_epsilon(run: Run) -> None:
    """The epsilon of a root mean square norm is a hundred times too large."""
    norm: Any = run.model.get_submodule("model.layers.0.post_attention_layernorm")
    norm.variance_epsilon *= 100
    run.applied += 1
    run.inside("model.layers.0.post_attention_layernorm", "add", value=norm.variance_epsilon)


@case(FRESH, "bert", "b", "argument introduced output structure", rounding="none", options=AUTOCAST)
def autocast_lost_in_an_output(run: Run) -> None:
    """The output layer of one MLP runs outside autocast."""
    path = "bert.encoder.layer.0.output.dense"

    def change(original: Any, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return original(x.float())

    run.forward(path, change)
    run.inside(path)
    run.inside("bert.encoder.layer.0.output")


@case(FRESH, "vit", "b", "argument", rounding="double", options=DROP)
def dropout_of_another_strength(run: Run) -> None:
    """The first dropout drops three times as much."""
    run.model.get_submodule("vit.embeddings.dropout").p = 0.3  # type: ignore[assignment]
    run.applied += 1
    run.inside("vit.embeddings.dropout")


# (c) Missing, extra and reordered calls, wiring.


@case(FRESH, "vit", "c", "wired state argument", rounding="mkldnn")
def weights_of_another_layer(run: Run) -> None:
    """An MLP is computed with the weights of the layer before it."""
    other: Any = run.model.get_submodule("vit.layers.0.mlp.fc1")
    run.forward("vit.layers.1.mlp.fc1", lambda original, x: F.linear(x, other.weight, other.bias))
    run.inside("vit.layers.1.mlp.fc1")


@case(FRESH, "mixtral", "c", "structure wired glue", rounding="split")
def norm_left_out(run: Run) -> None:
    """The norm before an MLP is left out."""
    path = "model.layers.0.post_attention_layernorm"
    run.forward(path, lambda original, x: run.consumer_of(x))
    run.inside(path)


@case(FRESH, "t5", "c", "structure wired", rounding="double")
def result_scaled_once_more(run: Run) -> None:
    """The result of an attention is scaled once more."""
    path = "encoder.block.1.layer.0.SelfAttention.o"
    run.forward(path, lambda original, x: run.consumer_of(original(x)) * 0.9)


@case(FRESH, "gpt2", "c", "structure wired glue", rounding="double")
def activation_left_out(run: Run) -> None:
    """The activation of the second MLP is left out."""
    path = "transformer.h.1.mlp.act"
    run.forward(path, lambda original, x: run.consumer_of(x))
    run.inside(path)


@case(FRESH, "plain", "c", "wired glue state", rounding="ulp")
def value_of_the_layer_input(run: Run) -> None:
    """The MLP's norm takes what the attention's norm took, so that the attention is passed by."""
    kept: list[torch.Tensor] = []

    def keep(original: Any, x: torch.Tensor) -> Any:
        kept.append(x)
        return original(x)

    run.forward("norms.0", keep)
    run.forward("norms.1", lambda original, x: original(kept[0]))
    run.inside("norms.1")


# (d) Weights, buffers, optimizer state, data, random state.


@case(FRESH, "bert", "d", "state", rounding="double")
def bias_of_a_norm_changed(run: Run) -> None:
    """The bias of a layer norm is 0.01 too large."""
    run.set("bert.encoder.layer.0.attention.output.LayerNorm.bias", lambda x: x.add_(0.01))
    run.inside("bert.encoder.layer.0.attention.output.LayerNorm")


@case(FRESH, "vit", "d", "state", rounding="mkldnn")
def rows_of_a_weight_exchanged(run: Run) -> None:
    """Two rows of a weight are exchanged."""
    run.set("vit.layers.0.mlp.fc2.weight", lambda w: w[:2].copy_(w[:2].flip(0).clone()))
    run.inside("vit.layers.0.mlp.fc2")


@case(FRESH, "conv", "d", "state", rounding="mkldnn", steps=2, options=SGD)
def running_variance_changed(run: Run) -> None:
    """A running variance is a tenth larger in the second step."""
    run.set("blocks.0.norm2.running_var", lambda x: x.mul_(1.1), step=1)
    run.inside("blocks.0.norm2")


@case(FRESH, "gpt2", "d", "state", rounding="double", steps=2, options=SGD)
def rate_doubled(run: Run) -> None:
    """The first update is made with twice the learning rate."""
    group = run.optimizer.param_groups[0]
    run.begin(0, lambda: group.update(lr=group["lr"] * 2))
    run.begin(1, lambda: group.update(lr=group["lr"] / 2))
    run.inside("transformer.wte")


@case(FRESH, "llama", "d", "state", rounding="split", steps=3, options=SGD)
def update_of_the_second_step_lost(run: Run) -> None:
    """One weight misses its second update."""
    path = "model.layers.1.mlp.up_proj"
    kept: list[torch.Tensor] = []
    weight = run.model.get_parameter(f"{path}.weight")
    run.begin(1, lambda: kept.append(weight.detach().clone()))
    run.set(f"{path}.weight", lambda w: w.copy_(kept[0]), step=2)
    run.inside(path)


@case(FRESH, "plain", "d", "state", rounding="double", steps=2, options=SGD)
def gradient_doubled_before_update(run: Run) -> None:
    """The gradient of one weight is doubled before the update."""
    weight = run.model.get_parameter("ups.0.weight")

    def double() -> None:
        assert weight.grad is not None
        weight.grad.mul_(2)

    run.after_backward(0, 0, double)
    run.inside("ups.0")
    run.inside("ups.0", backward=True)


@case(FRESH, "vit", "d", "state argument glue introduced wired", rounding="ulp")
def pixel_changed(run: Run) -> None:
    """One pixel of one image is another."""

    def change(data: Batch) -> Batch:
        images = data["images"].clone()
        images[1, 2, 3, 3] += 2
        run.consumers(images)
        return {**data, "images": images}

    run.batch(0, change)


@case(FRESH, "conv", "d", "state argument glue introduced wired", rounding="ulp")
def label_changed(run: Run) -> None:
    """One label is another."""

    def change(data: Batch) -> Batch:
        labels = data["labels"].clone()
        labels[0] = (labels[0] + 1) % 3
        run.consumers(labels)
        return {**data, "labels": labels}

    run.batch(0, change)


# (e) Communication.


@case(FRESH, "parallel", "e", "introduced output", rounding="double")
def share_of_a_rank_doubled(run: Run) -> None:
    """all_reduce counts what the first rank gave twice."""
    run.collective("allreduce", 0, lambda x: x.mul_(2), rank=0)
    run.entry("Distributed.all_reduce.0.forward")


@case(FRESH, "parallel", "e", "introduced output", rounding="ulp")
def gathered_piece_stale(run: Run) -> None:
    """all_gather delivers zeros for the piece of the first rank."""
    run.collective("allgather", 0, lambda x: x.zero_(), rank=0)
    run.entry("Distributed.all_gather.0.forward")
