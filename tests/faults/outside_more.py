"""The second half of the faults from outside: see `outside`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import changes_outside as more
import models_outside  # noqa: F401
import torch
from changes_outside import quietly
from inject import Case, Run, case
from models import Batch, Options

OUTSIDE_MORE: list[Case] = []
HALF = Options(dtype=torch.bfloat16)
SGD, DROP = Options(optimizer="sgd", rate=0.05), Options(dropout=0.1)
TWICE = Options(optimizer="sgd", rate=0.05, micro=2)


# (c) Missing, extra and reordered calls, wiring, code between calls.


@case(OUTSIDE_MORE, "graph", "c", "wired", rounding="split")
def ends_of_edges_exchanged(run: Run) -> None:
    """In the second layer the edges point the other way."""
    run.forward("layers.1", lambda original, x, e, source, target: original(x, e, target, source))
    run.entry("Module.layers.1.GraphLayer.forward.0")
    run.inside("layers.1", "index_select")


@case(OUTSIDE_MORE, "graph", "c", "wired", rounding="double")
def state_and_input_exchanged(run: Run) -> None:
    """A gated cell gets its state as input and its input as state."""
    run.forward("layers.0.cell", lambda original, y, x: original(x, y))
    run.inside("layers.0.cell")


@case(OUTSIDE_MORE, "graph", "c", "glue", rounding="split")
def denominators_floored(run: Run) -> None:
    """The denominators of a softmax are changed by 0.2 % between two calls."""
    layer: Any = run.model.get_submodule("layers.1")
    original = layer.gathered

    def gathered(x: torch.Tensor, index: torch.Tensor, nodes: int) -> torch.Tensor:
        y: torch.Tensor = original(x, index, nodes)
        if y.dim() == 1:
            quietly(lambda: y.data.mul_(1.002))
            run.consumers(y)
            run.applied += 1
        return y

    layer.gathered = gathered


@case(OUTSIDE_MORE, "denoise", "c", "wired", rounding="mkldnn")
def halves_exchanged(run: Run) -> None:
    """What comes up and what was kept are joined the other way round."""
    run.model.joined = lambda x, skip: torch.cat([skip, x], 1)  # type: ignore[assignment]
    run.applied += 1
    run.entry("Torch.cat.1.forward")


@case(OUTSIDE_MORE, "denoise", "c", "glue", rounding="double")
def kept_tensor_overwritten(run: Run) -> None:
    """What was kept for the way up is overwritten after its first use."""
    model: Any = run.model

    def joined(x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        quietly(lambda: skip.data.clamp_(min=-0.8))
        return torch.cat([x, run.consumer_of(skip)], 1)

    model.joined = joined
    run.applied += 1


@case(OUTSIDE_MORE, "denoise", "c", "glue wired argument state", rounding="split")
def times_one_too_late(run: Run) -> None:
    """The sines and cosines are those of the next time."""
    model: Any = run.model
    original = model.angles

    def angles(times: torch.Tensor) -> Any:
        later = quietly(lambda: times + 1)
        return original(run.consumer_of(later))

    model.angles = angles
    run.applied += 1
    run.entry("Tensor.unsqueeze.0.forward")


@case(OUTSIDE_MORE, "denoise", "c", "wired", rounding="ulp")
def sines_and_cosines_exchanged(run: Run) -> None:
    """Cosines stand where sines belong."""

    def angles(times: torch.Tensor) -> torch.Tensor:
        frequencies: Any = run.model.frequencies
        phase = times.unsqueeze(-1).to(frequencies.dtype) * frequencies
        one, other = torch.sin(phase), torch.cos(phase)
        return torch.cat([run.consumer_of(other), one], -1)

    run.model.angles = angles  # type: ignore[assignment]
    run.applied += 1


@case(OUTSIDE_MORE, "scan", "c", "structure wired", rounding="double")
def residual_left_out(run: Run) -> None:
    """The first layer's input is not added to its output."""
    model: Any = run.model
    original, calls = model.added, [0]

    def added(x: torch.Tensor, y: torch.Tensor) -> Any:
        calls[0] += 1
        return run.consumer_of(y) if calls[0] == 1 else original(x, y)

    model.added = added
    run.applied += 1
    run.entry("Tensor.add_.0.forward")


@case(OUTSIDE_MORE, "scan", "c", "wired state", rounding="split")
def scans_exchanged(run: Run) -> None:
    """The projections into both scans have changed places."""
    one, other = (run.model.get_submodule(f"layers.{at}") for at in (0, 1))
    one.inner, other.inner = other.inner, one.inner
    run.applied += 1
    run.inside("layers.0.inner")


