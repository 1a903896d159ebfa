"""Cost of one small intercepted call: prints `RESULT {plain_us, first_us, last_us}`.

    python call_cost.py CALLS

`torch.add` on 64 float32 at level L1, statistics, in one step; processor time of this process per call, without the
tool and in the first and the last tenth of the calls. Runs with whichever msprobe this Python has.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

import torch

from msprobe.pytorch import PrecisionDebugger


def microseconds(x: torch.Tensor, calls: int) -> float:
    begin = time.process_time()
    for _ in range(calls):
        torch.add(x, 1.0)
    return (time.process_time() - begin) / calls * 1e6


def main() -> None:
    torch.set_num_threads(1)
    calls = int(sys.argv[1])
    x = torch.ones(64)
    microseconds(x, 1000)
    plain = microseconds(x, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        debugger = PrecisionDebugger(dump_path=folder, level="L1", task="statistics")
        debugger.start()
        microseconds(x, 100)
        blocks = [microseconds(x, calls // 10) for _ in range(10)]
        debugger.stop()
        debugger.step()
    print("RESULT", json.dumps({"plain_us": plain, "first_us": blocks[0], "last_us": blocks[-1]}))


if __name__ == "__main__":
    main()
