"""The other half of the second set from outside: see `second`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import changes_outside as more
import models_outside  # noqa: F401
import torch
from changes_outside import quietly
from inject import Case, Run, case
from models import Batch, Options
from torch.nn import functional as F

SECOND_MORE: list[Case] = []
AUTOCAST, HALF = Options(autocast=True), Options(dtype=torch.bfloat16)
SGD = Options(optimizer="sgd", rate=0.05)


# (c) Missing, extra and reordered calls, wiring, code between calls.


@case(SECOND_MORE, "denoise", "c", "structure", rounding="double")
def activation_of_another_kind(run: Run) -> None:
    """The activation of the time is a hard swish."""
    run.forward("time.1", lambda original, x: F.hardswish(run.consumer_of(x)))
    run.inside("time.1")


@case(SECOND_MORE, "denoise", "c", "wired glue", rounding="mkldnn")
def block_without_its_time(run: Run) -> None:
    """One block gets zeros instead of the time."""

    def change(original: Any, x: torch.Tensor, t: torch.Tensor) -> Any:
        return original(x, run.consumer_of(quietly(lambda: torch.zeros_like(t))))

    run.forward("middle", change)


@case(SECOND_MORE, "scan", "c", "wired", rounding="split")
def pieces_in_another_order(run: Run) -> None:
    """Gate and decay are cut from a projection in the other order."""
    layer: Any = run.model.get_submodule("layers.0")

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        value, delta, gate = layer.inner(layer.norm(x)).chunk(3, -1)
        decay = F.softplus(delta) * -0.2
        y = layer.scan(F.silu(layer.causal(value)).to(decay.dtype), decay)
        result: torch.Tensor = layer.out(layer.drop(y * torch.sigmoid(gate)))
        return result

    run.forward("layers.0", change)
    run.inside("layers.0", "softplus", "sigmoid")


@case(SECOND_MORE, "graph", "c", "wired", rounding="ulp")
def state_of_the_layer_before(run: Run) -> None:
    """The second cell is given the state that the first was given."""
    kept: list[torch.Tensor] = []

    def keep(original: Any, y: torch.Tensor, x: torch.Tensor) -> Any:
        kept.append(x)
        return original(y, x)

    run.forward("layers.0.cell", keep)
    run.forward("layers.1.cell", lambda original, y, x: original(y, kept[0]))
    run.inside("layers.1.cell")


@case(SECOND_MORE, "towers", "c", "structure", rounding="double")
def temperature_held(run: Run) -> None:
    """The temperature is held below 4, as in another version."""
    model: Any = run.model

    def forward(tokens: torch.Tensor, seen: torch.Tensor, images: torch.Tensor) -> Any:
        a = model.text(model.pool(model.tokens(tokens), seen))
        b = model.image(images.flatten(1))
        factor = torch.clamp(run.consumer_of(torch.exp(model.scale)), max=4.0)
        pairs = model.products(a, b) * factor
        others = model.products(a, model.queue.clone().t()) * factor
        model.followed(images.flatten(1))
        return pairs, others

    model.forward = forward
    run.applied += 1


@case(SECOND_MORE, "towers", "c", "structure wired", rounding="split")
def queue_without_temperature(run: Run) -> None:
    """The products with the queue are not multiplied by the temperature."""
    model: Any = run.model

    def forward(tokens: torch.Tensor, seen: torch.Tensor, images: torch.Tensor) -> Any:
        a = model.text(model.pool(model.tokens(tokens), seen))
        b = model.image(images.flatten(1))
        factor = torch.exp(model.scale)
        pairs = model.products(a, b) * factor
        others = run.consumer_of(model.products(a, model.queue.clone().t()))
        model.followed(images.flatten(1))
        return pairs, others

    model.forward = forward
    run.applied += 1
    run.entry("Tensor.__mul__.2.forward")


@case(SECOND_MORE, "adversary", "c", "output glue", rounding="double")
def images_through_bytes(run: Run) -> None:
    """Made images take a turn through 8 bits."""

    def change(original: Any, z: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(z)
        quietly(lambda: y.data.copy_(torch.round(y.data * 127) / 127))
        return run.consumer_of(y)

    run.forward("make", change)
    run.entry("Module.make.Maker.forward.0")


@case(SECOND_MORE, "llama", "c", "structure wired argument", rounding="split")
def groups_repeated_as_a_whole(run: Run) -> None:
    """Grouped heads are repeated one after the other instead of each in its place."""
    from transformers.models.llama import modeling_llama

    path = "model.layers.1.self_attn"
    original, inside = modeling_llama.repeat_kv, [False]

    def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
        return run.consumer_of(x).repeat(1, times, 1, 1) if inside[0] else original(x, times)

    def change(attention: Any, *args: Any, **more: Any) -> Any:
        inside[0] = True
        result = attention(*args, **more)
        inside[0] = False
        return result

    modeling_llama.repeat_kv = repeated  # type: ignore[assignment]
    run.forward(path, change)
    run.inside(path, "repeat", "expand")


@case(SECOND_MORE, "conv", "c", "structure wired", rounding="mkldnn")
def block_not_rectified(run: Run) -> None:
    """The sum at the end of the first block is not rectified."""
    block: Any = run.model.get_submodule("blocks.0")

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(block.norm1(block.conv1(x)))
        return run.consumer_of(block.norm2(block.conv2(y)) + block.short(x))

    run.forward("blocks.0", change)
    run.entry("Torch.relu.2.forward", "Module.blocks.0.Residual.forward.0")


@case(SECOND_MORE, "lstm", "c", "wired output", rounding="ulp")
def states_of_a_cell_exchanged(run: Run) -> None:
    """One call of a cell hands its two states back in the other order."""
    run.forward("cell", lambda original, *args: original(*args)[::-1], once=1)
    run.entry("Module.cell.LSTMCell.forward.1", "Module.cell.LSTMCell.forward.2", "Torch.lstm_cell.2.forward")


@case(SECOND_MORE, "mixtral", "c", "structure wired", rounding="double")
def shares_not_made_one(run: Run) -> None:
    """The shares of the chosen experts are not divided by their sum."""
    path = "model.layers.1.mlp.gate"
    gate: Any = run.model.get_submodule(path)

    def change(original: Any, x: torch.Tensor) -> Any:
        logits = F.linear(x.reshape(-1, gate.hidden_dim), gate.weight)
        shares, chosen = torch.topk(F.softmax(logits.float(), dim=-1), gate.top_k, dim=-1)
        return logits, shares, chosen

    run.forward(path, change)
    run.inside(path, "sum", "div")
    run.entry(
        f"Module.{path}.MixtralTopKRouter.forward.0", "Module.model.layers.1.mlp.experts.MixtralExperts.forward.0"
    )


@case(SECOND_MORE, "gpt2", "c", "structure wired", rounding="split")
def input_scaled_once_more(run: Run) -> None:
    """The input of an attention projection is scaled once more before it."""
    run.forward("transformer.h.1.attn.c_attn", lambda original, x: original(x * 0.98))
    run.inside("transformer.h.1.attn.c_attn", "mul")
    run.entry("Module.transformer.h.1.attn.c_attn.Conv1D.forward.0")


@case(SECOND_MORE, "bert", "c", "output glue", rounding="low", options=AUTOCAST)
def low_precision_tokens_overwritten(run: Run) -> None:
    """The first two tokens of a layer's result are set to zero after its last call; all kernels round otherwise."""
    path = "bert.encoder.layer.0.output.dense"

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        quietly(lambda: y.data[:, :2].zero_())
        return run.consumer_of(y)

    run.forward(path, change)
    run.entry(f"Module.{path}.Linear.forward.0")


