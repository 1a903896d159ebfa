"""More faults to tune on: accumulation, random state, moments, scattered and overwritten tensors, 16 bits.

Written after the third part had been compared, for the kinds of which the parts before have none or one.
"""

from __future__ import annotations

from typing import Any

import changes
import torch
import torch.distributed as dist
from changes_outside import quietly
from inject import Case, Run, case
from models import Options
from torch.nn import functional as F

MORE: list[Case] = []
SDPA, DROP = Options(attention="sdpa"), Options(dropout=0.1)
AUTOCAST, HALF = Options(autocast=True), Options(dtype=torch.bfloat16)
SGD = Options(optimizer="sgd", rate=0.1)


# (a) An API is wrong.


@case(MORE, "mixtral", "a", "introduced output", rounding="split")
def scattered_rows_lost(run: Run) -> None:
    """Adding an expert's results to the others loses the last tenth."""
    run.kernel("index_add_", 1, "index_add_", changes.lost(0.1))


@case(MORE, "bert", "a", "introduced output", rounding="double", options=AUTOCAST)
def low_precision_linear_noisy(run: Run) -> None:
    """A linear layer under autocast is off by 20 %; other kernels."""
    run.kernel("linear", 4, "addmm", changes.noise(0.2))


@case(MORE, "vit", "a", "introduced output", rounding="mkldnn", options=AUTOCAST)
def low_precision_softmax_too_large(run: Run) -> None:
    """A softmax under autocast is 10 % too large; without oneDNN."""
    run.kernel("softmax", 1, "_softmax", changes.relative(0.1))


@case(MORE, "llama", "a", "introduced output", rounding="mkldnn", options=HALF)
def half_model_tail_lost(run: Run) -> None:
    """A linear layer of a bfloat16 model does not write its last 5 %."""
    run.kernel("linear", 6, "mm", changes.lost(0.05))


@case(MORE, "plain", "a", "introduced output", rounding="mkldnn", options=HALF)
def half_model_norm(run: Run) -> None:
    """A layer norm of a bfloat16 model is 6 % too large."""
    run.kernel("layer_norm", 1, "native_layer_norm", changes.relative(0.06))


@case(MORE, "gpt2", "a", "introduced output", rounding="double", options=AUTOCAST)
def low_precision_gradient(run: Run) -> None:
    """The gradient of a softmax under autocast is 30 % too large."""
    run.gradient("softmax", 1, "SoftmaxBackward0", "_softmax_backward_data", changes.relative(0.3))


@case(MORE, "bert", "a", "introduced output", rounding="double", steps=2, options=SGD)
def second_step_only(run: Run) -> None:
    """A linear layer is off by 1 % in the second step only."""
    run.kernel("linear", 3, "addmm", changes.noise(1e-2), step=1)


@case(MORE, "parallel", "a", "introduced output", rounding="double")
def one_rank_only(run: Run) -> None:
    """A gelu is 0.1 % too large on the second rank only."""
    if run.rank == 1:
        run.kernel("gelu", 0, "gelu", changes.relative(1e-3))
    else:
        run.applied += 1


@case(MORE, "conv", "a", "introduced output", rounding="mkldnn")
def batch_norm_gradient(run: Run) -> None:
    """The gradient that a batch norm hands on is 2 % too large."""
    run.gradient("batch_norm", 2, "NativeBatchNormBackward0", "native_batch_norm_backward", changes.relative(2e-2))


# (b) Arguments, scalars, configuration.