@case(OUTSIDE_MORE, "towers", "c", "wired", rounding="double")
def padding_counts_in_the_mean(run: Run) -> None:
    """The mean over tokens divides by the length with padding."""

    def change(original: Any, x: torch.Tensor, seen: torch.Tensor) -> Any:
        ones = quietly(lambda: torch.ones_like(seen))
        return (x * seen.unsqueeze(-1)).sum(1) / run.consumer_of(ones).sum(1, keepdim=True).clamp(min=1)

    run.forward("pool", change)


@case(OUTSIDE_MORE, "towers", "c", "glue", rounding="split")
def vectors_through_numpy(run: Run) -> None:
    """Vectors take a turn through NumPy in 16 bits."""
    model: Any = run.model
    original, calls = model.products, [0]

    def products(a: torch.Tensor, b: torch.Tensor) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            quietly(lambda: b.data.copy_(torch.from_numpy(b.detach().numpy().astype("float16").astype("float32"))))
            run.applied += 1
            return original(a, run.consumer_of(b))
        return original(a, b)

    model.products = products


@case(OUTSIDE_MORE, "towers", "c", "structure argument wired accumulate", rounding="ulp")
def text_detached(run: Run) -> None:
    """The text's vectors are detached, so that their tower learns nothing."""
    model: Any = run.model
    original = model.products
    model.products = lambda a, b: original(a.detach(), b)
    run.applied += 1
    run.entry("Torch.einsum.0.forward", "Torch.einsum.0.backward", "Torch.einsum.1.forward", "Torch.einsum.1.backward")
    run.entry("Functional.normalize.0.backward", "Module.text.Tower.backward.0")


@case(OUTSIDE_MORE, "towers", "c", "output glue", rounding="split")
def vectors_changed_on_their_way_out(run: Run) -> None:
    """What a tower returns is 0.1 % larger than what its last call returned."""

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        quietly(lambda: y.data.mul_(1.001))
        return run.consumer_of(y)

    run.forward("image", change)
    run.entry("Module.image.Tower.forward.0")


@case(OUTSIDE_MORE, "llama", "c", "output glue", rounding="split")
def one_row_changed_on_its_way_out(run: Run) -> None:
    """One token's row of what an MLP returns is overwritten after its last call."""
    path = "model.layers.0.mlp"

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        quietly(lambda: y.data[2, 5].mul_(1.05))
        return run.consumer_of(y)

    run.forward(path, change)
    run.entry(f"Module.{path}.LlamaMLP.forward.0")


@case(OUTSIDE_MORE, "scan", "c", "glue", rounding="ulp")
def one_place_of_a_buffer_off(run: Run) -> None:
    """One place of a buffer that is filled in a loop is written over before it is read."""
    layer: Any = run.model.get_submodule("layers.0")
    original = layer.scan

    def scan(value: torch.Tensor, decay: torch.Tensor) -> Any:
        y: torch.Tensor = original(value, decay)
        quietly(lambda: y.data[:, 6].copy_(y.data[:, 5].clone()))
        return run.consumer_of(y)

    layer.scan = scan
    run.applied += 1


@case(OUTSIDE_MORE, "scan", "c", "glue", rounding="low", options=Options(autocast=True))
def low_precision_buffer_overwritten(run: Run) -> None:
    """The last place of a buffer is doubled before it is read, under autocast; all kernels round otherwise."""
    layer: Any = run.model.get_submodule("layers.0")
    original = layer.scan

    def scan(value: torch.Tensor, decay: torch.Tensor) -> Any:
        y: torch.Tensor = original(value, decay)
        quietly(lambda: y.data[:, -1].mul_(2))
        return run.consumer_of(y)

    layer.scan = scan
    run.applied += 1


@case(OUTSIDE_MORE, "adversary", "c", "structure argument wired accumulate", rounding="mkldnn")
def not_detached(run: Run) -> None:
    """The judge's own step sends gradients into the maker."""
    model: Any = run.model

    def forward(z: torch.Tensor, images: torch.Tensor) -> Any:
        fake = model.make(z)
        run.consumers(fake)
        model.rival.zero_grad()
        both = model.verdict(images, True) + model.verdict(fake, False)
        both.backward(retain_graph=True)
        model.rival.step()
        return model.verdict(fake, True)

    model.forward = forward
    run.applied += 1
    run.entry("Functional.conv2d.2.backward", "Module.judge.conv1.Conv2d.backward.1", "Module.judge.Judge.backward.1")
    run.inside("make", backward=True)