@case(SECOND_MORE, "t5", "c", "accumulate output introduced", rounding="double")
def gradients_of_the_encoder_added_short(run: Run) -> None:
    """The gradients that four projections send to the encoder are added up in bfloat16."""

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        more.wrong_sum(run, y, "mul", run.counts["mul"] - 1, lambda g: g.bfloat16().float())
        return y

    run.forward("encoder.final_layer_norm", change)
    run.entry("Module.encoder.dropout.Dropout.backward.1", "Module.encoder.T5Stack.backward.0")


@case(SECOND_MORE, "vit", "c", "glue", rounding="ulp")
def centred_between_two_calls(run: Run) -> None:
    """What a norm reads is moved by 0.003 before it is read."""

    def change(original: Any, x: torch.Tensor) -> Any:
        quietly(lambda: x.data.add_(3e-3 * torch.arange(x.shape[-1]).remainder(3)))
        return original(run.consumer_of(x))

    run.forward("vit.layers.1.layernorm_before", change)
    run.inside("vit.layers.1.layernorm_before")


@case(SECOND_MORE, "gpt2", "c", "glue wired", rounding="double")
def read_before_it_was_written(run: Run) -> None:
    """One token of what goes into a layer is still that of the layer before."""
    kept: list[torch.Tensor] = []

    def keep(original: Any, x: torch.Tensor, *args: Any, **rest: Any) -> Any:
        kept.append(quietly(lambda: x.detach().clone()))
        return original(x, *args, **rest)

    def change(original: Any, x: torch.Tensor, *args: Any, **rest: Any) -> Any:
        quietly(lambda: x.data[:, 5].copy_(kept[0][:, 5]))
        return original(run.consumer_of(x), *args, **rest)

    run.forward("transformer.h.0", keep)
    run.forward("transformer.h.1", change)
    run.entry("Module.transformer.h.1.GPT2Block.forward.0")


@case(SECOND_MORE, "conv", "c", "accumulate output introduced", rounding="split")
def sum_of_both_branches(run: Run) -> None:
    """The gradients of both branches of a block are added up 0.5 % too small."""

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = original(x)
        more.wrong_sum(run, y, "relu", run.counts["relu"] - 1, lambda g: g * 0.995)
        return y

    run.forward("blocks.0", change)


