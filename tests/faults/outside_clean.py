"""Clean runs from outside: see `outside`. They differ from their golden run in nothing that matters."""

from __future__ import annotations

from dataclasses import replace

import torch
from changes_outside import quietly
from inject import Case, Run, case
from models import Options

OUTSIDE_CLEAN: list[Case] = []
SDPA, AUTOCAST, HALF = Options(attention="sdpa"), Options(autocast=True), Options(dtype=torch.bfloat16)
# Several steps are made with SGD where a net has gradients that are zero in exact arithmetic: see `clean`.
SGD, DROP = Options(optimizer="sgd", rate=0.05), Options(dropout=0.1)
TWICE = Options(optimizer="sgd", rate=0.05, micro=2)


def unchanged(run: Run) -> None:
    """Nothing is changed in the program."""


def harmless(name: str, what: str, net: str, rounding: str = "none", **rest: object) -> None:
    """A case whose program is that of the golden run."""
    OUTSIDE_CLEAN.append(Case(name, what, net, unchanged, "clean", rounding=rounding, **rest))  # type: ignore[arg-type]


harmless("graph-again", "the same program again", "graph", steps=2)
harmless("graph-double", "kernels in float64, rounded once", "graph", "double", options=SGD, steps=3)
harmless("graph-scatter-add", "scatter_add instead of index_add", "graph", "split", target=Options(parts=True))
harmless("graph-threads", "two threads", "graph", "threads", options=replace(SGD, micro=2), steps=2)
harmless("graph-low", "bfloat16 on both sides, all kernels round otherwise", "graph", "low", options=AUTOCAST)
harmless("denoise-no-onednn", "convolutions without oneDNN", "denoise", "mkldnn", options=SGD, steps=2)
harmless("denoise-channels-last", "the other layout on both sides: the same noise", "denoise", "double",
         options=Options(channels_last=True))  # fmt: skip
harmless("denoise-recomputed", "blocks recomputed, dropout with the same numbers", "denoise", "ulp",
         options=DROP, target=replace(DROP, recompute=True))  # fmt: skip
harmless("denoise-low", "autocast on both sides, without oneDNN", "denoise", "mkldnn", options=AUTOCAST)
harmless("denoise-half", "a bfloat16 model, all kernels round otherwise", "denoise", "low", options=HALF)
harmless("scan-closed-form", "a loop by its closed form and the other way round", "scan", "double",
         target=Options(parts=True))  # fmt: skip
harmless("scan-one-unit", "every kernel off by one unit in the last place", "scan", "ulp", options=SGD, steps=3)
harmless("scan-recomputed", "recomputed on both sides, dropout with the same numbers", "scan", "split",
         options=replace(DROP, recompute=True))  # fmt: skip
harmless("scan-accumulated", "two passes, clipping, scaled loss", "scan", "double",
         options=replace(TWICE, clip=0.5, scale=256.0), steps=2)  # fmt: skip
harmless("scan-low", "autocast on both sides, all kernels round otherwise", "scan", "low", options=AUTOCAST)
harmless("towers-split", "sums in two pieces; a queue over steps", "towers", "split", options=SGD, steps=3)
harmless("towers-from-float64", "float32 instead of float64", "towers", options=Options(dtype=torch.float64),
         target=Options())  # fmt: skip
harmless("towers-low", "a bfloat16 model, all kernels round otherwise", "towers", "low", options=HALF)
harmless("adversary-one-unit", "two optimizers, every kernel off by one unit", "adversary", "ulp", options=SGD, steps=2)
harmless("adversary-double", "two optimizers with Adam, dropout", "adversary", "double", options=DROP)
harmless("adversary-low", "autocast on both sides, without oneDNN", "adversary", "mkldnn", options=AUTOCAST)
harmless("experts-double", "experts chosen by the largest scores", "mixtral", "double")
harmless("half-model", "a bfloat16 model, all kernels round otherwise", "vit", "low", options=HALF)
harmless("low-clipped", "autocast, two passes and clipping", "bert", "low", options=replace(TWICE, autocast=True,
         clip=1.0), steps=2)  # fmt: skip
harmless("lstm-threads", "two threads, dropout with the same numbers", "lstm", "threads", options=DROP)
harmless("ranks-double", "two ranks over three steps", "parallel", "double", options=SGD, steps=3)


@case(OUTSIDE_CLEAN, "scan", "clean", rounding="split", steps=2, options=SGD)
def residuals_out_of_place(run: Run) -> None:
    """Residuals are added out of place instead of in place."""
    run.model.in_place = False  # type: ignore[assignment]


@case(OUTSIDE_CLEAN, "towers", "clean", rounding="double")
def products_without_einsum(run: Run) -> None:
    """Products by matmul instead of einsum."""
    run.model.by_einsum = False  # type: ignore[assignment]


@case(OUTSIDE_CLEAN, "conv", "clean", rounding="mkldnn", steps=2, options=SGD)
def evaluated_between_steps(run: Run) -> None:
    """An evaluation without gradients between two steps, put back into training after it."""

    def evaluate() -> None:
        run.model.eval()
        quietly(lambda: run.model(torch.zeros(2, 3, 16, 16)))
        run.model.train()

    run.begin(1, evaluate)


@case(OUTSIDE_CLEAN, "adversary", "clean", rounding="ulp", steps=2, options=SGD)
def gradients_set_to_zero(run: Run) -> None:
    """Gradients are set to zero instead of being thrown away."""
    original = run.optimizer.zero_grad
    run.optimizer.zero_grad = lambda: original(set_to_none=False)  # type: ignore[method-assign]


@case(OUTSIDE_CLEAN, "llama", "clean", rounding="split", steps=2, options=SDPA)
def optimizer_over_many_at_once(run: Run) -> None:
    """The optimizer updates all weights at once instead of one after the other."""
    run.optimizer.param_groups[0]["foreach"] = True


@case(OUTSIDE_CLEAN, "denoise", "clean", rounding="double")
def weights_elsewhere_in_memory(run: Run) -> None:
    """Weights are copied to another place in memory, in the other layout."""
    with torch.no_grad():
        for p in run.model.parameters():
            p.data = p.detach().contiguous(memory_format=torch.channels_last) if p.dim() == 4 else p.detach().clone()