@case(OUTSIDE_MORE, "adversary", "c", "wired argument glue state", rounding="double")
def answers_exchanged(run: Run) -> None:
    """The judge is told that real images are not."""
    model: Any = run.model
    original, calls = model.wanted, [0]

    def wanted(score: torch.Tensor, real: bool) -> Any:
        calls[0] += 1
        return original(score, real) if calls[0] > 1 else run.consumer_of(torch.zeros_like(score))

    model.wanted = wanted
    run.applied += 1


@case(OUTSIDE_MORE, "vit", "c", "state wired", rounding="double")
def keys_and_values_exchanged(run: Run) -> None:
    """The projections to keys and values of one layer have changed places."""
    attention: Any = run.model.get_submodule("vit.layers.0.attention")
    attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj
    run.applied += 1
    run.inside("vit.layers.0.attention.k_proj")
    run.inside("vit.layers.0.attention.v_proj")


@case(OUTSIDE_MORE, "bert", "c", "structure argument", rounding="double", options=Options(micro=2))
def second_pass_weighs_double(run: Run) -> None:
    """The loss of the second of two passes is not divided."""

    def change(original: Any, **inputs: Any) -> Any:
        output = original(**inputs)
        run.consumers(output.loss)
        output.loss = output.loss * 2
        run.consumers(output.loss)
        return output

    run.forward("", change, once=1)


@case(OUTSIDE_MORE, "t5", "c", "glue wired argument state", rounding="double")
def relative_positions_one_off(run: Run) -> None:
    """The buckets of relative positions are one off."""

    def shifted(original: Any, buckets: torch.Tensor) -> Any:
        return original(run.consumer_of(quietly(lambda: (buckets + 1).clamp(max=7))))

    run.forward("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", shifted)


@case(OUTSIDE_MORE, "denoise", "c", "accumulate output introduced", rounding="double")
def sum_over_two_uses(run: Run) -> None:
    """The gradients of both uses of a tensor are added up 1 % too large."""

    def change(original: Any, *args: Any) -> torch.Tensor:
        y: torch.Tensor = original(*args)
        more.wrong_sum(run, y, "add", 2, lambda g: g * 1.01)
        return y

    run.forward("down", change)


@case(OUTSIDE_MORE, "scan", "c", "accumulate output introduced", rounding="split")
def tied_gradient_summed_short(run: Run) -> None:
    """The gradients of both uses of a tied weight are added up in bfloat16."""
    more.wrong_gradient(run, "tokens.weight", lambda g: g.bfloat16().float())
    run.entry("Module.tokens.Embedding.parameters_grad.0", "Module.head.Linear.parameters_grad.0")


@case(OUTSIDE_MORE, "graph", "c", "accumulate output introduced", rounding="double")
def one_row_of_a_gradient_lost(run: Run) -> None:
    """The gradient of an embedding loses one row when it is stored."""
    more.wrong_gradient(run, "kinds.weight", lambda g: torch.cat([g[:5], torch.zeros_like(g[5:6]), g[6:]]))
    run.entry("Module.kinds.Embedding.parameters_grad.0")


# (d) Weights, buffers, optimizer state, data, random state.


@case(OUTSIDE_MORE, "graph", "d", "accumulate state output", rounding="split", options=TWICE)
def first_pass_forgotten(run: Run) -> None:
    """All gradients are cleared between two passes of a step."""
    run.after_backward(0, 0, lambda: run.model.zero_grad())
    for path, module in run.model.named_modules():
        if path and next(module.parameters(recurse=False), None) is not None:
            run.entry(f"Module.{path}.{type(module).__name__}.parameters_grad.1")


@case(OUTSIDE_MORE, "graph", "d", "state", rounding="split", steps=3, options=SGD)
def row_not_updated(run: Run) -> None:
    """One row of an embedding misses the update of the first step."""
    first = run.model.get_parameter("kinds.weight").detach().clone()
    run.set("kinds.weight", lambda w: w[2].copy_(first[2]), step=1)
    run.inside("kinds")


@case(OUTSIDE_MORE, "graph", "d", "state argument glue introduced wired", rounding="double")
def edge_ends_elsewhere(run: Run) -> None:
    """One edge ends in the next node."""

    def change(data: Batch) -> Batch:
        target = data["target"].clone()
        target[30] = (target[30] + 1) % 40
        run.consumers(target)
        return {**data, "target": target}

    run.batch(0, change)


