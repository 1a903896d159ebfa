"""Record what the original tool writes for the scripts of tests/python/capture_nets.py.

    PYTHON_WITH_UPSTREAM tools/record_upstream_names.py [SCRIPT...]

Run with an interpreter whose `msprobe` is the original package (and torch, transformers). One file per script and
level, tests/data/capture/{script}.{level}.json: versions; the names of all entries in order; per entry the number of
arguments and the names of the keywords; for module backward entries the L2 norms of input and output gradients; the
parents that construct.json names.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "capture"
LEVELS = ("L0", "L1", "mix")


def record(script: str, level: str) -> None:
    import torch

    sys.path.insert(0, str(ROOT / "tests" / "python"))
    import capture_nets

    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    config = {
        "task": "statistics",
        "dump_path": folder,
        "rank": [],
        "step": [],
        "level": level,
        "risk_level": "ALL",
        "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(config_path=str(path))
    model, step = capture_nets.SCRIPTS[script]()
    step()  # states of the optimizer exist from here on
    debugger.start(model)
    step()
    debugger.stop()
    debugger.step()
    rank = Path(glob.glob(f"{folder}/step0/*/")[0])
    data = json.loads((rank / "dump.json").read_text())["data"]
    out = {
        "tool": importlib.metadata.version("mindstudio-probe"),
        "torch": torch.__version__.partition("+")[0],
        "transformers": importlib.metadata.version("transformers"),
        "names": list(data),
        "arguments": {
            name: [len(entry["input_args"]), list(entry["input_kwargs"])]
            for name, entry in data.items()
            if "input_args" in entry
        },
        "gradients": {
            name: [[leaf and leaf["Norm"] for leaf in entry[part]] for part in ("input", "output")]
            for name, entry in data.items()
            if name.startswith("Module.") and ".backward." in name
        },
        "parents": json.loads((rank / "construct.json").read_text()),
    }
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{script}.{level}.json").write_text(json.dumps(out, indent=0) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        record(sys.argv[2], sys.argv[3])
        return
    sys.path.insert(0, str(ROOT / "tests" / "python"))
    import capture_nets

    for script in sys.argv[1:] or capture_nets.SCRIPTS:
        for level in LEVELS:
            subprocess.run([sys.executable, __file__, "--one", script, level], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
