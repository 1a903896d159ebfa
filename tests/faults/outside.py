"""Faults from outside: written by somebody who had not seen the rules of the analysis or their documents.

Written from the list of kinds and from what goes wrong when a model is carried to another device, version or precision,
and committed before one of them was compared. The first half is here: wrong kernels and wrong arguments, in the nets
of `models_outside` and some old ones. The second, wiring, state and communication, is in `outside_more`; clean runs are
in `outside_clean`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import changes
import changes_outside as more
import torch
from inject import Case, Run, case
from models import Options
from outside_clean import OUTSIDE_CLEAN
from outside_more import OUTSIDE_MORE
from torch.nn import functional as F

FIRST: list[Case] = []
AUTOCAST, HALF = Options(autocast=True), Options(dtype=torch.bfloat16)
SGD = Options(optimizer="sgd", rate=0.05)


# (a) An API is wrong.


@case(FIRST, "graph", "a", "introduced output", rounding="split")
def rows_of_an_index_overwritten(run: Run) -> None:
    """Rows with the same index are written over each other instead of added up."""
    run.kernel("index_add", 1, "index_add", more.last_write_wins())


@case(FIRST, "graph", "a", "introduced output", rounding="double")
def added_up_in_half(run: Run) -> None:
    """The sums of an index_add went through float16."""
    run.kernel("index_add", 3, "index_add", changes.rounded(torch.float16))


@case(FIRST, "graph", "a", "introduced output", rounding="split")
def gathered_from_the_neighbour(run: Run) -> None:
    """A gather reads one element from the place after it."""
    run.kernel("gather", 3, "gather", more.of_neighbour(17))


@case(FIRST, "graph", "a", "introduced output", rounding="ulp")
def selected_rows_misplaced(run: Run) -> None:
    """An index_select returns, at one place, the row after it."""
    run.kernel("index_select", 0, "index_select", more.of_neighbour(60))


@case(FIRST, "graph", "a", "introduced output", rounding="double")
def selection_gradient_lost(run: Run) -> None:
    """The gradient of an index_select misses one row."""
    run.gradient("index_select", 1, "IndexSelectBackward0", "index_add", more.row(11, 0.0))


@case(FIRST, "graph", "a", "introduced output", rounding="split")
def gates_from_a_table(run: Run) -> None:
    """The gates of a cell are read from a table of 1024 steps."""
    run.kernel("gru_cell", 1, "sigmoid_", changes.table_of(1024))


@case(FIRST, "denoise", "a", "introduced output", rounding="mkldnn")
def group_norm_noisy(run: Run) -> None:
    """A group norm is off by 0.03 % in both directions."""
    run.kernel("group_norm", 2, "native_group_norm", changes.noise(3e-4))


@case(FIRST, "denoise", "a", "introduced output", rounding="double")
def enlarged_one_pixel_off(run: Run) -> None:
    """An image is enlarged one pixel to the side."""
    run.kernel("interpolate", 0, "upsample_nearest2d", changes.rolled(-1))


@case(FIRST, "denoise", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_channel_lost(run: Run) -> None:
    """A convolution under autocast does not write its last 6 %; all kernels round otherwise."""
    run.kernel("conv2d", 5, "convolution", changes.lost(0.06))


@case(FIRST, "denoise", "a", "introduced output", rounding="double")
def group_norm_gradient_too_large(run: Run) -> None:
    """The gradient that a group norm hands on is 0.2 % too large."""
    run.gradient("group_norm", 3, "NativeGroupNormBackward0", "native_group_norm_backward", changes.relative(2e-3))


@case(FIRST, "denoise", "a", "introduced output", rounding="mkldnn", steps=3, options=SGD)
def convolution_wrong_in_the_third_step(run: Run) -> None:
    """A convolution is off by 0.1 % in the third step only."""
    run.kernel("conv2d", 6, "convolution", changes.noise(1e-3), step=2)


@case(FIRST, "denoise", "a", "introduced output", rounding="ulp")
def every_fourth_silu(run: Run) -> None:
    """Every fourth call of silu is 0.1 % too small."""
    for number in (3, 7):
        run.kernel("silu", number, "silu", changes.relative(-1e-3))


@case(FIRST, "scan", "a", "introduced output", rounding="double")
def running_sum_in_half(run: Run) -> None:
    """cumsum keeps its sum in float16."""
    run.kernel("cumsum", 1, "cumsum", more.running_sum_in(torch.float16))


@case(FIRST, "scan", "a", "introduced output", rounding="split")
def running_sum_gradient(run: Run) -> None:
    """The gradient of a cumsum is 0.5 % off in both directions."""
    run.gradient("cumsum", 1, "CumsumBackward0", "cumsum", changes.noise(5e-3))


@case(FIRST, "scan", "a", "introduced output", rounding="ulp")
def one_turn_of_a_loop_noisy(run: Run) -> None:
    """One turn of a loop over time is 0.1 % off in both directions."""
    run.kernel("addcmul", 5, "addcmul", changes.noise(1e-3))


@case(FIRST, "scan", "a", "introduced output", rounding="none")
def products_overflow(run: Run) -> None:
    """Products of integers run over the end of 16 bits."""
    run.kernel("mul", 0, "mul", more.wrapped(torch.int16))


@case(FIRST, "scan", "a", "introduced output", rounding="double")
def in_place_addition_tail(run: Run) -> None:
    """An in-place addition does not reach the last 4 % of its result."""
    run.kernel("add_", 3, "add_", changes.lost(0.04))


@case(FIRST, "scan", "a", "introduced output", rounding="low", options=HALF)
def low_precision_softplus(run: Run) -> None:
    """A softplus of a bfloat16 model is 8 % too large; all kernels round otherwise."""
    run.kernel("softplus", 1, "softplus", changes.relative(0.08))


@case(FIRST, "towers", "a", "introduced output", rounding="double")
def logsumexp_noisy(run: Run) -> None:
    """A logsumexp is off by 0.1 % in both directions."""
    run.kernel("logsumexp", 0, "logsumexp", changes.noise(1e-3))


@case(FIRST, "towers", "a", "introduced output", rounding="split")
def infinite_product(run: Run) -> None:
    """One of all products of two sets of vectors is NaN."""
    run.kernel("einsum", 0, "bmm", changes.value(float("nan"), at=0.4))


@case(FIRST, "towers", "a", "introduced output", rounding="ulp")
def length_too_small(run: Run) -> None:
    """The lengths inside a normalisation are 0.02 % too small."""
    run.kernel("normalize", 1, "div", changes.relative(2e-4))


@case(FIRST, "towers", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_products_cut(run: Run) -> None:
    """One row of products under autocast is a quarter too large; all kernels round otherwise."""
    run.kernel("linear", 1, "addmm", more.row(2, 1.25))


@case(FIRST, "adversary", "a", "introduced output", rounding="mkldnn")
def transposed_convolution_tail(run: Run) -> None:
    """A transposed convolution does not write its last hundredth."""
    run.kernel("conv_transpose2d", 1, "convolution", changes.lost(0.01))


@case(FIRST, "adversary", "a", "introduced output", rounding="ulp")
def loss_of_the_last_call(run: Run) -> None:
    """The third loss is 0.05 % too large."""
    run.kernel("binary_cross_entropy_with_logits", 2, "binary_cross_entropy_with_logits", changes.relative(5e-4))


@case(FIRST, "adversary", "a", "introduced output accumulate", rounding="double")
def gradient_of_the_third_use(run: Run) -> None:
    """The gradient that the judge's first layer hands on in its third use is 1 % off."""
    run.gradient("conv2d", 4, "ConvolutionBackward0", "convolution_backward", changes.noise(1e-2))


