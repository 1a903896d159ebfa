"""The score of one direction of a call: its recorded results against the same call in float64."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch

from msprobe import _core
from msprobe.precheck.culprit_calls import (
    PROBE_STEP,
    SIXTEEN,
    Prepared,
    Side,
    execute,
    in_float_roundoffs,
    native_call,
    own,
    probe,
    raised,
    records,
    refuse_missing,
)
from msprobe.precheck.functions import Function
from msprobe.precheck.inputs import Unsupported
from msprobe.precheck.precision import Copy, flat_tensors
from msprobe.precheck.random_ops import dropout_share, is_random

PROBES = 4
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Norms: what their means run over.
_BY_CHANNEL = frozenset(("batch_norm", "native_batch_norm", "instance_norm", "group_norm"))
_BY_ROW = frozenset(("layer_norm", "native_layer_norm", "rms_norm", "normalize"))
_DROPOUT = frozenset(("dropout", "dropout_"))
# Elementwise, with derivatives of at most about 1 that kernels make of a rounded result or of rounded parts.
_SATURATING = ("tanh", "tanh_", "sigmoid", "sigmoid_", "logsigmoid", "hardswish", "hardsigmoid", "softplus")
_ACTIVATIONS = frozenset((*_SATURATING, "silu", "gelu", "mish", "elu", "elu_", "selu", "celu"))


class Work:
    """One direction of a call: its recorded results, and ways to compute them again."""

    def __init__(self, prepared: Prepared) -> None:
        """Nothing is run yet."""
        self.prepared = prepared
        self.recorded: list[tuple[str, torch.Tensor | None]] = []
        self._function: Function | None = None

    def reference(self, signs: torch.Generator | None = None) -> list[torch.Tensor | None]:
        """The results in float64."""
        raise NotImplementedError

    def native(self) -> list[torch.Tensor | None]:
        """The results in the recorded types on the CPU."""
        raise NotImplementedError

    def sizes(self) -> list[int]:
        """Elements of everything that entered."""
        return [t.numel() for t in self.prepared.arguments.tensors() if t.is_floating_point() or t.is_complex()]

    def leaves(self, limit: float) -> list[dict[str, Any]]:
        """Scores of all results: first without probes, then with them where that shows something.

        Raises:
            Unsupported: Results of another form than recorded: not comparable.
        """
        native = self._native_or_none()
        if native is not None and self._all_equal(native):
            # The same bits as the CPU's own: |y - r| / (u |r| + 2 |y - r|) is at most a half.
            return [leaf_of(name, 0.0) for name, y in self.recorded if y is not None]
        reference = self.reference()
        check_form(self.recorded, reference)
        first = [self._score(i, reference, native, None) for i in range(len(self.recorded))]
        if all(s["score"] <= limit / 2 for s in first if s):
            return [s for s in first if s]
        conditions = self._conditions(reference)
        return [s for i in range(len(self.recorded)) if (s := self._score(i, reference, native, conditions))]

    def _native_or_none(self) -> list[torch.Tensor | None] | None:
        try:
            native = self.native()
            check_form(self.recorded, native)
        except Exception:  # no kernel for the type, or another form: no second opinion
            return None
        return native

    def _all_equal(self, native: list[torch.Tensor | None]) -> bool:
        return all(
            y is None or (n is not None and n.dtype == y.dtype and torch.equal(n, y))
            for (_, y), n in zip(self.recorded, native, strict=True)
        )

    def _conditions(self, reference: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        signs = torch.Generator().manual_seed(1)
        sums: list[torch.Tensor | None] = [None] * len(reference)
        for _ in range(PROBES):
            for i, (r, p) in enumerate(zip(reference, self.reference(signs), strict=True)):
                if r is None or p is None or not (r.is_floating_point() or r.is_complex()):
                    continue
                d = real(p) - real(r)
                square = d * d
                before = sums[i]
                sums[i] = square if before is None else before + square
        return [None if s is None else (s / PROBES).sqrt() / PROBE_STEP for s in sums]

    def _score(
        self,
        i: int,
        reference: list[torch.Tensor | None],
        native: list[torch.Tensor | None] | None,
        conditions: list[torch.Tensor | None] | None,
    ) -> dict[str, Any] | None:
        name, y = self.recorded[i]
        r = reference[i]
        if y is None or r is None:
            return None
        if not (y.is_floating_point() or y.is_complex()):
            return leaf_of(name, exact_score(y, r))
        n = None if native is None else native[i]
        kappa = _core.culprit_kappa(self.prepared.last, self._terms(y), y.dtype in SIXTEEN)
        if y.dtype in SIXTEEN and _core.culprit_is_product(self.prepared.last):
            # Devices may round parts of a sum to 16 bits and add those up (split k, a bias afterwards).
            kappa += in_float_roundoffs(y.dtype)
        return score(name, y, r, n, None if conditions is None else conditions[i], kappa)

    def _terms(self, y: torch.Tensor) -> float:
        """Length of the sums behind a result."""
        last, tensors = self.prepared.last, self.prepared.arguments.tensors()
        if last in _BY_CHANNEL and tensors and tensors[0].dim() > 1:
            return tensors[0].numel() / max(1, tensors[0].shape[1])
        if last in _BY_ROW and tensors and tensors[0].dim():
            return float(max(tensors[0].shape[-1], tensors[0].numel() / max(1, y.numel())))
        sizes = sorted(self.sizes(), reverse=True)
        count = max(1, y.numel())
        if not sizes:
            return 1.0
        if len(sizes) > 1 and _core.culprit_is_product(self.prepared.last):
            return math.sqrt(sizes[0] * sizes[1] / count)
        return sizes[0] / count


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex elements as two."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def check_form(recorded: list[tuple[str, torch.Tensor | None]], found: list[torch.Tensor | None]) -> None:
    """Number and shapes must be those of the record.

    Raises:
        Unsupported: They are not.
    """
    if len(recorded) != len(found):
        raise Unsupported("other_form: another number of results than recorded")
    for (name, y), f in zip(recorded, found, strict=True):
        if (y is None) != (f is None):
            raise Unsupported(f"other_form: {name} is there on one side only")
        if y is not None and f is not None and y.shape != f.shape:
            raise Unsupported(f"other_form: {name} has another shape than recorded")


def leaf_of(name: str, value: float) -> dict[str, Any]:
    """A leaf that needed no figures."""
    return {"leaf": name, "score": value, "rms": value, "introduced": 0.0, "norm": 0.0}


def exact_score(y: torch.Tensor, r: torch.Tensor) -> float:
    """Integers and bools agree or do not."""
    if r.dtype.is_floating_point:
        return 0.0
    return 0.0 if torch.equal(y, r.to(y.dtype)) else math.inf


def score(
    name: str,
    y: torch.Tensor,
    r: torch.Tensor,
    n: torch.Tensor | None,
    condition: torch.Tensor | None,
    kappa: float,
) -> dict[str, Any]:
    """The score of one floating result."""
    y = real(y).contiguous()
    r = real(r).to(torch.float64).contiguous()
    if y.dtype not in _FLOATS:
        y = y.to(torch.float32)
    if n is not None:
        n = real(n).contiguous()
        if n.dtype not in _FLOATS:
            n = n.to(torch.float32)
    a = None if condition is None else condition.contiguous()
    row = y.shape[-1] if y.dim() and y.shape[-1] else 1
    value, rms, introduced, norm = _core.culprit_score(
        (y.data_ptr(), str(y.dtype)),
        r.data_ptr(),
        None if n is None else (n.data_ptr(), str(n.dtype)),
        0 if a is None else a.data_ptr(),
        (y.numel(), row),
        kappa,
    )
    return {"leaf": name, "score": value, "rms": rms, "introduced": introduced, "norm": norm}


class Forward(Work):
    """The results of a call."""

    def __init__(self, prepared: Prepared) -> None:
        """Recorded results are those of the entry."""
        super().__init__(prepared)
        if not prepared.outputs:
            raise Unsupported("no_output: no result was recorded")
        self.recorded = list(prepared.outputs)
        args = prepared.arguments
        self._share = dropout_share(args.args, args.kwargs) if prepared.last in _DROPOUT else None
        if self._share is None and is_random(prepared.last, args.args, args.kwargs):
            raise Unsupported("random: the call draws numbers")

    def reference(self, signs: torch.Generator | None = None) -> list[torch.Tensor | None]:
        """In float64."""
        copy = raised(self.prepared.arguments, self.prepared.autocast, signs, grad=False)
        if self._share is not None:
            return [dropped(copy.args[0], self.recorded[0][1], self._share)]
        for function in self.prepared.functions:
            try:
                found = list(flat_tensors(execute(function, copy, grad=False)))
                check_form(self.recorded, list(found))
            except Exception:
                if function is self.prepared.functions[-1]:
                    raise
                copy = raised(self.prepared.arguments, self.prepared.autocast, signs, grad=False)
                continue
            self._function = function
            return list(found)
        raise Unsupported("unknown_function: none fits")

    def native(self) -> list[torch.Tensor | None]:
        """On the CPU."""
        if self._share is not None:
            return [dropped(self.prepared.arguments.tensors()[0], self.recorded[0][1], self._share)]
        function = self.prepared.functions[0]
        return list(flat_tensors(native_call(self.prepared, function, grad=False)))


def dropped(x: torch.Tensor, y: torch.Tensor | None, share: float) -> torch.Tensor:
    """What dropout makes of x, given which elements it kept."""
    assert y is not None
    return torch.where(y != 0, x / (1 - share) if share < 1 else x * 0, torch.zeros_like(x))


class Backward(Work):
    """The gradients of a call, as its record has them."""

    def __init__(self, side: Side, prepared: Prepared) -> None:
        """Gradients that arrived, and those that left."""
        super().__init__(prepared)
        record = prepared.call.backward
        if record is None:
            raise Unsupported("no_gradient: no gradient was recorded")
        args = prepared.arguments
        if is_random(prepared.last, args.args, args.kwargs) or (
            prepared.last in _DROPOUT and dropout_share(args.args, args.kwargs)
        ):
            raise Unsupported("random: the call draws numbers")
        maker = side.maker(prepared.call.name, "")
        refuse_missing(record.get("input"))
        self._arrived = maker.gradients(record)
        self._by_argument = record.get("layout") == "arguments"
        output = record.get("output")
        if not isinstance(output, list):
            raise Unsupported("no_gradient: no gradient that left was recorded")
        flat: list[tuple[str, torch.Tensor | None]] = []
        for i, value in enumerate(output):
            parts = value if isinstance(value, list) else [value]
            for k, v in enumerate(parts):
                name = f"output.{i}.{k}" if isinstance(value, list) else f"output.{i}"
                found = records(maker, v, name) if isinstance(v, dict) else []
                if found:
                    flat.append(found[0])
                elif self._by_argument:
                    flat.append((name, None))
        self.recorded = flat
        if not any(t is not None for _, t in flat):
            raise Unsupported("no_gradient: no gradient that left was recorded")
        first_output = next((t for _, t in prepared.outputs), None)
        first_input = next(iter(prepared.arguments.tensors()), None)
        if (
            first_output is not None
            and first_input is not None
            and first_output.dtype == first_input.dtype
            and first_output.shape == first_input.shape
            and len(prepared.outputs) == 1
            and prepared.last not in ("relu", "relu_", "threshold", "hardtanh", "clamp")
            and torch.equal(first_output, first_input)
        ):
            raise Unsupported("no_op: the call handed its input on; the gradient is its producer's")

    def sizes(self) -> list[int]:
        """Arguments and gradients that arrived."""
        return super().sizes() + [g.numel() for g in self._arrived if g is not None]

    def reference(self, signs: torch.Generator | None = None) -> list[torch.Tensor | None]:
        """In float64."""
        copy = raised(self.prepared.arguments, self.prepared.autocast, signs, grad=True)
        arrived = [
            None if g is None else g.to(torch.complex128 if g.is_complex() else torch.float64) for g in self._arrived
        ]
        if signs is not None:
            arrived = [None if g is None or g.is_complex() else probe(g, signs) for g in arrived]
        output = None
        for function in self.prepared.functions:
            try:
                output = execute(function, copy, grad=True)
                break
            except Exception:
                if function is self.prepared.functions[-1]:
                    raise
                copy = raised(self.prepared.arguments, self.prepared.autocast, signs, grad=True)
        return self._send(output, copy, arrived)

    def native(self) -> list[torch.Tensor | None]:
        """On the CPU."""
        copy = own(self.prepared, grad=True)
        with contextlib.ExitStack() as stack:
            if self.prepared.autocast is not None:
                stack.enter_context(torch.autocast("cpu", dtype=self.prepared.autocast))
            output = execute(self.prepared.functions[0], copy, grad=True)
        return self._send(output, copy, list(self._arrived))

    def _conditions(self, reference: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """As of all; for some calls also what rounding of their results does, which no change of an input shows.

        Of softmax the gradient is p (g - sum(p g)): where p is 1 both terms are equal, and their rounding is all that
        is left. That of tanh is g (1 - y y): so it is where y is nearly 1, as large as roundoff of g; other activations
        have such places too.
        """
        found = super()._conditions(reference)
        args, kwargs = self.prepared.arguments.args, self.prepared.arguments.kwargs
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        g = self._arrived[0] if len(self._arrived) == 1 else None
        p = self.prepared.outputs[0][1] if len(self.prepared.outputs) == 1 else None
        if self.prepared.last in _ACTIVATIONS and g is not None and found:
            first = found[0]
            if first is not None and first.shape == g.shape and not g.is_complex():
                found[0] = torch.maximum(first, 2 * g.double().abs())
            return found
        if self.prepared.last != "softmax" or not isinstance(dim, int) or g is None or p is None:
            return found
        if found and (first := found[0]) is not None and first.shape == p.shape == g.shape:
            weighted = (p.double() * g.double()).abs()
            found[0] = torch.maximum(first, weighted + p.double().abs() * weighted.sum(dim, keepdim=True))
        return found

    def _send(self, output: Any, copy: Copy, arrived: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        tensors = flat_tensors(output)
        if self._by_argument:
            return self._by_arguments(tensors, copy, arrived)
        if not tensors or tensors[0].grad_fn is None:
            raise Unsupported("no_gradient: the result has no gradient here")
        given = [None if g is None else g for g in arrived]
        if len(given) == 1 and given[0] is not None and given[0].shape != tensors[0].shape:
            if given[0].numel() != tensors[0].numel():
                raise Unsupported("other_form: the gradient that arrived has another shape than the result")
            given = [given[0].reshape(tensors[0].shape)]
        node = tensors[0].grad_fn
        found: Any = node(*given)  # type: ignore[operator]
        found = found if isinstance(found, tuple) else (found,)
        return [f for f in found if f is not None]

    def _by_arguments(
        self, tensors: list[torch.Tensor], copy: Copy, arrived: list[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        leaves = [*copy.positional, *copy.keyword]
        wanted = [leaf for leaf in leaves if leaf is not None]
        pairs = [(t, g) for t, g in zip(tensors, arrived, strict=False) if g is not None and t.requires_grad]
        if not pairs or not wanted:
            raise Unsupported("no_gradient: the result has no gradient here")
        gradients = torch.autograd.grad([t for t, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
        by_leaf = {id(leaf): g for leaf, g in zip(wanted, gradients, strict=True)}
        # One place per argument that is a tensor; numbers among the arguments are nulls of the record.
        found = [None if leaf is None else by_leaf[id(leaf)] for leaf in leaves]
        present = [f for f in found if f is not None]
        places = [i for i, (_, y) in enumerate(self.recorded) if y is not None]
        if len(present) != len(places):
            raise Unsupported("other_form: another number of gradients than recorded")
        out: list[torch.Tensor | None] = [None] * len(self.recorded)
        for i, f in zip(places, present, strict=True):
            out[i] = f
        return out
