"""`compiled: "leaf"`: modules made by torch.compile run compiled, seen from outside only (decisions.md 54)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch import nn


def compiled_class() -> Any:
    """The class of the modules that torch.compile makes; None as long as Dynamo is not loaded."""
    return getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile made this module."""
    made = compiled_class()
    return made is not None and isinstance(module, made)


class CompiledLeaves:
    """While a compiled module runs, interception is set aside: Dynamo must find torch as it was when it compiled."""

    def __init__(self, aside: list[Any]) -> None:
        """`aside`: the parts to take away, in the order of their installation."""
        self._aside = aside
        self._class: Any = None
        self._original: Callable[..., Any] | None = None
        self._depth = 0
        self.used = False

    def install(self) -> None:
        """Wrap the call of compiled modules; those made later are of the same class once Dynamo is loaded."""
        made = compiled_class()
        if made is None or self._class is not None:
            return
        self._class, self._original = made, made.__call__
        original = made.__call__

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.used = True
            self._leave()
            try:
                return original(module, *args, **kwargs)
            finally:
                self._return()

        made.__call__ = call

    def _leave(self) -> None:
        self._depth += 1
        if self._depth == 1 and self._class is not None:
            for part in reversed(self._aside):
                part.uninstall()

    def _return(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._class is not None:
            for part in self._aside:
                part.install()

    def uninstall(self) -> None:
        """Put the call of before back."""
        if self._class is not None:
            self._class.__call__ = self._original
            self._class = self._original = None
