"""The second half of the faults. No rule is tuned on these: they are compared once, at the end.

Written from the list of kinds only, before any rule existed. Do not look at what is said of them and then change a
rule; write new ones instead.
"""

from __future__ import annotations

from typing import Any

import changes
import torch
from inject import Case, Run, case
from models import Batch, Options
from torch.nn import functional as F

BLIND: list[Case] = []
SDPA, DROP, AUTOCAST = Options(attention="sdpa"), Options(dropout=0.1), Options(autocast=True)


# (a) An API is wrong.


@case(BLIND, "bert", "a", "introduced output", rounding="split")
def softmax_denominator(run: Run) -> None:
    """The denominator of a softmax leaves out the last column."""
    run.kernel("softmax", 0, "_softmax", changes.softmax_without_last())


@case(BLIND, "gpt2", "a", "introduced output", rounding="double")
def norm_kernel_epsilon(run: Run) -> None:
    """A layer norm kernel adds another epsilon than it was given."""
    run.kernel("layer_norm", 3, "native_layer_norm", changes.norm_eps(3e-3))


@case(BLIND, "vit", "a", "introduced output", rounding="mkldnn")
def norm_divisor(run: Run) -> None:
    """A layer norm kernel divides the variance by n - 1."""
    run.kernel("layer_norm", 1, "native_layer_norm", changes.norm_unbiased())


@case(BLIND, "llama", "a", "introduced output", rounding="ulp")
def silu_in_half(run: Run) -> None:
    """The result of a silu went through float16."""
    run.kernel("silu", 1, "silu", changes.rounded(torch.float16))


@case(BLIND, "t5", "a", "introduced output", rounding="double")
def rsqrt_first_guess(run: Run) -> None:
    """A reciprocal square root is 0.05 % off, as without its last iteration."""
    run.kernel("rsqrt", 3, "rsqrt", changes.noise(5e-4))


@case(BLIND, "conv", "a", "introduced output", rounding="mkldnn")
def pooling_one_place_off(run: Run) -> None:
    """Max pooling writes its result one column further."""
    run.kernel("max_pool2d", 0, "max_pool2d_with_indices", changes.rolled(-1))


@case(BLIND, "conv", "a", "introduced output", rounding="ulp")
def batch_norm_in_bfloat16(run: Run) -> None:
    """The result of a batch norm went through bfloat16."""
    run.kernel("batch_norm", 2, "native_batch_norm", changes.rounded(torch.bfloat16))


@case(BLIND, "lstm", "a", "introduced output", rounding="ulp")
def projection_without_bias(run: Run) -> None:
    """A linear layer forgets its addend."""
    run.kernel("linear", 0, "addmm", changes.without_bias())


@case(BLIND, "gpt2", "a", "introduced output", rounding="split")
def lookup_of_another_row(run: Run) -> None:
    """An embedding returns, for the first sequence, what belongs to the second."""
    run.kernel("embedding", 0, "embedding", changes.row_of_another())


@case(BLIND, "mixtral", "a", "introduced output", rounding="double")
def attention_product_one_element(run: Run) -> None:
    """One element of an attention product is off by a hundredth."""
    run.kernel("matmul", 3, "bmm", changes.element(1e-2, at=0.3))


@case(BLIND, "llama", "a", "introduced output", rounding="split", options=SDPA)
def fused_attention_noisy(run: Run) -> None:
    """A fused attention kernel is off by 0.03 %."""
    run.kernel("scaled_dot_product_attention", 1, "_scaled_dot_product_flash_attention_for_cpu", changes.noise(3e-4))


@case(BLIND, "vit", "a", "introduced output", rounding="ulp")
def loss_in_bfloat16(run: Run) -> None:
    """The logarithms inside a cross entropy went through bfloat16."""
    run.kernel("cross_entropy", 0, "_log_softmax", changes.rounded(torch.bfloat16))


@case(BLIND, "plain", "a", "introduced output", rounding="double")
def nan_in_one_row(run: Run) -> None:
    """One element of a linear layer is NaN."""
    run.kernel("linear", 7, "addmm", changes.value(float("nan"), at=0.9))


@case(BLIND, "bert", "a", "introduced output", rounding="double")
def softmax_gradient_noisy(run: Run) -> None:
    """The gradient of a softmax is off by 0.5 %."""
    run.gradient("softmax", 0, "SoftmaxBackward0", "_softmax_backward_data", changes.noise(5e-3))


