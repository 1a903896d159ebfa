"""Stand-alone scripts that replay one call: op_generate, and --reproduce on a call that failed.

Arguments are written as an expression, tensors lie in a .pt file beside the script or are drawn by it. A failing call
is shrunk first: dimensions are cut in half as long as it still fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe._files import make_folder
from msprobe.errors import ErrorCode, PrecheckError
from msprobe.precheck.console import Console
from msprobe.precheck.devices import choose_device
from msprobe.precheck.dump import Call, read_dump
from msprobe.precheck.error_data import file_name
from msprobe.precheck.functions import UnknownFunction, candidates
from msprobe.precheck.inputs import Arguments, DeviceWord, Unsupported, first_line
from msprobe.precheck.judging import quiet_warnings
from msprobe.precheck.options import Options
from msprobe.precheck.outcome import Outcome
from msprobe.precheck.replay import Prepared, Replayer, load_candidate
from msprobe.precheck.script_text import SCRIPT

_SHRINK_TRIES = 200
_SHRINK_SECONDS = 30.0
_BAD = ("error", "warning")


def reproduce(options: Options, console: Console) -> int:
    """--reproduce NAME: a script and its data for one call of the dump, shrunk when it fails here."""
    device = choose_device(options.device, options.device_ids[0], jit_compile=options.jit_compile, tf32=options.tf32)
    dump = read_dump(options.api_info)
    call = _find(dump.calls, options.reproduce, options.api_info)
    load_candidate(options.candidate)
    replayer = Replayer(options, None, device, dump.data_folder, dump.has_data_files)
    with quiet_warnings():
        prepared = _prepare(replayer, call)
        try:
            outcome, _ = replayer.judge(prepared)
        except Exception as e:  # operators raise anything: the script shows it
            raise PrecheckError(ErrorCode.UNSUPPORTED, f"--reproduce: {call.name} fails: {first_line(e)}") from None
        failed = outcome.forward in _BAD or outcome.backward in _BAD
        before = _elements(prepared.arguments)
        if failed:
            prepared = shrink(replayer, prepared, outcome)
            outcome, _ = replayer.judge(prepared)
        history = [
            f"Written by msprobe for {device.describe()}: forward {outcome.forward}, backward {outcome.backward}."
        ]
        if failed:
            history.append(
                f"Inputs: {_elements(prepared.arguments)} of the recorded {before} elements are enough to fail."
            )
        history += [line for row in outcome.rows if row.status in _BAD for line in row.message.splitlines()[:6]]
        text, data = script(replayer, prepared, options.seed, history)
    _make_folder(options.out_path)
    stem = os.path.join(options.out_path, file_name(call.name))
    _write_script(stem, text, data)
    if not failed:
        console.warning(f"{call.name} passes here: the script replays it all the same")
    console.line(f"reproduce: {call.name}: forward {outcome.forward}, backward {outcome.backward}; path {stem}.py")
    return 0


def _find(calls: list[Call], name: str, path: str) -> Call:
    for suffix in ("", ".forward", ".backward"):
        for call in calls:
            if call.name == name.removesuffix(suffix):
                return call
    raise PrecheckError(
        ErrorCode.NOT_FOUND, f"{path}: holds no call {name}; a name like Torch.matmul.0 is expected", path
    )


def _prepare(replayer: Replayer, call: Call) -> Prepared:
    try:
        return replayer.prepare(call)
    except (Unsupported, UnknownFunction) as e:
        raise PrecheckError(ErrorCode.UNSUPPORTED, f"{call.name}: {e}") from None


def _elements(arguments: Arguments) -> int:
    return sum(t.numel() for t in arguments.tensors())


def _make_folder(path: str) -> None:
    try:
        make_folder(path)
    except OSError as e:
        raise PrecheckError(ErrorCode.PERMISSION, f"{path}: {e.strerror}") from None


def _write(path: str, content: bytes) -> None:
    """A file that is there as a whole or not at all, mode 640."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
        with os.fdopen(descriptor, "wb") as f:
            f.write(content)
        os.replace(temporary, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise PrecheckError(ErrorCode.IO, f"{path}: {e.strerror}", path) from None


def _write_script(stem: str, text: str, data: dict[str, Any] | None) -> None:
    """The script, after its data."""
    if data is not None:
        buffer = io.BytesIO()
        torch.save(data, buffer)
        _write(f"{stem}.pt", buffer.getvalue())
        text = text.replace("@DATA@", repr(os.path.basename(f"{stem}.pt")))
    _write(f"{stem}.py", text.encode("utf-8", "backslashreplace"))


# ---- the script


def script(replayer: Replayer, prepared: Prepared, seed: int, history: list[str]) -> tuple[str, dict[str, Any]]:
    """The text, with @DATA@ left open, and the data: tensors of the arguments, gradients by output."""
    outcome, work = replayer.judge(prepared)
    targets = work.targets() if outcome.backward != "SKIP" else []
    tensors: list[torch.Tensor] = []
    arguments = prepared.arguments
    args = _source(arguments.args, tensors)
    kwargs = _source(arguments.kwargs, tensors)
    text = SCRIPT
    for mark, value in {
        "TITLE": f"Replays {prepared.call.name}.",
        "FILE": f"{file_name(prepared.call.name)}.py",
        "HISTORY": "".join(f"{line}\n" for line in ["", *history]).replace("\\", "\\\\").replace('"""', "'''"),
        "NAME": prepared.call.name,
        "FUNCTION": path_of(prepared),
        "SPECS": "[]",
        "GRADIENT_SPECS": "[]",
        "WANTS_GRAD": repr([i for i, t in enumerate(tensors) if id(t) in arguments.wants_grad]),
        "BACKWARD": repr(bool(targets)),
        "RAISED": repr(work.precision.reference if not prepared.bare.endswith("type_as") else None),
        "AUTOCAST": repr(work.precision.autocast),
        "RANDOM": repr(work.is_random),
        "SEED": repr(seed),
        "ITERATIONS": "1",
        "ARGS": args,
        "KWARGS": kwargs,
    }.items():
        text = text.replace(f"@{mark}@", value)
    # Plain copies: a view would drag its whole storage into the file.
    data = {
        "tensors": [t.detach().clone() for t in tensors],
        "gradients": [None if g is None else g.detach().clone() for g in targets],
    }
    return text, data


def path_of(prepared: Prepared) -> str:
    """The function as Python source; a look-up that found it before."""
    prefix = prepared.call.name.partition(".")[0]
    forward = prepared.call.forward or {}
    qualified = forward.get("qualified")
    found = candidates(prefix, prepared.bare, qualified if isinstance(qualified, str) else "")
    for path, function in found:
        if function is prepared.functions[0][0]:
            return path
    return found[0][0]


def _source(value: Any, tensors: list[torch.Tensor]) -> str:
    """A value as Python source; tensors become t[i] and are collected."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return f"t[{len(tensors) - 1}]"
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, DeviceWord):
        return "torch.device(device)"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_source(v, tensors) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_source(v, tensors)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and value - value != 0:
        return f'float("{value}")'
    if value is Ellipsis:
        return "..."
    if isinstance(
        value, (bool, int, float, complex, str, bytes, slice, torch.dtype, torch.layout, torch.memory_format)
    ):
        return repr(value)
    if value is None:
        return "None"
    if hasattr(value, "item"):  # a NumPy scalar
        return _source(value.item(), tensors)
    raise PrecheckError(ErrorCode.UNSUPPORTED, f"an argument of type {type(value).__name__} cannot be written")


# ---- shrinking


@dataclass(slots=True)
class _Given:
    """Gradients that are at hand."""

    seed: int
    kept: list[torch.Tensor | None] = field(default_factory=list)

    def gradients(self, backward: dict[str, Any]) -> list[torch.Tensor | None]:
        """The same each time."""
        return list(self.kept)


def shrink(replayer: Replayer, prepared: Prepared, outcome: Outcome) -> Prepared:
    """The call with fewer elements that ends with the same bad status; the call itself when none does.

    All dimensions of one size are cut together, so that operands still fit; sizes in lists of whole numbers follow.
    """
    best = _with_given_gradients(prepared)
    deadline = time.monotonic() + _SHRINK_SECONDS
    tries = 0
    progress = True
    while progress:
        progress = False
        sizes = {n for t in best.arguments.tensors() for n in t.shape if n > 1}
        for size in sorted(sizes, reverse=True):
            half = size // 2
            for begin, end in ((0, half), (size - half, size)):
                for lists in (True, False):
                    if tries >= _SHRINK_TRIES or time.monotonic() > deadline:
                        return best
                    tries += 1
                    smaller = _cut(best, size, begin, end, lists=lists)
                    if _fails_alike(replayer, smaller, outcome):
                        best, progress = smaller, True
                        break
                if progress:
                    break
            if progress:
                break
    return best


def _with_given_gradients(prepared: Prepared) -> Prepared:
    call = prepared.call
    kept = prepared.maker.gradients(call.backward) if call.backward is not None else []
    return dataclasses.replace(prepared, maker=_Given(prepared.maker.seed, kept))


def _fails_alike(replayer: Replayer, prepared: Prepared, outcome: Outcome) -> bool:
    try:
        found, _ = replayer.judge(prepared)
    except Exception:  # arguments that do not fit one another
        return False
    if outcome.forward in _BAD:
        return found.forward == outcome.forward
    return found.backward == outcome.backward


def _cut(prepared: Prepared, size: int, begin: int, end: int, *, lists: bool) -> Prepared:
    arguments = prepared.arguments
    out = Arguments()

    def value(v: Any, in_list: bool) -> Any:
        if isinstance(v, torch.Tensor):
            cut = _cut_tensor(v, size, begin, end)
            if id(v) in arguments.wants_grad:
                out.wants_grad.add(id(cut))
            return cut
        if isinstance(v, torch.Size):
            return torch.Size(end - begin if lists and n == size else n for n in v)
        if isinstance(v, (list, tuple)):
            return type(v)(value(x, True) for x in v)
        if isinstance(v, dict):
            return {k: value(x, False) for k, x in v.items()}
        whole = type(v) is int and v == size and in_list and lists
        return end - begin if whole else v

    out.args = [value(v, False) for v in arguments.args]
    out.kwargs = {k: value(v, False) for k, v in arguments.kwargs.items()}
    kept = [None if g is None else _cut_tensor(g, size, begin, end) for g in prepared.maker.gradients({})]
    return dataclasses.replace(prepared, arguments=out, maker=_Given(prepared.maker.seed, kept))


def _cut_tensor(tensor: torch.Tensor, size: int, begin: int, end: int) -> torch.Tensor:
    for dim, n in enumerate(tensor.shape):
        if n == size:
            tensor = tensor.narrow(dim, begin, end - begin)
    return tensor.contiguous()


# ---- op_generate


@dataclass(slots=True)
class _Request:
    """The config.json of op_generate, checked."""

    dump_json_path: str
    api_name: str
    extract_api_path: str
    propagation: str
    data_mode: str
    random_seed: int
    iter_times: int


def from_config(options: Options, console: Console) -> int:
    """op_generate -i config.json -o DIR: a script for one API of a dump, or of a JSON with its entries."""
    request = _read_request(options.config_path)
    if request.dump_json_path:
        _extract(request, console)
    dump = read_dump_of_entries(request)
    call = dump
    if call.name.partition(".")[0] not in ("Functional", "Tensor", "Torch"):
        raise PrecheckError(
            ErrorCode.UNSUPPORTED, f"{call.name}: only Functional, Tensor and Torch calls are generated"
        )
    if request.propagation == "forward":
        call.backward = None
    real = request.data_mode == "real_data"
    given = dataclasses.replace(options, seed=request.random_seed)
    folder = os.path.join(
        os.path.dirname(os.path.abspath(request.dump_json_path or request.extract_api_path)), "dump_tensor_data"
    )
    replayer = Replayer(given, None, choose_device("cpu", 0), folder, real)
    if not real:
        call = _without_files(call)
    with quiet_warnings():
        prepared = _prepare(replayer, call)
        try:
            text, data = script(replayer, prepared, request.random_seed, [])
        except PrecheckError:
            raise
        except Exception as e:  # operators raise anything
            raise PrecheckError(ErrorCode.UNSUPPORTED, f"{call.name} cannot be replayed: {first_line(e)}") from None
    stem = os.path.join(options.out_path, file_name(call.name))
    _write_script(stem, text if real else _drawn(text, data, request.iter_times), data if real else None)
    console.line(f"op_generate: {call.name}; path {stem}.py")
    return 0


def _drawn(text: str, data: dict[str, Any], iterations: int) -> str:
    """The script with ranges in place of data."""
    specs = [_spec(t) for t in data["tensors"]]
    gradients = ["None" if g is None else _spec(g) for g in data["gradients"]]
    text = text.replace("SPECS = []", f"SPECS = [{', '.join(specs)}]", 1)
    text = text.replace("GRADIENT_SPECS = []", f"GRADIENT_SPECS = [{', '.join(gradients)}]", 1)
    return text.replace("ITERATIONS = 1", f"ITERATIONS = {iterations}", 1).replace("@DATA@", "None")


def _spec(tensor: torch.Tensor) -> str:
    finite = tensor[torch.isfinite(tensor)] if tensor.is_floating_point() else tensor
    if finite.numel() == 0 or tensor.is_complex():
        low, high = 0.0, 0.0
    else:
        wide = finite.double() if tensor.is_floating_point() else finite
        low, high = wide.min().item(), wide.max().item()
    return f"({list(tensor.shape)}, {tensor.dtype}, {low!r}, {high!r})"


def _without_files(call: Call) -> Call:
    def bare(record: Any) -> Any:
        if isinstance(record, list):
            return [bare(r) for r in record]
        if isinstance(record, dict):
            return {k: bare(v) for k, v in record.items() if k not in ("data_name", "datapath")}
        return record

    return dataclasses.replace(call, forward=bare(call.forward), backward=bare(call.backward))


def _read_request(path: str) -> _Request:
    try:
        with open(path, encoding="utf-8-sig") as f:
            document = json.load(f)
    except json.JSONDecodeError as e:
        raise PrecheckError(ErrorCode.MALFORMED, f"{path}:{e.lineno}:{e.colno}: no JSON: {e.msg}", path) from None
    except (OSError, UnicodeDecodeError) as e:
        raise PrecheckError(ErrorCode.IO, f"{path}: {e}", path) from None
    if not isinstance(document, dict):
        raise PrecheckError(ErrorCode.MALFORMED, f"{path}: holds no object; a config.json is expected", path)
    usual = {"dump_json_path": "", "api_name": "", "extract_api_path": "", "propagation": "forward"}
    usual_more: dict[str, Any] = {"data_mode": "random_data", "random_seed": 1234, "iter_times": 1}
    values: dict[str, Any] = usual | usual_more | {k: v for k, v in document.items() if k in usual | usual_more}

    def wrong(key: str, expected: str) -> PrecheckError:
        return PrecheckError(ErrorCode.CONFIG, f"{path}:{key}: has no value {values[key]!r}; {expected}", path)

    for key in usual:
        if not isinstance(values[key], str):
            raise wrong(key, "a text is expected")
    api = values["api_name"]
    is_name = len(api) <= 300 and len(api.split(".")) in (3, 4)
    if not is_name and (values["dump_json_path"] or api):
        raise wrong("api_name", "a name like Torch.matmul.0 is expected")
    if values["propagation"] not in ("forward", "backward"):
        raise wrong("propagation", "forward or backward is expected")
    if values["data_mode"] not in ("random_data", "real_data"):
        raise wrong("data_mode", "random_data or real_data is expected")
    for key, most in (("random_seed", (1 << 63) - 1), ("iter_times", 1000)):
        if type(values[key]) is not int or not (key == "random_seed" or values[key] >= 1) or values[key] > most:
            raise wrong(key, f"a whole number up to {most} is expected")
    if not values["extract_api_path"].endswith(".json"):
        raise wrong("extract_api_path", "a .json file is expected")
    if values["data_mode"] == "real_data":
        values["iter_times"] = 1
    return _Request(**values)


def _extract(request: _Request, console: Console) -> None:
    """Copy the entries of the API into a JSON of their own, in the form of a dump."""
    dump = read_dump(request.dump_json_path)
    calls = [c for c in dump.calls if c.name == request.api_name and c.forward is not None]
    if not calls:
        console.warning(f"{request.dump_json_path}: holds no call {request.api_name}")
        if not os.path.exists(request.extract_api_path):
            raise PrecheckError(
                ErrorCode.NOT_FOUND,
                f"{request.dump_json_path}: holds no call {request.api_name}",
                request.dump_json_path,
            )
        return
    entries = {f"{request.api_name}.forward": calls[0].forward}
    if calls[0].backward is not None:
        entries[f"{request.api_name}.backward"] = calls[0].backward
    _write(request.extract_api_path, json.dumps(entries, indent=1).encode())


def read_dump_of_entries(request: _Request) -> Call:
    """The call in a JSON that holds its entries: forward, and backward where it is asked for."""
    path = request.extract_api_path
    try:
        with open(path, encoding="utf-8-sig") as f:
            entries = json.load(f)
    except (OSError, ValueError) as e:
        raise PrecheckError(ErrorCode.IO, f"{path}: {first_line(e)}", path) from None
    if isinstance(entries, dict) and isinstance(entries.get("data"), dict):
        entries = entries["data"]
    if not isinstance(entries, dict):
        raise PrecheckError(ErrorCode.MALFORMED, f"{path}: holds no object with entries", path)
    forward = [k for k, v in entries.items() if k.endswith(".forward") and isinstance(v, dict)]
    if request.api_name:
        forward = [k for k in forward if k == f"{request.api_name}.forward"]
    if not forward:
        raise PrecheckError(
            ErrorCode.NOT_FOUND, f"{path}: holds no forward entry of {request.api_name or 'a call'}", path
        )
    name = forward[0].removesuffix(".forward")
    backward = entries.get(f"{name}.backward")
    if request.propagation == "backward" and not isinstance(backward, dict):
        raise PrecheckError(ErrorCode.NOT_FOUND, f"{path}: holds no {name}.backward, but propagation is backward", path)
    return Call(name, entries[forward[0]], backward if isinstance(backward, dict) else None)