@case(FIRST, "mixtral", "a", "introduced output", rounding="double")
def another_expert_chosen(run: Run) -> None:
    """A top-k gives one token another expert."""
    run.kernel("topk", 0, "topk", more.third_choice(9), item=1)


@case(FIRST, "vit", "a", "introduced output", rounding="low", options=HALF)
def half_model_softmax_row(run: Run) -> None:
    """A softmax of a bfloat16 model returns zeros for one image; all kernels round otherwise."""
    run.kernel("softmax", 0, "_softmax", more.row(3, 0.0))


@case(FIRST, "bert", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_gelu_gradient(run: Run) -> None:
    """The gradient of a gelu under autocast is a quarter too small; all kernels round otherwise."""
    run.gradient("gelu", 0, "GeluBackward0", "gelu_backward", changes.relative(-0.25))


@case(FIRST, "llama", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_products_summed_short(run: Run) -> None:
    """A linear layer under autocast leaves out the last of 32 terms; all kernels round otherwise."""
    run.kernel("linear", 8, "mm", changes.without_last_term())


@case(FIRST, "conv", "a", "introduced output", rounding="low", options=AUTOCAST)
def low_precision_batch_norm(run: Run) -> None:
    """A batch norm under autocast is 12 % too small; all kernels round otherwise."""
    run.kernel("batch_norm", 3, "native_batch_norm", changes.relative(-0.12))


@case(FIRST, "towers", "a", "introduced output", rounding="low", steps=2, options=replace(SGD, dtype=torch.bfloat16))
def low_precision_second_step(run: Run) -> None:
    """Products of a bfloat16 model miss their last quarter in the second step; all kernels round otherwise."""
    run.kernel("einsum", 1, "bmm", changes.lost(0.25), step=1)


@case(FIRST, "scan", "a", "introduced output", rounding="low", options=HALF)
def low_precision_softplus_gradient(run: Run) -> None:
    """The gradient of a softplus in bfloat16 is 15 % too large; all kernels round otherwise."""
    run.gradient("softplus", 0, "SoftplusBackward0", "softplus_backward", changes.relative(0.15))


@case(FIRST, "gpt2", "a", "introduced output", rounding="double")
def every_third_norm(run: Run) -> None:
    """Every third layer norm has one wrong element."""
    for number in (2, 4):
        run.kernel("layer_norm", number, "native_layer_norm", changes.element(2e-2, at=0.25))


@case(FIRST, "parallel", "a", "introduced output", rounding="split")
def gradient_of_one_rank(run: Run) -> None:
    """The gradient of a gelu is 0.5 % too large on the first rank only."""
    if run.rank == 0:
        run.gradient("gelu", 0, "GeluBackward0", "gelu_backward", changes.relative(5e-3))
    else:
        run.applied += 1


# (b) Arguments, scalars, configuration.


@case(FIRST, "denoise", "b", "argument", rounding="mkldnn")
def enlarged_otherwise(run: Run) -> None:
    """An image is enlarged bilinearly instead of by the nearest pixel."""
    model: Any = run.model
    model.larger = lambda x: F.interpolate(run.consumer_of(x), scale_factor=2.0, mode="bilinear")
    run.applied += 1


@case(FIRST, "denoise", "b", "argument", rounding="double")
def groups_halved(run: Run) -> None:
    """A group norm has two groups instead of four."""
    run.model.get_submodule("middle.norm2").num_groups = 2  # type: ignore[assignment]
    run.applied += 1
    run.inside("middle.norm2")


@case(FIRST, "denoise", "b", "argument structure wired", rounding="mkldnn")
def padded_by_reflection(run: Run) -> None:
    """A convolution pads by reflection instead of zeros."""
    path = "up.conv1"
    layer: Any = run.model.get_submodule(path)

    def change(original: Any, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.pad(run.consumer_of(x), (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias)

    run.forward(path, change)
    run.inside(path)


@case(FIRST, "towers", "b", "argument", rounding="split")
def normalised_over_the_batch(run: Run) -> None:
    """Vectors are normalised over the batch instead of their features."""
    tower: Any = run.model.get_submodule("text")
    run.forward("text", lambda original, x: F.normalize(tower.two(tower.norm(F.gelu(tower.one(x)))), dim=0))
    run.inside("text", "normalize")


@case(FIRST, "towers", "b", "argument structure", rounding="double")
def own_pair_one_off(run: Run) -> None:
    """The pairs that belong together are taken one column off."""

    def loss(output: Any, data: Any) -> torch.Tensor:
        pairs, others = output[0].float(), output[1].float()
        own = torch.cat([torch.diagonal(pairs, offset=1), pairs[3:, 0]])
        texts = torch.logsumexp(torch.cat([pairs, others], 1), 1) - own
        return (texts.mean() + (torch.logsumexp(pairs, 0) - own).mean()) / 2

    run.model.loss = loss  # type: ignore[assignment]
    run.applied += 1
    run.entry("Torch.diagonal.0.forward")


@case(FIRST, "towers", "b", "argument", rounding="ulp", steps=3, options=SGD)
def followed_too_slowly(run: Run) -> None:
    """The copy of a tower follows with 0.01 instead of 0.1."""
    run.model.follow = 0.01  # type: ignore[assignment]
    run.applied += 1
    run.entry("Tensor.lerp_.0.forward")


@case(FIRST, "scan", "b", "argument", rounding="split")
def padding_counts_in_the_loss(run: Run) -> None:
    """The loss counts padding."""

    def loss(output: torch.Tensor, data: Any) -> torch.Tensor:
        length = data["tokens"].shape[1] - 1
        logits = output.narrow(1, 0, length).float().flatten(0, 1)
        return F.cross_entropy(logits, data["tokens"].narrow(1, 1, length).flatten(), ignore_index=-100)

    run.model.loss = loss  # type: ignore[assignment]
    run.applied += 1
    run.entry("Functional.cross_entropy.0.forward")


@case(FIRST, "scan", "b", "argument wired", rounding="double")
def convolution_sees_the_next_token(run: Run) -> None:
    """A causal convolution is cut one place too late."""
    layer: Any = run.model.get_submodule("layers.1")

    def causal(x: torch.Tensor) -> torch.Tensor:
        return layer.conv(x.transpose(1, 2)).narrow(2, 1, x.shape[1]).transpose(1, 2)

    layer.causal = causal
    run.applied += 1
    run.inside("layers.1", "narrow")


@case(FIRST, "adversary", "b", "argument", rounding="mkldnn")
def slope_of_another_version(run: Run) -> None:
    """A leaky rectifier has the slope 0.01 instead of 0.2."""
    maker: Any = run.model.get_submodule("make")

    def change(original: Any, z: torch.Tensor) -> torch.Tensor:
        x = maker.norm(maker.grow(maker.enter(z).reshape(-1, 8, 4, 4)))
        return torch.tanh(maker.leave(F.leaky_relu(x, 0.01)))

    run.forward("make", change)
    run.inside("make", "leaky_relu")


@case(FIRST, "adversary", "b", "argument state structure", rounding="double", steps=2, options=SGD)
def evaluation_left_on(run: Run) -> None:
    """After an evaluation the maker's norm is not put back into training, in the second step."""
    norm = run.model.get_submodule("make.norm")
    run.begin(1, lambda: norm.eval())
    run.inside("make.norm")


@case(FIRST, "adversary", "b", "argument", rounding="low", options=AUTOCAST)
def low_precision_dilated(run: Run) -> None:
    """A convolution under autocast is dilated; all kernels round otherwise."""
    layer: Any = run.model.get_submodule("judge.conv2")
    layer.dilation, layer.padding = (2, 2), (2, 2)
    run.applied += 1
    run.inside("judge.conv2")


@case(FIRST, "parallel", "b", "argument", rounding="split")
def epsilon_of_one_rank(run: Run) -> None:
    """The norm of the second rank has another epsilon."""
    if run.rank == 1:
        run.model.get_submodule("norm").eps = 1e-3  # type: ignore[assignment]
    run.applied += 1
    run.inside("norm")


@case(FIRST, "t5", "b", "argument", rounding="double")
def epsilon_of_a_root_norm(run: Run) -> None:
    """The epsilon of a root mean square norm of the decoder is 1e-4 instead of 1e-6."""
    path = "decoder.block.1.layer.2.layer_norm"
    norm: Any = run.model.get_submodule(path)
    norm.variance_epsilon = 1e-4
    run.applied += 1
    run.inside(path, "add", value=1e-4)


OUTSIDE: list[Case] = [*FIRST, *OUTSIDE_MORE]
__all__ = ["OUTSIDE", "OUTSIDE_CLEAN"]