@case(OUTSIDE_MORE, "denoise", "d", "state glue", rounding="mkldnn")
def noise_of_a_later_draw(run: Run) -> None:
    """One normal number more was drawn before the step."""
    run.begin(0, lambda: quietly(lambda: torch.randn(16)))
    run.entry("Tensor.__mul__.2.forward")


@case(OUTSIDE_MORE, "denoise", "d", "state glue", rounding="double", target=Options(channels_last=True))
def noise_in_another_layout(run: Run) -> None:
    """Noise for images in the other layout is drawn in another order."""
    run.applied += 1
    run.entry("Tensor.__mul__.2.forward")


@case(OUTSIDE_MORE, "denoise", "d", "state", rounding="double")
def schedule_in_half(run: Run) -> None:
    """The noise schedule was stored in float16."""
    run.set("kept", lambda x: x.copy_(x.half().float()))
    run.entry("Tensor.gather.0.forward")


@case(OUTSIDE_MORE, "denoise", "d", "state", rounding="low", options=HALF)
def low_precision_frequencies(run: Run) -> None:
    """The frequencies of a bfloat16 model are a tenth too large; all kernels round otherwise."""
    run.set("frequencies", lambda x: x.mul_(1.1))
    run.entry("Tensor.__mul__.0.forward")


@case(OUTSIDE_MORE, "scan", "d", "state", rounding="split", steps=3, options=SGD)
def average_not_carried(run: Run) -> None:
    """The running mean begins at zero again in the third step."""
    run.set("average", lambda x: x.zero_(), step=2)
    run.entry("Tensor.lerp_.0.forward")


@case(OUTSIDE_MORE, "scan", "d", "state accumulate structure wired argument", rounding="double", steps=2, options=SGD)
def head_no_longer_tied(run: Run) -> None:
    """The head has a copy of the embedding's weight and is not trained."""
    head: Any = run.model.get_submodule("head")
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    run.applied += 1
    for path in ("head", "tokens"):
        run.inside(path)
        run.inside(path, backward=True)


@case(OUTSIDE_MORE, "scan", "d", "state", rounding="split", steps=3, options=Options(rate=1e-2))
def step_counter_lost(run: Run) -> None:
    """The optimizer's step counter begins anew, so that its averages are corrected twice."""
    run.begin(1, lambda: [s["step"].zero_() for s in run.optimizer.state.values()])
    run.inside("tokens")
    run.inside("pairs")


@case(OUTSIDE_MORE, "scan", "d", "state output introduced glue", rounding="double",
      options=Options(recompute=True, dropout=0.1))  # fmt: skip
def recomputed_with_other_numbers(run: Run) -> None:
    """What is recomputed for the backward pass draws other random numbers."""
    run.model.preserve = False  # type: ignore[assignment]
    run.applied += 1
    run.entry("Functional.dropout.2.forward", "Module.layers.1.drop.Dropout.forward.1")


@case(OUTSIDE_MORE, "scan", "d", "state output introduced glue", rounding="ulp", options=DROP)
def number_drawn_between_layers(run: Run) -> None:
    """A random number is drawn between two layers."""

    def change(original: Any, x: torch.Tensor) -> Any:
        quietly(lambda: torch.rand(()))
        return original(x)

    run.forward("layers.1", change)
    run.inside("layers.1.drop")


@case(OUTSIDE_MORE, "towers", "d", "state", rounding="double", steps=3, options=SGD)
def queue_one_column_off(run: Run) -> None:
    """The place in the queue is one too far in the second step."""
    run.set("place", lambda x: x.add_(1), step=1)
    run.entry("Tensor.__add__.0.forward", "Tensor.add_.0.forward")


@case(OUTSIDE_MORE, "towers", "d", "state glue", rounding="split", steps=3, options=SGD)
def queue_stale(run: Run) -> None:
    """What the first step put into the queue is lost."""
    kept = run.model.get_buffer("queue").clone()
    run.set("queue", lambda x: x.copy_(kept), step=1)
    run.entry("Tensor.t.0.forward")


@case(OUTSIDE_MORE, "towers", "d", "state", rounding="double", steps=2, options=replace(SGD, scale=1024.0))
def temperature_keeps_the_scale(run: Run) -> None:
    """The gradient of the temperature is divided by the scale of the loss once too often."""
    scale = run.model.get_parameter("scale")

    def divide() -> None:
        assert scale.grad is not None
        scale.grad.div_(1024.0)

    run.after_backward(0, 0, divide)
    run.entry("Torch.exp.0.forward")


