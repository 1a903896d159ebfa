"""The gradient of a parameter against the sum of the gradients of its uses, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from msprobe import _core
from msprobe.precheck.culprit_calls import (
    PROBE_STEP,
    SIXTEEN,
    Side,
    execute,
    in_float_roundoffs,
    prepare,
    probe,
    raised,
    refuse_missing,
)
from msprobe.precheck.culprit_work import PROBES, score
from msprobe.precheck.inputs import Unsupported
from msprobe.precheck.precision import flat_tensors


def parameter_score(side: Side, job: dict[str, Any]) -> dict[str, Any]:
    """Compare a recorded gradient with the sum of the gradients of its uses in float64.

    Raises:
        Unsupported: Some use cannot be replayed.
    """
    maker = side.maker(job["key"], "")
    record = {"type": "torch.Tensor", "dtype": job["dtype"], "shape": job["shape"], "data_name": job["data_name"]}
    y = maker._tensor(record, "gradient")
    uses = [Use(side, name, leaf) for name, leaf in job["uses"]]
    if not uses:
        raise Unsupported("no_use: no recorded call used the parameter")
    total = sum_of(use.gradient(None) for use in uses)
    if total.shape != y.shape:
        raise Unsupported("other_form: the gradient has another shape than the parameter")
    signs = torch.Generator().manual_seed(1)
    squares = torch.zeros_like(total)
    for _ in range(PROBES):
        squares += (sum_of(use.gradient(signs) for use in uses) - total) ** 2
    condition = (squares / PROBES).sqrt() / PROBE_STEP
    terms = max(use.terms(y.numel()) for use in uses)
    kappa = _core.culprit_parameter_kappa(terms)
    if any(use.sixteen for use in uses):  # a product in 16 bits, whatever type the sum is kept in
        kappa *= in_float_roundoffs(torch.bfloat16)
    return score(job["key"].split(":")[1], y, total, None, condition, kappa)


def sum_of(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """The sum of at least one tensor."""
    total: torch.Tensor | None = None
    for part in parts:
        total = part if total is None else total + part
    assert total is not None
    return total


class Use:
    """One call that a parameter entered."""

    def __init__(self, side: Side, name: str, leaf: str) -> None:
        """`leaf`: the place of the parameter among the arguments, "input.1"."""
        self._prepared = prepare(side, name)
        record = self._prepared.call.backward
        if record is None:
            raise Unsupported("no_gradient: a use has no recorded gradient")
        maker = side.maker(name, "")
        refuse_missing(record.get("input"))
        self._arrived = [g for g in maker.gradients(record) if g is not None]
        self._path = leaf.split(".")[1:]
        if len(flat_tensors([t for _, t in self._prepared.outputs])) != 1 or len(self._arrived) != 1:
            raise Unsupported("other_form: a use has several results")

    @property
    def sixteen(self) -> bool:
        """Was the gradient computed in a 16-bit type?"""
        return self._prepared.autocast is not None or self._arrived[0].dtype in SIXTEEN

    def terms(self, count: int) -> float:
        """Terms of the sum that is one element of the gradient."""
        return max(1.0, self._arrived[0].numel() / max(1, count))

    def gradient(self, signs: torch.Generator | None) -> torch.Tensor:
        """The gradient of this use in float64; with `signs` of changed inputs."""
        arguments = self._prepared.arguments
        copy = raised(arguments, self._prepared.autocast, signs, grad=False)
        place: Any = copy.args if self._path[0].isdigit() else copy.kwargs
        keys: list[Any] = [int(k) if k.isdigit() else k for k in self._path]
        for key in keys[:-1]:
            place = place[key]
        parameter = place[keys[-1]].detach().requires_grad_(True)
        place[keys[-1]] = parameter
        output = flat_tensors(execute(self._prepared.functions[0], copy, grad=True))
        arrived = self._arrived[0].to(torch.float64)
        if signs is not None:
            arrived = probe(arrived, signs)
        found: torch.Tensor = torch.autograd.grad(output[0], parameter, arrived.reshape(output[0].shape))[0]
        return found
