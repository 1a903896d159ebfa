"""How a run is changed: wrong kernels, other kernels, wrong programs, and the record of where that was done.

Two modes do the work. `Calls` (a function mode) counts API calls by name, so that a fault can say "the third layer_norm
of the step". `Kernels` (a dispatch mode, below autograd and below what is recorded) changes the result of an operator
inside that call, or inside its node of the backward pass, so that the recorded entry keeps its name and arguments and
only its result is wrong, as on another device. What was changed is noted as the truth of the case: which call, counted
here, and the bytes it returned, so that the entry of the dump can be checked against them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from low import in_pieces
from models import Batch, Options
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Change = Callable[[tuple[Any, ...], torch.Tensor], torch.Tensor]  # (arguments of the operator, its result) -> result
KINDS = ("argument", "structure", "introduced", "state", "glue", "wired", "accumulate", "output")
ROUNDINGS = ("none", "double", "split", "ulp", "mkldnn", "threads", "low")  # low: in double, in 16 bits as in `low`


@dataclass(frozen=True)
class Case:
    """One run of the corpus beside its golden run."""

    name: str
    what: str
    net: str
    prepare: Callable[[Run], None]
    group: str = ""  # of culprit.md section 6: a to e; "clean"
    kinds: frozenset[str] = frozenset()
    steps: int = 1
    rounding: str = "none"  # how the kernels of the target round
    options: Options = field(default_factory=Options)  # of the golden run
    target: Options | None = None  # of the target, where they differ
    evidence: str = "light"  # of tensor and sketch dumps; statistics alone are always taken with the default

    @property
    def clean(self) -> bool:
        """Whether silence is expected."""
        return self.group == "clean"

    @property
    def golden(self) -> str:
        """A name for the golden run that this case is compared with."""
        facts = repr((self.net, self.steps, self.options))
        return f"{self.net}-{self.steps}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def key_of(name: str) -> str:
    """The name under which calls are counted: spellings of one operator share a number line (`add`, `__radd__`)."""
    bare = name.strip("_")
    operators = {"truediv": "div", "itruediv": "div", "rtruediv": "div", "rdiv": "div", "idiv": "div"}
    if bare in operators:
        return operators[bare]
    for prefix in ("r", "i"):
        if name.startswith("__") and bare[:1] == prefix and bare[1:] in ("add", "sub", "mul", "pow", "matmul", "or"):
            return bare[1:]
    return bare


def digest(x: torch.Tensor) -> str:
    """A hash of the elements in order."""
    flat = x.detach().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"").hexdigest()[:24]


@dataclass
class Injection:
    """A wrong result of one operator inside one call."""

    api: str
    number: int
    operator: str
    change: Change
    step: int
    backward: str  # name of the graph node for a wrong gradient, else empty
    which: int = 0  # of several results of that operator: which; for gradients: which call of the operator in the node
    item: int = 0  # of an operator with several results: which of them
    seen: int = 0
    done: int = 0


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators as another device would, and wrongly where a fault is active."""

    def __init__(self, run: Run, rounding: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run = run
        self.rounding = rounding
        self.generator = torch.Generator().manual_seed(5)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, with other rounding, then with the fault."""
        with torch._C.DisableTorchFunction():
            result = self.other(func, args, kwargs or {})
            fault = self.run.active
            if fault is not None and func.overloadpacket.__name__ == fault.operator:
                fault.seen += 1
                if fault.seen == fault.which + 1:
                    result = self.wrong(fault, args, result)
        return result

    def wrong(self, fault: Injection, args: tuple[Any, ...], result: Any) -> Any:
        """The result of the fault; memory is written in place, so that views of it are wrong as well."""
        x = result[fault.item] if isinstance(result, tuple | list) else result
        before = x.clone()
        after = fault.change(args, before.clone())
        if torch.equal(after.nan_to_num(7.0), before.nan_to_num(7.0)):
            raise RuntimeError(f"the fault in {fault.api}.{fault.number} changes nothing")
        x.copy_(after.to(x.dtype))
        fault.done += 1
        if fault.backward:
            self.run.note_tensor(x, after=f"{fault.api}.{fault.number}", backward=True)
        return result

    def other(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator with another order of summation, or with noise in the last place."""
        name = func.overloadpacket.__name__
        if self.rounding == "split" and name == "mm" and args[0].dtype == torch.float32 and args[0].shape[1] > 3:
            half = args[0].shape[1] // 3
            return func(args[0][:, :half], args[1][:half]) + func(args[0][:, half:], args[1][half:])
        if self.rounding in ("double", "split", "low") and name in IN_DOUBLE:
            pieces = in_pieces(func, args, kwargs) if self.rounding == "low" else None
            return in_double(func, args, kwargs) if pieces is None else pieces
        result = func(*args, **kwargs)
        if self.rounding == "ulp" and name in IN_DOUBLE:
            first = result[0] if isinstance(result, tuple) else result
            if torch.is_tensor(first) and first.dtype == torch.float32:
                sign = torch.randint(-1, 2, first.shape, generator=self.generator)
                first.mul_(1 + sign * 2.0**-23)
        return result


IN_DOUBLE = {
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "native_layer_norm", "native_batch_norm",
    "native_layer_norm_backward", "_softmax", "_log_softmax", "_softmax_backward_data", "sum", "mean", "gelu",
    "gelu_backward", "silu", "tanh", "sigmoid", "rsqrt", "exp",
}  # fmt: skip


def in_double(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator in float64, rounded once; what writes into its arguments or is not float32 runs as it is."""
    tensors = [a for a in args if torch.is_tensor(a) and a.is_floating_point()]
    other = any(a.dtype != torch.float32 for a in tensors)
    if not tensors or other or func.overloadpacket.__name__ == "native_batch_norm":
        return func(*args, **kwargs)
    wide = [a.double() if torch.is_tensor(a) and a.is_floating_point() else a for a in args]
    result = func(*wide, **{k: v for k, v in kwargs.items() if k != "dtype"})
    if isinstance(result, tuple):
        return tuple(r.float() if torch.is_tensor(r) and r.dtype == torch.float64 else r for r in result)
    return result.float()


class Calls(TorchFunctionMode):
    """Counts the API calls of a step by name and opens the place of a fault."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call; arguments and results are those of the script."""
        name = key_of(getattr(func, "__name__", ""))
        run = self.run
        number = run.counts.get(name, 0)
        run.counts[name] = number + 1
        here = [f for f in run.injections if (key_of(f.api), f.number, f.step) == (name, number, run.step)]
        forward = [f for f in here if not f.backward]
        run.active = forward[0] if forward else None
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            run.active = None
        for fault in here:
            if not isinstance(result, torch.Tensor | tuple):
                raise RuntimeError(f"{fault.api}.{fault.number} returns {type(result).__name__}")
            first = result if isinstance(result, torch.Tensor) else result[0]
            with torch._C.DisableTorchFunction():
                if fault.backward:
                    self.run.open_backward(fault, first)
                else:
                    run.note_call(fault, first)
        return result


@dataclass
class Run:
    """A run that is being changed. Faults call its methods; recording calls the rest."""

    net: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rank: int = 0
    step: int = -1
    applied: int = 0  # how often something was changed
    counts: dict[str, int] = field(default_factory=dict)
    injections: list[Injection] = field(default_factory=list)
    active: Injection | None = None
    truth: list[dict[str, Any]] = field(default_factory=list)
    begins: list[Callable[[int], None]] = field(default_factory=list)
    gradients: list[Callable[[int, int], None]] = field(default_factory=list)  # (step, micro step), after backward
    data: list[Callable[[int, Batch], Batch]] = field(default_factory=list)

    # What faults call.

    def kernel(
        self, api: str, number: int, operator: str, change: Change, step: int = 0, which: int = 0, item: int = 0
    ) -> None:
        """A wrong result of `operator` inside the forward call `api` with this number in this step."""
        self.injections.append(Injection(api, number, operator, change, step, "", which, item))

    def gradient(
        self, api: str, number: int, node: str, operator: str, change: Change, which: int = 0, item: int = 0
    ) -> None:
        """A wrong result of `operator` inside the backward node `node` of that forward call (step 0)."""
        self.injections.append(Injection(api, number, operator, change, 0, node, which, item))

    def begin(self, step: int, action: Callable[[], Any]) -> None:
        """Do something before the step, unrecorded."""

        def act(now: int) -> None:
            if now == step:
                action()
                self.applied += 1

        self.begins.append(act)

    def after_backward(self, step: int, micro: int, action: Callable[[], None]) -> None:
        """Do something after one backward pass, unrecorded."""

        def act(now: int, part: int) -> None:
            if (now, part) == (step, micro):
                with torch._C.DisableTorchFunction():
                    action()
                self.applied += 1

        self.gradients.append(act)

    def batch(self, step: int, change: Callable[[Batch], Batch]) -> None:
        """Change the data of one step."""

        def act(now: int, data: Batch) -> Batch:
            if now != step:
                return data
            self.applied += 1
            with torch._C.DisableTorchFunction():
                return change(data)

        self.data.append(act)

    def forward(self, path: str, wrapper: Callable[..., Any], once: int | None = None) -> None:
        """Replace the forward of a module by wrapper(original, *arguments); `once`: only in this call of it."""
        module = self.model.get_submodule(path)
        original = module.forward
        calls = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if once is not None and calls - 1 != once:
                return original(*args, **kwargs)
            self.applied += 1
            return wrapper(original, *args, **kwargs)

        module.forward = forward

    def set(self, path: str, change: Callable[[torch.Tensor], Any], step: int = 0) -> None:
        """Change a parameter or buffer before the step."""

        def action() -> None:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
                before = named[path].clone()
                change(named[path])
                if torch.equal(before, named[path]):
                    raise RuntimeError(f"{path} is not changed")

        self.begin(step, action)

    def collective(self, method: str, number: int, change: Callable[[torch.Tensor], Any], rank: int) -> None:
        """What this rank hands to the n-th call of a collective (a method of ProcessGroup) is changed on its way."""
        if self.rank != rank:
            self.applied += 1  # there
            return
        original = getattr(dist.ProcessGroup, method)
        calls = 0

        def call(group: Any, tensors: list[Any], *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 != number:
                return original(group, tensors, *args)
            self.applied += 1
            with torch._C.DisableTorchFunction():
                where = args[0] if method == "allgather" else tensors
                sent = [x.clone() for x in where]
                change(sent[0])
                if method == "allgather":
                    return original(group, tensors, sent, *args[1:])
                work = original(group, sent, *args)
                work.wait()
                for x, y in zip(where, sent, strict=True):
                    x.copy_(y)
            return work

        setattr(dist.ProcessGroup, method, call)

    # The truth: where it is introduced.

    def entry(self, *names: str) -> None:
        """Entries by name; both dumps are searched."""
        self.truth.extend({"entry": name} for name in names)

    def inside(self, path: str, *apis: str, backward: bool = False, value: object = None) -> None:
        """A module with the calls made directly in it.

        With `apis` only calls of those names, and not the module; with `value` only calls that have this argument.
        """
        names = [key_of(a) for a in apis]
        self.truth.append({"module": path, "apis": names, "backward": backward, "value": value})

    def consumers(self, x: torch.Tensor, skip: int = 0) -> None:
        """The first call that takes this tensor, and the modules that it enters before that."""
        with torch._C.DisableTorchFunction():
            self.truth.append({"consumers": digest(x), "skip": skip, "step": max(self.step, 0)})

    def consumer_of(self, x: torch.Tensor) -> torch.Tensor:
        """As `consumers`, handing the tensor on."""
        self.consumers(x)
        return x

    def note_call(self, fault: Injection, result: torch.Tensor) -> None:
        """The call of a fault: its name, its number here, and what it returned."""
        self.truth.append(
            {"call": key_of(fault.api), "number": fault.number, "step": fault.step, "digest": digest(result)}
        )

    def note_tensor(self, x: torch.Tensor, after: str, backward: bool) -> None:
        """The bytes of a wrong gradient; entries that return it, and the first that takes it, are acceptable."""
        api, number = after.rsplit(".", 1)
        self.truth.append({"call": key_of(api), "number": int(number), "step": 0, "gradient": digest(x)})

    # What recording calls.

    def open_backward(self, fault: Injection, result: torch.Tensor) -> None:
        """Make the fault active while its node of the backward pass runs."""
        node = result.grad_fn
        while node is not None and node.name() != fault.backward:
            node = next((n for n, _ in node.next_functions if n is not None), None)
        if node is None:
            raise RuntimeError(f"no {fault.backward} behind {fault.api}.{fault.number} ({result.grad_fn})")

        def enter(*gradients: Any) -> None:
            self.active = fault

        def leave(*gradients: Any) -> None:
            self.active = None

        node.register_prehook(enter)
        node.register_hook(leave)

    def start(self, step: int) -> None:
        """A new step begins."""
        self.step = step
        self.counts = {}
        for act in self.begins:
            act(step)

    def check(self) -> None:
        """Raise when the fault was not applied."""
        missed = [f"{f.api}.{f.number}" for f in self.injections if f.done == 0]
        if missed:
            raise RuntimeError(f"never reached: {', '.join(missed)}; calls were {self.counts}")
        if not self.injections and self.applied == 0:
            raise RuntimeError("the fault was never applied")


def case(
    into: list[Case], net: str, group: str, kinds: str = "", **more: Any
) -> Callable[[Callable[[Run], None]], Any]:
    """Enter a function that changes a run as a case; its name and the first line of its docstring name the case."""

    def enter(prepare: Callable[[Run], None]) -> Callable[[Run], None]:
        what = (prepare.__doc__ or "").strip().splitlines()[0].rstrip(".")
        name = prepare.__name__.replace("_", "-")
        into.append(Case(name, what, net, prepare, group, frozenset(kinds.split()), **more))
        return prepare

    return enter