@case(BLIND, "conv", "a", "introduced output accumulate", rounding="mkldnn")
def convolution_weight_gradient(run: Run) -> None:
    """The gradient of a convolution's weight misses its last tenth."""
    run.gradient("conv2d", 2, "ConvolutionBackward0", "convolution_backward", changes.lost(0.1), item=1)
    run.inside("blocks.0.conv2", backward=True)


@case(BLIND, "plain", "a", "introduced output accumulate", rounding="split")
def embedding_gradient_lost(run: Run) -> None:
    """The gradient of an embedding misses the rows at its end."""
    run.gradient("embedding", 0, "EmbeddingBackward0", "embedding_dense_backward", changes.lost(0.4))
    run.inside("tokens", backward=True)


# (b) Arguments, scalars, configuration.


@case(BLIND, "bert", "b", "argument", rounding="double")
def gelu_argument(run: Run) -> None:
    """A gelu is asked for its tanh approximation."""
    path = "bert.encoder.layer.1.intermediate.intermediate_act_fn"
    run.forward(path, lambda original, x: F.gelu(x, approximate="tanh"))
    run.inside(path)


@case(BLIND, "gpt2", "b", "argument", rounding="double", options=DROP)
def dropout_probability(run: Run) -> None:
    """One dropout drops twice as much."""
    run.model.get_submodule("transformer.h.0.mlp.dropout").p = 0.2  # type: ignore[assignment]
    run.applied += 1
    run.inside("transformer.h.0.mlp.dropout")


@case(BLIND, "conv", "b", "argument state", rounding="ulp", steps=2)
def batch_norm_left_in_eval(run: Run) -> None:
    """One batch norm is in evaluation mode."""
    run.model.get_submodule("blocks.1.norm2").eval()
    run.applied += 1
    run.inside("blocks.1.norm2")


