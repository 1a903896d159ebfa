"""`MsprobeCallback` for `transformers.Trainer`: records steps without a change to the training loop.

trainer = Trainer(..., callbacks=[MsprobeCallback("config.json")])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from msprobe.pytorch import PrecisionDebugger


class MsprobeCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """A step of the trainer is a step of the dump: forward and backward of all its micro-batches, no optimizer.

    Step numbers are those of the trainer: a training that goes on from a checkpoint of step 100 records step 100 first.
    Evaluation is not recorded.
    """

    def __init__(self, config_path: str | None = None, **arguments: Any) -> None:
        """Make the debugger.

        Args:
            config_path: A config.json.
            **arguments: Others of `PrecisionDebugger`: `task`, `dump_path`, `level`, `step`.

        Raises:
            ConfigError: An argument or the file is wrong.
        """
        self._debugger = PrecisionDebugger(config_path=config_path, **arguments)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count from where the trainer stands."""
        self._debugger.set_init_step(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record from the first micro-batch on."""
        self._debugger.start(model=kwargs.get("model"))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients are there."""
        self._debugger.stop()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The next step begins."""
        self._debugger.stop()  # of releases without on_pre_optimizer_step
        self._debugger.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Finish what an early end left open."""
        self._debugger.stop()