@case(MORE, "bert", "b", "argument introduced output structure", rounding="double", options=AUTOCAST)
def cast_before_a_linear(run: Run) -> None:
    """A linear layer is fed with float32 outside autocast."""
    path = "bert.encoder.layer.1.intermediate.dense"

    def change(original: Any, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return original(x.float())

    run.forward(path, change)
    run.inside(path)


@case(MORE, "plain", "b", "argument", rounding="split")
def loss_smoothed(run: Run) -> None:
    """The loss smoothes its labels."""
    original = F.cross_entropy

    def smoothed(*args: Any, **more: Any) -> torch.Tensor:
        return original(*args, **{**more, "label_smoothing": 0.01})

    run.begin(0, lambda: setattr(F, "cross_entropy", smoothed))
    run.entry("Functional.cross_entropy.0.forward")


@case(MORE, "vit", "b", "argument structure", rounding="double", options=DROP)
def dropout_off(run: Run) -> None:
    """One dropout is in evaluation mode."""
    run.model.get_submodule("vit.embeddings.dropout").eval()
    run.applied += 1
    run.inside("vit.embeddings.dropout")


@case(MORE, "parallel", "b", "argument introduced", rounding="ulp")
def maximum_for_sum(run: Run) -> None:
    """all_reduce takes the maximum."""
    original = dist.all_reduce

    def change(x: torch.Tensor, *args: Any, **more: Any) -> Any:
        return original(x, *args, **{**more, "op": dist.ReduceOp.MAX})

    run.begin(0, lambda: setattr(dist, "all_reduce", change))
    run.entry("Distributed.all_reduce.0.forward")


# (c) Missing, extra and reordered calls, wiring.


@case(MORE, "plain", "c", "state wired", rounding="split")
def layers_exchanged(run: Run) -> None:
    """Both attentions have changed places."""
    attentions: Any = run.model.get_submodule("attentions")
    attentions[0], attentions[1] = attentions[1], attentions[0]
    run.applied += 1
    for part in ("query", "key", "value"):
        run.inside(f"attentions.0.{part}")


@case(MORE, "gpt2", "c", "argument structure wired glue accumulate", rounding="double")
def gradient_cut(run: Run) -> None:
    """An MLP's input is detached."""
    run.forward("transformer.h.1.mlp", lambda original, x: original(x.detach()))
    run.inside("transformer.h.1.mlp")
    run.inside("transformer.h.1.mlp.c_fc")
    run.inside("transformer.h.1.ln_2", backward=True)
    run.inside("transformer.h.1", backward=True)
    run.inside("transformer.h.1.mlp", backward=True)


@case(MORE, "bert", "c", "glue wired state", rounding="double")
def through_numpy(run: Run) -> None:
    """A tensor is scaled through NumPy on its way."""

    def change(original: Any, x: torch.Tensor) -> Any:
        x.detach().numpy()[...] *= 1.002
        return original(run.consumer_of(x))

    run.forward("bert.encoder.layer.1.intermediate.dense", change)
    run.inside("bert.encoder.layer.1.intermediate.dense")


@case(MORE, "llama", "c", "glue wired state", rounding="split", options=SDPA)
def written_through_data(run: Run) -> None:
    """A tensor is written through .data between two calls."""

    def change(original: Any, x: torch.Tensor) -> Any:
        quietly(x.data.add_, 1e-2)
        return original(run.consumer_of(x))

    run.forward("model.layers.1.mlp.down_proj", change)
    run.inside("model.layers.1.mlp.down_proj")


@case(MORE, "plain", "c", "glue accumulate introduced output", rounding="split")
def overwritten_before_backward(run: Run) -> None:
    """What a linear layer keeps for its gradient is overwritten after its call."""

    def change(original: Any, x: torch.Tensor) -> Any:
        y = original(x)
        quietly(x.data.mul_, 1.5)
        return y

    run.forward("ups.1", change)
    run.inside("ups.1", backward=True)
    run.inside("norms.3", backward=True)


# (d) Weights, buffers, optimizer state, data, random state.


@case(MORE, "gpt2", "d", "state output introduced glue", rounding="double", options=DROP)
def random_number_used(run: Run) -> None:
    """One random number more was used before the step."""
    run.begin(0, lambda: quietly(torch.rand, 1))
    run.inside("transformer.drop")


@case(MORE, "bert", "d", "state", rounding="double", steps=3)
def all_moments_lost(run: Run) -> None:
    """The optimizer begins anew in the second step."""
    run.begin(1, lambda: run.optimizer.state.clear())
    run.inside("bert.embeddings.word_embeddings")
    run.inside("bert.embeddings")


@case(MORE, "llama", "d", "state", rounding="split", steps=3, options=Options(attention="sdpa", rate=1e-2))
def first_moment_lost(run: Run) -> None:
    """The first moment of one weight is lost in the second step."""
    weight = run.model.get_parameter("model.layers.1.mlp.gate_proj.weight")
    run.begin(1, lambda: run.optimizer.state[weight]["exp_avg"].zero_())
    run.inside("model.layers.1.mlp.gate_proj")


@case(MORE, "plain", "d", "state", rounding="split", steps=2, options=Options(optimizer="sgd", rate=0.1, clip=0.5))
def clipping_left_out(run: Run) -> None:
    """Gradients are not clipped."""
    original = torch.nn.utils.clip_grad_norm_
    run.begin(0, lambda: setattr(torch.nn.utils, "clip_grad_norm_", lambda p, clip: original(p, 1e9)))
    run.inside("tokens")
    run.entry("Tensor.__add__.0.forward")  # statistics show it in the other weight of that place first


@case(MORE, "lstm", "d", "state", rounding="ulp", steps=2, options=Options(optimizer="sgd", rate=0.1, scale=1024.0))
def scale_left_in(run: Run) -> None:
    """The gradient of one weight keeps the scale of the loss."""
    weight = run.model.get_parameter("project.weight")

    def keep() -> None:
        assert weight.grad is not None
        weight.grad.mul_(1024)

    run.after_backward(0, 0, keep)
    run.inside("project")
    run.inside("project", backward=True)


@case(MORE, "vit", "d", "accumulate state introduced output structure", rounding="double",
      options=Options(micro=2))  # fmt: skip
def first_pass_counts_twice(run: Run) -> None:
    """The gradient of the first of two passes is doubled."""
    weight = run.model.get_parameter("vit.layers.0.mlp.fc1.weight")

    def double() -> None:
        assert weight.grad is not None
        weight.grad.mul_(2)

    run.after_backward(0, 0, double)
    run.inside("vit.layers.0.mlp.fc1", backward=True)


@case(MORE, "mixtral", "d", "state", rounding="split")
def expert_changed(run: Run) -> None:
    """One expert's weight is 1 % too large."""
    run.set("model.layers.0.mlp.experts.down_proj", lambda w: w[2].mul_(1.01))
    run.inside("model.layers.0.mlp.experts")


@case(MORE, "conv", "d", "state", rounding="mkldnn", steps=2, options=SGD)
def weight_decayed(run: Run) -> None:
    """Weights decay in the first update."""
    group = run.optimizer.param_groups[0]
    run.begin(0, lambda: group.update(weight_decay=0.1))
    run.inside("stem")


@case(MORE, "parallel", "d", "state", rounding="double")
def weight_of_one_rank(run: Run) -> None:
    """One weight is 0.1 % too large on the first rank."""
    if run.rank == 0:
        run.set("down.weight", lambda w: w.mul_(1.001))
    else:
        run.applied += 1
    run.inside("down")
