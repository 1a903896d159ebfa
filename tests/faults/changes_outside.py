"""Changes that the outside part needs beside those of `changes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from changes import Arguments
from inject import Change, Run, digest, key_of


def quietly(change: Callable[..., Any], *args: Any) -> Any:
    """Call it without its being recorded, without gradients."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return change(*args)


def last_write_wins() -> Change:
    """index_add that does not add up rows with the same index."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = args[0].clone().index_copy_(args[1], args[2], args[3])
        return result

    return change


def of_neighbour(at: int) -> Change:
    """One row is that of the place after it."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        y[at] = y[at + 1]
        return y

    return change


def row(at: int, factor: float) -> Change:
    """One row, along the first axis, times a factor."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        y[at] *= factor
        return y

    return change


def wrapped(dtype: torch.dtype) -> Change:
    """Integers that ran over the end of a shorter type."""
    return lambda args, y: y.to(dtype).to(y.dtype)


def running_sum_in(dtype: torch.dtype) -> Change:
    """cumsum that keeps its sum in a shorter type."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        total, parts = torch.zeros_like(y.select(args[1], 0), dtype=dtype), []
        for t in range(y.shape[args[1]]):
            total = (total.float() + args[0].select(args[1], t).float()).to(dtype)
            parts.append(total)
        return torch.stack(parts, args[1]).to(y.dtype)

    return change


def third_choice(at: int) -> Change:
    """A top-k whose last index, for one row, is another."""

    def change(args: Arguments, y: torch.Tensor) -> torch.Tensor:
        taken = set(y[at].tolist())
        y[at, -1] = next(i for i in range(args[0].shape[-1] - 1, -1, -1) if i not in taken)
        return y

    return change


def blocks_exchanged(w: torch.Tensor, one: int, other: int, parts: int = 4) -> None:
    """Two of the equal blocks of rows of a weight change places."""
    pieces = list(w.detach().clone().chunk(parts))
    pieces[one], pieces[other] = pieces[other], pieces[one]
    w.copy_(torch.cat(pieces))


def wrong_sum(run: Run, x: torch.Tensor, api: str, number: int, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The sum of the gradients of all uses of a tensor is changed; it was returned by this call of the step."""

    def act(gradient: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            wrong = change(gradient)
            run.truth.append({"call": key_of(api), "number": number, "step": run.step, "gradient": digest(wrong)})
            run.applied += 1
        return wrong

    with torch._C.DisableTorchFunction():
        x.register_hook(act)


def wrong_gradient(run: Run, path: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The sum of the gradients of all uses of a parameter is changed before it is stored."""

    def act(gradient: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            run.applied += 1
            return change(gradient)

    run.model.get_parameter(path).register_hook(act)