@case(OUTSIDE_MORE, "adversary", "d", "accumulate state output", rounding="mkldnn", steps=2, options=SGD)
def judge_not_cleared(run: Run) -> None:
    """The judge's gradients of the step before are not cleared."""
    run.begin(1, lambda: setattr(run.model, "cleared", False))
    for name in ("conv1.Conv2d", "conv2.Conv2d", "head.Linear"):
        run.entry(f"Module.judge.{name}.parameters_grad.0")


@case(OUTSIDE_MORE, "adversary", "d", "state structure argument", rounding="double", steps=3, options=SGD)
def momentum_of_the_judge_lost(run: Run) -> None:
    """The momentum of the judge's optimizer is lost before the third step."""
    rival: Any = run.model.rival
    run.begin(2, lambda: rival.state.clear())
    run.entry("Tensor.add_.1.forward", "Functional.conv2d.4.forward", "Module.judge.conv1.Conv2d.forward.2")


@case(OUTSIDE_MORE, "adversary", "d", "state", rounding="mkldnn")
def kernel_turned(run: Run) -> None:
    """The weight of a transposed convolution is stored mirrored."""
    run.set("make.grow.weight", lambda w: w.copy_(w.flip(2, 3).clone()))
    run.inside("make.grow")


@case(OUTSIDE_MORE, "gpt2", "d", "state", rounding="low", options=Options(autocast=True))
def low_precision_columns_scaled(run: Run) -> None:
    """A quarter of a weight's columns are twice as large, under autocast; all kernels round otherwise."""
    run.set("transformer.h.0.mlp.c_fc.weight", lambda w: w[:, :16].mul_(2))
    run.inside("transformer.h.0.mlp.c_fc")


@case(OUTSIDE_MORE, "lstm", "d", "state", rounding="ulp")
def gates_in_another_order(run: Run) -> None:
    """Two gates of a cell are stored in another order."""
    run.set("cell.weight_hh", lambda w: more.blocks_exchanged(w, 1, 2))
    run.inside("cell")


@case(OUTSIDE_MORE, "t5", "d", "state accumulate", rounding="double", steps=2, options=replace(SGD, clip=0.5))
def tied_gradient_too_large_before_clipping(run: Run) -> None:
    """The gradient of a tied weight is three times too large when gradients are clipped."""
    shared = run.model.get_parameter("shared.weight")

    def grow() -> None:
        assert shared.grad is not None
        shared.grad.mul_(3.0)

    run.after_backward(0, 0, grow)
    run.inside("encoder.embed_tokens")


@case(OUTSIDE_MORE, "gpt2", "d", "state", rounding="split", steps=2, options=replace(SGD, scale=1024.0))
def step_skipped(run: Run) -> None:
    """The first update is skipped, as after an overflow of scaled gradients."""
    original = run.optimizer.step
    run.optimizer.step = lambda: original() if run.step else None  # type: ignore[method-assign]
    run.applied += 1
    run.inside("transformer.wte")


@case(OUTSIDE_MORE, "mixtral", "d", "state", rounding="split", steps=2, options=SGD)
def expert_not_updated(run: Run) -> None:
    """One expert's weights miss an update."""
    path = "model.layers.0.mlp.experts.gate_up_proj"
    first = run.model.get_parameter(path).detach().clone()
    run.set(path, lambda w: w[1].copy_(first[1]), step=1)
    run.inside("model.layers.0.mlp.experts", "linear")
    run.entry("Module.model.layers.0.mlp.experts.MixtralExperts.forward.0")


# (e) Communication.


@case(OUTSIDE_MORE, "parallel", "e", "introduced output", rounding="double", steps=2, options=SGD)
def sum_wrong_in_the_second_step(run: Run) -> None:
    """all_reduce counts half of what the second rank gave, in the second step."""
    run.collective("allreduce", 1, lambda x: x.mul_(0.5), rank=1)
    run.entry("Distributed.all_reduce.0.forward")


@case(OUTSIDE_MORE, "parallel", "e", "glue output", rounding="split")
def sent_before_it_was_written(run: Run) -> None:
    """What the second rank sends is overwritten between two calls."""

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        if run.rank == 1:
            quietly(lambda: y.data[0].mul_(1.01))
            run.consumers(y)
        return y

    run.forward("down", change)
    run.applied += 1
    run.entry("Module.down.Linear.forward.0")