@case(BLIND, "plain", "b", "argument wired state glue introduced", rounding="split")
def mask_shifted(run: Run) -> None:
    """The causal mask of one layer lets each token see the next one."""

    def change(original: Any, x: torch.Tensor, mask: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunction():
            wider = mask & torch.ones_like(mask).triu(2)
        return original(x, run.consumer_of(wider))

    run.forward("attentions.1", change)


@case(BLIND, "vit", "b", "argument introduced output structure", rounding="double", options=AUTOCAST)
def autocast_lost(run: Run) -> None:
    """One linear layer runs outside autocast."""
    path = "vit.layers.0.mlp.fc1"

    def change(original: Any, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return original(x)

    run.forward(path, change)
    run.inside(path)


# (c) Missing, extra and reordered calls, wiring.


@case(BLIND, "llama", "c", "structure wired glue", rounding="split", options=SDPA)
def layer_skipped(run: Run) -> None:
    """The second layer is left out."""
    run.forward("model.layers.1", lambda original, x, **more: run.consumer_of(x))
    run.inside("model.layers.1")
    run.inside("model.layers.1.input_layernorm")


@case(BLIND, "vit", "c", "wired state argument", rounding="mkldnn")
def keys_from_query_weights(run: Run) -> None:
    """The keys of one layer are computed with the weights of the queries."""
    query: Any = run.model.get_submodule("vit.layers.1.attention.q_proj")
    run.forward("vit.layers.1.attention.k_proj", lambda original, x: F.linear(x, query.weight, query.bias))
    run.inside("vit.layers.1.attention.k_proj")


@case(BLIND, "t5", "c", "structure wired", rounding="double")
def norm_repeated(run: Run) -> None:
    """The last norm of the encoder is applied twice."""
    run.forward("encoder.final_layer_norm", lambda original, x: original(run.consumer_of(original(x))))
    run.inside("encoder.final_layer_norm")


@case(BLIND, "gpt2", "c", "structure wired glue", rounding="double")
def residual_lost(run: Run) -> None:
    """The second MLP's output is added to itself, not to what went into it."""
    block: Any = run.model.get_submodule("transformer.h.1")

    def change(original: Any, x: torch.Tensor, *args: Any, **more: Any) -> Any:
        attended = block.attn(block.ln_1(x), *args, **more)[0] + x
        hidden = block.mlp(block.ln_2(attended))
        run.consumers(hidden, skip=1)  # the first is the dropout that hands it on
        return hidden + hidden

    run.forward("transformer.h.1", change)


@case(BLIND, "lstm", "c", "wired state glue", rounding="ulp")
def state_not_carried(run: Run) -> None:
    """One call of a cell begins with zeros instead of the state before it."""

    def change(original: Any, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        with torch._C.DisableTorchFunction():
            zeros = torch.zeros_like(state[0])
        return original(x, (zeros, state[1]))

    run.forward("cell", change, once=2)
    run.entry("Module.cell.LSTMCell.forward.2")
    run.entry("Torch.lstm_cell.2.forward")


# (d) Weights, buffers, optimizer state, data, random state.


@case(BLIND, "llama", "d", "state", rounding="split")
def rotary_frequencies(run: Run) -> None:
    """The frequencies of the rotary embedding are 0.1 % too large."""
    run.set("model.rotary_emb.inv_freq", lambda x: x.mul_(1.001))
    run.inside("model.rotary_emb", "float")
    run.entry("Module.model.rotary_emb.LlamaRotaryEmbedding.forward.0", "Tensor.to.3.forward")


@case(BLIND, "vit", "d", "state", rounding="double")
def position_row_changed(run: Run) -> None:
    """One row of the position embedding is changed."""
    run.set("vit.embeddings.position_embeddings", lambda p: p[0, 4].mul_(1.05))
    run.inside("vit.embeddings", "add")


@case(BLIND, "gpt2", "d", "accumulate state wired argument structure", rounding="double", steps=2)
def tie_lost(run: Run) -> None:
    """The head no longer shares its weight with the embedding."""
    head: Any = run.model.get_submodule("lm_head")
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    run.optimizer.add_param_group({"params": [head.weight]})
    run.applied += 1
    run.inside("lm_head")
    run.inside("transformer.wte")
    run.inside("lm_head", backward=True)
    run.inside("transformer.wte", backward=True)


@case(BLIND, "mixtral", "d", "state", rounding="split", steps=3, evidence="full")
def second_moment_changed(run: Run) -> None:
    """The second moment of one weight is four times too large."""
    weight = run.model.get_parameter("model.layers.1.self_attn.o_proj.weight")
    run.begin(1, lambda: run.optimizer.state[weight]["exp_avg_sq"].mul_(4))
    run.inside("model.layers.1.self_attn.o_proj")


@case(BLIND, "bert", "d", "state argument glue introduced wired", rounding="double")
def padding_mask_changed(run: Run) -> None:
    """One token more is masked as padding."""

    def change(data: Batch) -> Batch:
        seen = data["seen"].clone()
        seen[0, -1] = 0
        run.consumers(seen)
        return {**data, "seen": seen}

    run.batch(0, change)


@case(BLIND, "vit", "d", "state output introduced glue", rounding="mkldnn", options=DROP, evidence="full")
def other_seed(run: Run) -> None:
    """The random numbers are those of another seed."""
    run.begin(0, lambda: torch.manual_seed(5))
    run.inside("vit.embeddings.dropout")


@case(BLIND, "t5", "d", "state", rounding="double", steps=2)
def gradient_changed_before_update(run: Run) -> None:
    """The gradient of one weight is lost before the update."""
    weight = run.model.get_parameter("decoder.block.1.layer.2.DenseReluDense.wo.weight")

    def lose() -> None:
        assert weight.grad is not None
        weight.grad.zero_()

    run.after_backward(0, 0, lose)
    run.inside("decoder.block.1.layer.2.DenseReluDense.wo")
    run.inside("decoder.block.1.layer.2.DenseReluDense.wo", backward=True)


# (e) Communication.


@case(BLIND, "parallel", "e", "introduced output", rounding="double")
def gathered_piece_off(run: Run) -> None:
    """all_gather delivers the piece of the second rank 1 % too large."""
    run.collective("allgather", 0, lambda x: x.mul_(1.01), rank=1)
    run.entry("Distributed.all_gather.0.forward")


@case(BLIND, "parallel", "e", "introduced output state", rounding="ulp")
def broadcast_changed(run: Run) -> None:
    """broadcast delivers something else than the source gave."""
    run.collective("broadcast", 0, lambda x: x.add_(0.01), rank=0)
    run.entry("Distributed.broadcast.0.forward")
