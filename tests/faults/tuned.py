"""The first half of the faults: the rules of the analysis may be tuned on these."""

from __future__ import annotations

from typing import Any

import changes
import torch
from inject import Case, Run, case
from models import Batch, Options

TUNED: list[Case] = []
SDPA = Options(attention="sdpa")
# Adam divides by the size of the gradient, and with it turns gradients that are zero in exact arithmetic into steps of
# full size. Faults of later steps are made with SGD, so that they are the first difference that matters.
SGD = Options(optimizer="sgd", rate=0.1)
DROP_SGD = Options(optimizer="sgd", rate=0.1, dropout=0.1)


# (a) An API is wrong.


@case(TUNED, "bert", "a", "introduced output", rounding="double")
def norm_too_large(run: Run) -> None:
    """A layer norm is 0.01 % too large."""
    run.kernel("layer_norm", 3, "native_layer_norm", changes.relative(1e-4))


@case(TUNED, "llama", "a", "introduced output", rounding="split", options=SDPA)
def linear_sums_in_bfloat16(run: Run) -> None:
    """A linear layer keeps its running sum in bfloat16."""
    run.kernel("linear", 9, "mm", changes.accumulate_in(torch.bfloat16))


@case(TUNED, "gpt2", "a", "introduced output", rounding="double")
def addmm_drops_a_term(run: Run) -> None:
    """A matrix product leaves out the last term of each sum."""
    run.kernel("addmm", 5, "addmm", changes.without_last_term())


@case(TUNED, "bert", "a", "introduced output", rounding="mkldnn")
def gelu_by_tanh(run: Run) -> None:
    """A gelu kernel uses the tanh approximation."""
    run.kernel("gelu", 1, "gelu", changes.tanh_gelu())


@case(TUNED, "vit", "a", "introduced output", rounding="threads")
def softmax_one_element(run: Run) -> None:
    """One element of a softmax is off by a thousandth of the root mean square."""
    run.kernel("softmax", 1, "_softmax", changes.element(1e-3))


@case(TUNED, "conv", "a", "introduced output", rounding="mkldnn")
def convolution_tail_lost(run: Run) -> None:
    """A convolution does not write the last 2 % of its result."""
    run.kernel("conv2d", 3, "convolution", changes.lost(0.02))


@case(TUNED, "lstm", "a", "introduced output", rounding="ulp")
def tanh_from_a_table(run: Run) -> None:
    """A tanh is read from a table of 4096 steps."""
    run.kernel("tanh", 0, "tanh", changes.table_of(4096))


@case(TUNED, "t5", "a", "introduced output", rounding="double")
def linear_operands_cut(run: Run) -> None:
    """The operands of a linear layer are cut to bfloat16."""
    run.kernel("linear", 7, "mm", changes.cut_operands(torch.bfloat16))


@case(TUNED, "plain", "a", "introduced output", rounding="split")
def infinity_in_a_product(run: Run) -> None:
    """One element of a matrix product is infinite."""
    run.kernel("matmul", 2, "bmm", changes.value(float("inf")))


@case(TUNED, "bert", "a", "introduced output", rounding="double")
def gelu_gradient_too_large(run: Run) -> None:
    """The gradient of a gelu is 1 % too large."""
    run.gradient("gelu", 1, "GeluBackward0", "gelu_backward", changes.relative(1e-2))


@case(TUNED, "gpt2", "a", "introduced output accumulate wired glue state", rounding="double")
def linear_gradient_noisy(run: Run) -> None:
    """One product in the backward pass of the head is off by 1 %."""
    run.gradient("linear", 0, "MmBackward0", "mm", changes.noise(1e-2), which=1)


@case(TUNED, "vit", "a", "introduced output accumulate", rounding="mkldnn")
def norm_weight_gradient_lost(run: Run) -> None:
    """The gradient of a layer norm's weight misses its last quarter."""
    run.gradient("layer_norm", 2, "NativeLayerNormBackward0", "native_layer_norm_backward", changes.lost(0.25), item=1)
    run.inside("vit.layers.1.layernorm_before", backward=True)


# (b) Arguments, scalars, configuration.


@case(TUNED, "vit", "b", "argument", rounding="double")
def norm_epsilon(run: Run) -> None:
    """The epsilon of a layer norm is 1e-5 instead of 1e-12."""
    run.model.get_submodule("vit.layers.1.layernorm_before").eps = 1e-5  # type: ignore[assignment]
    run.applied += 1
    run.inside("vit.layers.1.layernorm_before")


@case(TUNED, "llama", "b", "argument", rounding="split")
def attention_scale(run: Run) -> None:
    """The scale of the attention scores is 1 % too large."""
    attention: Any = run.model.get_submodule("model.layers.1.self_attn")
    attention.scaling *= 1.01
    run.applied += 1
    run.inside("model.layers.1.self_attn", "mul", value=attention.scaling)


@case(TUNED, "bert", "b", "argument structure", rounding="none")
def weight_frozen(run: Run) -> None:
    """A weight has lost its requires_grad."""
    run.model.get_parameter("bert.encoder.layer.0.output.dense.weight").requires_grad_(False)
    run.applied += 1
    run.inside("bert.encoder.layer.0.output.dense")


@case(TUNED, "conv", "b", "argument", rounding="mkldnn")
def batch_norm_momentum(run: Run) -> None:
    """The momentum of a batch norm is 0.01 instead of 0.1."""
    run.model.get_submodule("blocks.0.norm1").momentum = 0.01  # type: ignore[assignment]
    run.applied += 1
    run.inside("blocks.0.norm1")