@case(SECOND_MORE, "lstm", "d", "accumulate state output", rounding="split", options=replace(SGD, micro=2))
def first_pass_kept_in_bfloat16(run: Run) -> None:
    """The gradient of the first pass is kept in bfloat16 until the second is added."""
    weight = run.model.get_parameter("project.weight")

    def shorten() -> None:
        assert weight.grad is not None
        weight.grad.copy_(weight.grad.bfloat16())

    run.after_backward(0, 0, shorten)
    run.entry("Module.project.Linear.parameters_grad.1")


# (d) Weights, buffers, optimizer state, data, random state.


@case(SECOND_MORE, "denoise", "d", "state", rounding="ulp")
def weight_from_eight_bits(run: Run) -> None:
    """A weight was stored in 8 bits."""

    def change(w: torch.Tensor) -> None:
        unit = w.abs().max() / 127
        w.copy_(torch.round(w / unit) * unit)

    run.set("shrink.weight", change)
    run.inside("shrink")


@case(SECOND_MORE, "graph", "d", "state", rounding="double")
def gates_of_another_framework(run: Run) -> None:
    """The first two gates of a cell are stored in the order of another framework."""
    run.set("layers.1.cell.weight_ih", lambda w: more.blocks_exchanged(w, 0, 1, parts=3))
    run.inside("layers.1.cell")


@case(SECOND_MORE, "scan", "d", "state", rounding="split", steps=3, options=SGD)
def momentum_looks_ahead(run: Run) -> None:
    """The optimizer uses Nesterov's momentum."""
    run.begin(0, lambda: run.optimizer.param_groups[0].update(nesterov=True))
    run.inside("tokens")
    run.inside("pairs")


@case(SECOND_MORE, "adversary", "d", "state argument structure", rounding="mkldnn", options=SGD)
def judge_learns_faster(run: Run) -> None:
    """The judge's optimizer has the rate 0.06 instead of 0.05."""
    rival: Any = run.model.rival
    run.begin(0, lambda: rival.param_groups[0].update(lr=0.06))
    run.entry("Tensor.add_.1.forward", "Functional.conv2d.4.forward", "Module.judge.conv1.Conv2d.forward.2")


@case(SECOND_MORE, "towers", "d", "state", rounding="double")
def copy_not_quite_a_copy(run: Run) -> None:
    """A weight of the following copy is 0.2 % too large from the beginning."""
    run.set("shadow.two.weight", lambda w: w.mul_(1.002))
    run.inside("shadow.two")
    run.entry("Tensor.lerp_.4.forward")


@case(SECOND_MORE, "vit", "d", "state", rounding="mkldnn")
def colours_in_the_other_order(run: Run) -> None:
    """The weight of the first convolution is for images with blue first."""
    path = "vit.embeddings.patch_embeddings.projection"
    run.set(f"{path}.weight", lambda w: w.copy_(w.flip(1).clone()))
    run.inside(path)


@case(SECOND_MORE, "llama", "d", "state", rounding="double")
def rows_for_another_rotation(run: Run) -> None:
    """The rows of a query weight are in the order of interleaved rotary embeddings."""
    path = "model.layers.1.self_attn.q_proj"
    run.set(f"{path}.weight", lambda w: w.copy_(w.view(4, 2, 4, 32).transpose(1, 2).reshape(32, 32).clone()))
    run.inside(path)


@case(SECOND_MORE, "bert", "d", "state", rounding="split", steps=2, options=Options(rate=1e-2))
def epsilon_of_the_optimizer(run: Run) -> None:
    """The optimizer's epsilon is 1e-3 instead of 1e-8."""
    run.begin(0, lambda: run.optimizer.param_groups[0].update(eps=1e-3))
    for kind in ("word", "token_type", "position"):
        run.inside(f"bert.embeddings.{kind}_embeddings")


@case(SECOND_MORE, "conv", "d", "state argument glue introduced wired", rounding="mkldnn")
def images_centred_otherwise(run: Run) -> None:
    """One colour of the images is centred with another mean."""

    def change(data: Batch) -> Batch:
        images = data["images"].clone()
        images[:, 1] += 0.03
        run.consumers(images)
        return {**data, "images": images}

    run.batch(0, change)


@case(SECOND_MORE, "plain", "d", "state", rounding="low", steps=2, options=replace(HALF, optimizer="sgd", rate=0.05))
def low_precision_weight_grown(run: Run) -> None:
    """A weight of a bfloat16 model is a third larger in the second step; all kernels round otherwise."""
    run.set("ups.1.weight", lambda w: w.mul_(1.33), step=1)
    run.inside("ups.1")


@case(SECOND_MORE, "towers", "d", "state", rounding="low", options=AUTOCAST)
def low_precision_norm_half_scaled(run: Run) -> None:
    """Half of the weight of a norm under autocast is 1.5 times too large; all kernels round otherwise."""
    run.set("text.norm.weight", lambda w: w[:16].mul_(1.5))
    run.inside("text.norm")


@case(SECOND_MORE, "parallel", "e", "introduced output", rounding="double")
def sum_of_ranks_in_bfloat16(run: Run) -> None:
    """all_reduce takes what the first rank gave in bfloat16."""
    run.collective("allreduce", 0, lambda x: x.copy_(x.bfloat16()), rank=0)
    run.entry("Distributed.all_reduce.0.forward")
