"""`MsprobeCallback` for Lightning: records training steps without a change to the module.

    trainer = Trainer(..., callbacks=[MsprobeCallback("config.json")])

Takes `lightning`, or else `pytorch_lightning`; the trainer has to be of the same package.
"""

from __future__ import annotations

import importlib
from importlib import util
from typing import Any

from msprobe.pytorch import PrecisionDebugger

_PACKAGE = "lightning.pytorch" if util.find_spec("lightning") else "pytorch_lightning"
_Callback: Any = importlib.import_module(_PACKAGE).Callback


class MsprobeCallback(_Callback):  # type: ignore[misc]
    """A batch is a step of the dump: its forward and backward pass, without the optimizer.

    Validation, testing and the sanity check before training are not recorded.
    """

    def __init__(self, config_path: str | None = None, **arguments: Any) -> None:
        """Make the debugger.

        Args:
            config_path: A config.json.
            **arguments: Others of `PrecisionDebugger`: `task`, `dump_path`, `level`, `step`.

        Raises:
            ConfigError: An argument or the file is wrong.
        """
        super().__init__()
        self._debugger = PrecisionDebugger(config_path=config_path, **arguments)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Record from here."""
        self._debugger.start(model=pl_module)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """The gradients are there."""
        self._debugger.stop()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """The next step begins."""
        self._debugger.stop()  # of batches that only add to gradients
        self._debugger.step()

    def on_exception(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Keep what is there."""
        self._debugger.stop()