@case(TUNED, "gpt2", "b", "argument state glue wired structure", rounding="double")
def positions_shifted(run: Run) -> None:
    """The positions begin at one instead of zero."""

    def shifted(original: Any, positions: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunction():
            later = positions + 1
        return original(run.consumer_of(later))

    run.forward("transformer.wpe", shifted)


# (c) Missing, extra and reordered calls, wiring.


@case(TUNED, "bert", "c", "structure wired glue", rounding="double")
def activation_skipped(run: Run) -> None:
    """The activation of one layer is left out."""
    run.forward("bert.encoder.layer.0.intermediate.intermediate_act_fn", lambda original, x: run.consumer_of(x))
    run.inside("bert.encoder.layer.0.intermediate.intermediate_act_fn")


@case(TUNED, "vit", "c", "structure wired", rounding="mkldnn")
def norm_applied_twice(run: Run) -> None:
    """A layer norm is applied twice."""
    run.forward("vit.layers.1.layernorm_after", lambda original, x: original(run.consumer_of(original(x))))
    run.inside("vit.layers.1.layernorm_after")


@case(TUNED, "conv", "c", "structure wired", rounding="ulp")
def activation_before_norm(run: Run) -> None:
    """Norm and activation have changed places in one block."""
    block: Any = run.model.get_submodule("blocks.0")

    def swapped(original: Any, x: torch.Tensor) -> torch.Tensor:
        y = block.norm1(torch.relu(block.conv1(x)))
        return torch.relu(block.norm2(block.conv2(run.consumer_of(y))) + block.short(x))

    run.forward("blocks.0", swapped)
    run.inside("blocks.0", "relu")
    run.inside("blocks.0.norm1")


@case(TUNED, "llama", "c", "wired", rounding="split", options=SDPA)
def mlp_without_its_norm(run: Run) -> None:
    """An MLP is fed with the tensor before its norm."""
    kept: list[torch.Tensor] = []

    def keep(original: Any, x: torch.Tensor) -> Any:
        kept.append(x)
        return original(x)

    run.forward("model.layers.1.post_attention_layernorm", keep)
    run.forward("model.layers.1.mlp", lambda original, x: original(kept[0]))
    run.inside("model.layers.1.mlp.gate_proj")
    run.entry("Module.model.layers.1.mlp.LlamaMLP.forward.0")


# (d) Weights, buffers, optimizer state, data, random state.


@case(TUNED, "gpt2", "d", "state", rounding="double")
def weight_transposed(run: Run) -> None:
    """A square weight is stored the other way round."""
    run.set("transformer.h.1.attn.c_proj.weight", lambda w: w.copy_(w.t().clone()))
    run.inside("transformer.h.1.attn.c_proj")


@case(TUNED, "conv", "d", "state", rounding="mkldnn", steps=2, options=SGD)
def running_mean_changed(run: Run) -> None:
    """A running mean is changed between two steps."""
    run.set("blocks.1.norm1.running_mean", lambda mean: mean.add_(0.1), step=1)
    run.inside("blocks.1.norm1")


@case(TUNED, "bert", "d", "state", rounding="double", steps=3, options=SGD, evidence="full")
def optimizer_state_lost(run: Run) -> None:
    """The momentum of one weight is lost between two steps."""
    weight = run.model.get_parameter("bert.encoder.layer.1.intermediate.dense.weight")
    run.begin(1, lambda: run.optimizer.state[weight]["momentum_buffer"].zero_())
    run.inside("bert.encoder.layer.1.intermediate.dense")


@case(TUNED, "llama", "d", "state", rounding="split", steps=2, options=SDPA)
def update_lost(run: Run) -> None:
    """One weight misses an update."""
    weight = run.model.get_parameter("model.layers.0.mlp.down_proj.weight")
    first = weight.detach().clone()
    run.set("model.layers.0.mlp.down_proj.weight", lambda w: w.copy_(first), step=1)
    run.inside("model.layers.0.mlp.down_proj")


@case(TUNED, "lstm", "d", "state argument glue introduced wired", rounding="ulp")
def token_replaced(run: Run) -> None:
    """One token of the input is another."""

    def change(data: Batch) -> Batch:
        tokens = data["tokens"].clone()
        tokens[2, 5] = (tokens[2, 5] + 7) % 60
        run.consumers(tokens)
        return {**data, "tokens": tokens}

    run.batch(0, change)


@case(TUNED, "gpt2", "d", "state output introduced glue", rounding="double", steps=2, options=DROP_SGD, evidence="full")
def random_state_lost(run: Run) -> None:
    """The random numbers of the second step are others."""
    run.begin(1, lambda: torch.manual_seed(99))
    run.inside("transformer.drop")


@case(TUNED, "bert", "d", "accumulate state structure introduced output", rounding="double", options=Options(micro=2))
def gradient_not_accumulated(run: Run) -> None:
    """The gradient of one weight is cleared between two passes of a step."""
    weight = run.model.get_parameter("bert.encoder.layer.1.output.dense.weight")

    def clear() -> None:
        weight.grad = None

    run.after_backward(0, 0, clear)
    run.inside("bert.encoder.layer.1.output.dense", backward=True)


# (e) Communication.


@case(TUNED, "parallel", "e", "introduced output", rounding="double")
def share_of_a_rank_lost(run: Run) -> None:
    """all_reduce loses what the second rank gave."""
    run.collective("allreduce", 0, lambda x: x.zero_(), rank=1)
    run.entry("Distributed.all_reduce.0.forward")
