"""Runs that differ from their golden run in nothing that matters. Silence is expected of all of them."""

from __future__ import annotations

from dataclasses import replace

import torch
from inject import Case, Run, case
from models import Options

CLEAN: list[Case] = []
EAGER, SDPA = Options(), Options(attention="sdpa")
# Several steps are made with SGD where a net has gradients that are zero in exact arithmetic: Adam makes steps of full
# size of their rounding errors. That it does is a case of its own, twice (key-bias, bias-before-norm).
SGD = Options(optimizer="sgd", rate=0.1)
AUTOCAST, HALF, DOUBLE = Options(autocast=True), Options(dtype=torch.bfloat16), Options(dtype=torch.float64)


def unchanged(run: Run) -> None:
    """Nothing is changed in the program."""


def harmless(name: str, what: str, net: str, rounding: str = "none", **more: object) -> None:
    """A case whose program is that of the golden run."""
    CLEAN.append(Case(name, what, net, unchanged, "clean", rounding=rounding, **more))  # type: ignore[arg-type]


# The same program, other kernels.
harmless("rerun", "the same program again", "bert", steps=2)
harmless("rerun-conv", "the same program again", "conv", steps=2)
harmless("threads", "two threads instead of one", "llama", "threads", options=SDPA)
harmless("threads-conv", "two threads instead of one", "conv", "threads", options=SGD, steps=2)
harmless("no-onednn-conv", "convolutions without oneDNN", "conv", "mkldnn")
harmless("no-onednn", "matrix products without oneDNN", "bert", "mkldnn")
harmless("no-onednn-lstm", "an LSTM without oneDNN", "lstm", "mkldnn")
harmless("split", "sums in two pieces", "gpt2", "split", options=SGD, steps=2)
harmless("split-experts", "sums in two pieces; experts are chosen by the largest scores", "mixtral", "split")
harmless("in-double", "kernels in float64, rounded once", "llama", "double")
harmless("in-double-t5", "kernels in float64, rounded once; embeddings tied between three places", "t5", "double")
harmless("one-unit", "every kernel off by one unit in the last place", "vit", "ulp")
harmless("one-unit-conv", "every kernel off by one unit in the last place", "conv", "ulp", options=SGD, steps=2)
harmless("one-unit-lstm", "every kernel off by one unit in the last place", "lstm", "ulp")

# Another way to the same numbers.
harmless("fused-attention", "fused attention instead of its parts", "bert", options=EAGER, target=SDPA)
harmless("fused-attention-llama", "fused attention, grouped heads", "llama", "split", options=EAGER, target=SDPA)
harmless("minus-infinity", "fused attention; masked scores are -inf", "plain", options=EAGER, target=SDPA)
harmless("written-out", "norms and linear layers by their parts", "plain", target=Options(parts=True))
harmless("put-together", "norms and linear layers by one call instead of their parts", "plain", "double",
         options=Options(parts=True), target=EAGER)  # fmt: skip
harmless("channels-last", "images in the other layout", "conv", target=Options(channels_last=True))
harmless("recomputed", "activations recomputed in the backward pass", "plain", target=Options(recompute=True))
harmless("recomputed-conv", "the same, with batch norm", "conv", "ulp", target=replace(SGD, recompute=True),
         options=replace(SGD, recompute=True), steps=2)  # fmt: skip


@case(CLEAN, "llama", "clean", options=SDPA, rounding="double")
def math_attention(run: Run) -> None:
    """Attention by its mathematical formula instead of the flash kernel."""
    torch.backends.cuda.enable_flash_sdp(False)  # the switch of the CPU kernel as well


@case(CLEAN, "gpt2", "clean")
def weights_in_other_order(run: Run) -> None:
    """The weights lie in memory the other way round."""
    with torch.no_grad():
        for p in run.model.parameters():
            if p.dim() == 2:
                p.data = p.detach().t().contiguous().t()


# Other precision.
harmless("autocast", "bfloat16 autocast on both sides, other kernels", "bert", "double", options=AUTOCAST)
harmless("autocast-vit", "the same without oneDNN", "vit", "mkldnn", options=AUTOCAST)
harmless("to-autocast", "bfloat16 autocast instead of float32", "gpt2", target=AUTOCAST)
harmless("to-bfloat16", "all of it in bfloat16 instead of float32", "plain", target=HALF)
harmless("from-float64", "float32 instead of float64", "t5", options=DOUBLE, target=EAGER)

# What goes wrong in real life without being wrong.
ACCUMULATED = replace(SGD, micro=2, clip=0.5)
harmless(
    "accumulated", "two passes per step and clipping, other kernels", "bert", "double", options=ACCUMULATED, steps=2
)
harmless(
    "dropout", "dropout with the same random numbers", "gpt2", "double", options=replace(SGD, dropout=0.1), steps=2
)
harmless("key-bias", "Adam divides gradients that are zero in exact arithmetic by their size", "plain", "split",
         options=Options(rate=1e-3, decay=0.1), steps=3)  # fmt: skip
harmless("bias-before-norm", "the same for biases in front of a batch norm", "conv", "mkldnn", steps=3)
harmless("tied-and-scaled", "tied embeddings, scaled loss, clipped gradients", "lstm", "double",
         options=Options(scale=1024.0, clip=1.0), steps=2)  # fmt: skip
harmless("clipping-inside", "clipping and Adam are recorded", "llama", "ulp", options=Options(clip=0.1, inside=True),
         steps=2)  # fmt: skip
harmless("nan-everywhere", "NaN on both sides from the first step", "plain", "double", options=Options(poison=True),
         steps=2)  # fmt: skip
harmless("two-ranks", "two ranks with collectives, other kernels", "parallel", "ulp", steps=2)
harmless("sgd", "momentum and weight decay, sums in two pieces", "llama", "split",
         options=replace(SDPA, optimizer="sgd", rate=0.1, decay=0.01), steps=3)  # fmt: skip
