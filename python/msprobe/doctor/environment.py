"""This machine: Python, packages, devices, folders."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any

from msprobe.doctor.findings import Findings, size

_AREA = "Environment"
_OURS = "msprobe-native"
_OLDEST_TORCH = (2, 1)
_TESTED_TORCH = (2, 13)

# Run in a process of its own: importing torch or a broken driver may take it down.
_LOOK_AT_TORCH = """
import json, torch
facts = {"version": torch.__version__, "threads": torch.get_num_threads(), "devices": []}
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        facts["devices"].append({"kind": "cuda", "name": p.name, "bytes": p.total_memory})
elif getattr(torch, "accelerator", None) and torch.accelerator.is_available():
    for i in range(torch.accelerator.device_count()):
        facts["devices"].append({"kind": torch.accelerator.current_accelerator().type, "name": "", "bytes": 0})
print(json.dumps(facts))
"""


def look(findings: Findings, build: dict[str, Any], wants_torch: bool) -> dict[str, Any]:
    """Add what there is to say of this machine; returns the facts as plain values."""
    facts: dict[str, Any] = {"build": build, "python": platform.python_version(), "platform": platform.platform()}
    where = Path(__file__).resolve().parent.parent
    findings.add(_AREA, "ok", f"msprobe {build['version']} (commit {build['commit']}) in {where}")
    old = sys.version_info < (3, 10)
    findings.add(_AREA, "problem" if old else "ok", f"Python {facts['python']} at {sys.executable}")
    best = build["usable"][0] if build["usable"] else "none"
    findings.add(_AREA, "ok", f"{os.cpu_count()} CPU cores, vector code {best}")
    facts["conflicts"] = _conflicts(findings)
    _command(findings)
    facts["torch"] = _torch(findings, wants_torch)
    _npu(findings)
    for name, why in (("numpy", "needed by the pre-check, by compare --metrics and by arrays of a result"),):
        version = _version(name)
        if version is None:
            findings.add(_AREA, "note", f"{name} is not installed: {why}")
    _launcher(findings)
    _folder(findings, Path(tempfile.gettempdir()), "temporary folder")
    _folder(findings, Path.cwd(), "working folder")
    return facts


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def other_owners() -> list[str]:
    """Installed distributions other than ours that hold a package or command `msprobe`, as "name version"."""
    out = []
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name.lower().replace("_", "-") == _OURS:
            continue
        owns = any(str(file).replace("\\", "/").startswith("msprobe/") for file in distribution.files or [])
        commands = any(point.name == "msprobe" for point in distribution.entry_points)
        if owns or commands or name.lower().replace("_", "-") == "mindstudio-probe":
            out.append(f"{name} {distribution.version}")
    return sorted(set(out))


def _conflicts(findings: Findings) -> list[str]:
    others = other_owners()
    if others:
        findings.add(
            _AREA,
            "problem",
            f"also installed here: {', '.join(others)}, which owns the name msprobe too; each overwrites the other",
            [f"pip uninstall {others[0].split()[0]} {_OURS} && pip install {_OURS}; or give each its own environment"],
        )
    else:
        findings.add(_AREA, "ok", "no other package owns the name msprobe")
    if _version(_OURS) is None:
        findings.add(_AREA, "note", f"{_OURS} is not installed by pip: this is a source tree on PYTHONPATH")
    return others


def _command(findings: Findings) -> None:
    found = shutil.which("msprobe")
    if found is None:
        findings.add(_AREA, "note", "msprobe is not on PATH: use `python -m msprobe`, or activate the environment")
        return
    here = Path(sys.executable).parent
    if Path(found).parent != here and _version(_OURS) is not None:
        text = f"`msprobe` on PATH is {found}, not the one of this Python ({here})"
        findings.add(_AREA, "warning", text)


def _torch(findings: Findings, wanted: bool) -> dict[str, Any] | None:
    missing = "problem" if wanted else "warning"
    if util.find_spec("torch") is None:
        text = "PyTorch is not installed: comparison works, collection and the pre-check do not"
        findings.add(_AREA, missing, text, ["pip install torch"])
        return None
    done = subprocess.run([sys.executable, "-c", _LOOK_AT_TORCH], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        findings.add(
            _AREA, missing, "PyTorch cannot be imported: collection and the pre-check will not work", lines[-1:]
        )
        return None
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    number = tuple(int(part) for part in facts["version"].split("+")[0].split(".")[:2] if part.isdigit())
    if number < _OLDEST_TORCH:
        findings.add(_AREA, missing, f"PyTorch {facts['version']} is older than 2.1, the oldest that is supported")
    elif number != _TESTED_TORCH:
        findings.add(_AREA, "note", f"PyTorch {facts['version']}; 2.13 is what this version was tested with")
    else:
        findings.add(_AREA, "ok", f"PyTorch {facts['version']}")
    for device in facts["devices"]:
        findings.add(_AREA, "ok", f"{device['kind']} device {device['name']} {size(device['bytes'])}")
    if not facts["devices"]:
        text = "no accelerator is seen: the pre-check needs --device cpu here; collection and comparison work"
        findings.add(_AREA, "note", text)
    return facts


def _npu(findings: Findings) -> None:
    version = _version("torch_npu")
    if version is not None:
        findings.add(_AREA, "ok", f"torch_npu {version} (used only by scripts that import it)")


def _launcher(findings: Findings) -> None:
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is not None or world is not None:
        findings.add(
            _AREA, "note", f"launcher variables are set: RANK={rank} WORLD_SIZE={world}; dumps go to rank{rank}"
        )


def _folder(findings: Findings, folder: Path, name: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        findings.add(_AREA, "problem", f"the {name} {folder} cannot be written: {error.strerror}")
        return
    findings.add(_AREA, "ok", f"{name} {folder}: {size(shutil.disk_usage(folder).free)} free")
