#!/usr/bin/env python3
"""Makes the small tensor files beside it and manifest.json, which says what each one holds.

Needs torch, numpy and safetensors. The bytes in the manifest come from these libraries, not from msprobe.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

HERE = Path(__file__).resolve().parent
DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "complex32",
    "complex64",
    "complex128",
]
manifest: list[dict[str, Any]] = []


def raw(t: torch.Tensor) -> bytes:
    """Elements of ``t`` in row-major order, as they lie in memory."""
    flat = t.detach().resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def entry(t: torch.Tensor, name: str = "", *, contiguous: bool | None = None) -> dict[str, Any]:
    """What the manifest says of one tensor."""
    return {
        "name": name,
        "dtype": str(t.dtype).removeprefix("torch."),
        "shape": list(t.shape),
        "requires_grad": t.requires_grad,
        "contiguous": t.is_contiguous() if contiguous is None else contiguous,
        "hex": raw(t).hex(),
    }


def good(file: str, fmt: str, tensors: list[dict[str, Any]], holds: str = "") -> None:
    manifest.append({"file": file, "format": fmt, "tensors": tensors, "holds": holds})


def refused(file: str, code: str, text: str) -> None:
    manifest.append({"file": file, "error": code, "text": text})


def sample(dtype: str) -> torch.Tensor:
    """2 x 3 elements of ``dtype`` with extremes and, for floats, non-finite values."""
    kind = getattr(torch, dtype)
    bits = torch.tensor([0x00, 0x01, 0x7B, 0x3C, 0xC1, 0x80], dtype=torch.uint8)
    if dtype == "bool":
        return (bits > 0x50).reshape(2, 3)
    size = torch.empty(0, dtype=kind).element_size()
    return bits.repeat(size).reshape(size, 6).T.contiguous().view(kind).reshape(2, 3)


def save(t: Any, file: str, **options: Any) -> None:
    torch.save(t, HERE / file, **options)


def make_pt() -> None:
    for dtype in DTYPES:
        t = sample(dtype)
        save(t, f"{dtype}.pt")
        good(f"{dtype}.pt", "pt", [entry(t)])
    for dtype in ("float32", "bool", "bfloat16", "uint16", "float8_e5m2", "complex128"):
        t = sample(dtype)
        save(t, f"{dtype}_legacy.pt", _use_new_zipfile_serialization=False)
        good(f"{dtype}_legacy.pt", "pt", [entry(t)])
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    layouts = {
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "transposed": base.T,
        "slice": base[1:3, 2:5],
        "column": base[:, 4],
        "expanded": torch.tensor([[1], [2]], dtype=torch.int16).expand(2, 3),
        "permuted": torch.arange(24, dtype=torch.int64).reshape(2, 3, 4).permute(2, 0, 1),
        "parameter": torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float16)),
        "grad": torch.ones(2, requires_grad=True),
        "row_of_larger": base[2],
    }
    attributed = torch.arange(3.0)
    attributed.note = "kept"  # type: ignore[attr-defined]
    layouts["attribute"] = attributed
    for name, t in layouts.items():
        save(t, f"{name}.pt")
        good(f"{name}.pt", "pt", [entry(t)])
    save(base.T, "transposed_legacy.pt", _use_new_zipfile_serialization=False)
    good("transposed_legacy.pt", "pt", [entry(base.T)])
    save(base, "protocol4.pt", pickle_protocol=4)
    good("protocol4.pt", "pt", [entry(base)])
    with (
        zipfile.ZipFile(HERE / "transposed.pt") as source,
        zipfile.ZipFile(HERE / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for info in source.infolist():
            target.writestr(zipfile.ZipInfo(info.filename), source.read(info), zipfile.ZIP_DEFLATED)
    good("deflated.pt", "pt", [entry(base.T)])


def make_pt_containers() -> None:
    a, b = torch.arange(3.0), torch.ones(2, 2, dtype=torch.int8)
    save({"a": a, "b": {"c": b, 7: a}, "n": 3}, "dict.pt")
    good("dict.pt", "pt", [entry(a, "a"), entry(b, "b.c"), entry(a, "b.7")], "a dict of 3 entries")
    save([a, (b, "text", 1.5, None, 2**40, b"raw")], "list.pt")
    good("list.pt", "pt", [entry(a, "0"), entry(b, "1.0")], "a list of 2 elements")
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 3)
    save(module.state_dict(), "state_dict.pt")
    state = module.state_dict()
    good("state_dict.pt", "pt", [entry(state["weight"], "weight"), entry(state["bias"], "bias")], "a dict of 2 entries")
    save({"a": a}, "dict_of_one.pt")
    good("dict_of_one.pt", "pt", [entry(a, "a")], "a dict of 1 entry")
    save(torch.Size([2, 3]), "size.pt")
    good("size.pt", "pt", [], "a tuple of 2 elements")


class Evil:
    """Runs a command when it is unpickled by a careless reader."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/msprobe_formats_evil",)


def make_pt_refused() -> None:
    save(torch.eye(2).to_sparse(), "sparse.pt")
    refused("sparse.pt", "unsupported", "a sparse tensor")
    save(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "quantized.pt")
    refused("quantized.pt", "unsupported", "a quantised tensor")
    save(torch.ones(2, dtype=torch.complex64).conj(), "conjugate.pt")
    refused("conjugate.pt", "unsupported", "a conjugate or negative view")
    save(np.ones(2), "numpy_array.pt")
    refused("numpy_array.pt", "unsupported", "a NumPy array")
    save(Evil(), "evil.pt")
    refused("evil.pt", "unsupported", f"the call of {os.system.__module__}.system is refused")
    save(torch.empty(2, device="meta"), "meta.pt")
    refused("meta.pt", "unsupported", "a meta tensor")
    save(torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "bits8.pt")
    refused("bits8.pt", "unsupported", "torch.bits8")
    torch.jit.script(torch.nn.Identity()).save(str(HERE / "script.pt"))
    refused("script.pt", "unsupported", "TorchScript")
    (HERE / "bare.pkl").write_bytes(pickle.dumps([1, 2], protocol=2))
    refused("bare.pkl", "unsupported", "a bare pickle")
    with zipfile.ZipFile(HERE / "float32.pt") as source, zipfile.ZipFile(HERE / "big_endian.pt", "w") as target:
        for info in source.infolist():
            data = b"big" if info.filename.endswith("/byteorder") else source.read(info)
            target.writestr(zipfile.ZipInfo(info.filename), data)
    refused("big_endian.pt", "unsupported", "byte order big")
    with zipfile.ZipFile(HERE / "other.zip", "w") as target:
        target.writestr(zipfile.ZipInfo("readme.txt"), "hello")
    refused("other.zip", "unsupported", "a zip archive")


def numpy_entry(a: np.ndarray, name: str = "", *, contiguous: bool = True) -> dict[str, Any]:
    """What the manifest says of an array; the bytes in little-endian row-major order."""
    little = np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).reshape(a.shape)
    return {
        "name": name,
        "dtype": a.dtype.name,
        "shape": list(a.shape),
        "requires_grad": False,
        "contiguous": contiguous,
        "hex": little.tobytes().hex(),
    }


def make_npy() -> None:
    for dtype in ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]:
        a = (
            (np.arange(6).reshape(2, 3) * 41 - 3).astype(dtype)
            if dtype[0] != "c"
            else (np.arange(6).reshape(2, 3) * (0.5 - 2j)).astype(dtype)
        )
        np.save(HERE / f"{dtype}.npy", a)
        good(f"{dtype}.npy", "npy", [numpy_entry(a)])
    for dtype in (">u2", ">f4", ">i8", ">c16"):
        a = np.arange(6).reshape(2, 3).astype(dtype)
        np.save(HERE / f"big_{dtype[1:]}.npy", a)
        good(f"big_{dtype[1:]}.npy", "npy", [numpy_entry(a)])
    f = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    np.save(HERE / "fortran.npy", f)
    good("fortran.npy", "npy", [numpy_entry(f, contiguous=False)])
    fb = np.asfortranarray(np.arange(6).reshape(2, 3).astype(">i4"))
    np.save(HERE / "big_fortran.npy", fb)
    good("big_fortran.npy", "npy", [numpy_entry(fb, contiguous=False)])
    for name, a in {"scalar": np.array(7, np.int32), "vector": np.arange(3.0), "none": np.zeros((0, 2))}.items():
        np.save(HERE / f"{name}.npy", a)
        good(f"{name}.npy", "npy", [numpy_entry(a)])
    for version in ((2, 0), (3, 0)):
        with (HERE / f"version{version[0]}.npy").open("wb") as out:
            np.lib.format.write_array(out, np.arange(4, dtype=np.int16), version=version)
        good(f"version{version[0]}.npy", "npy", [numpy_entry(np.arange(4, dtype=np.int16))])


def make_npy_refused() -> None:
    np.save(HERE / "bfloat16.npy", np.zeros(2, "V2"))  # as ml_dtypes' bfloat16 is written
    refused("bfloat16.npy", "unsupported", "raw bytes whose meaning")
    np.save(HERE / "object.npy", np.array([None, 1], object), allow_pickle=True)
    refused("object.npy", "unsupported", "Python objects")
    np.save(HERE / "structured.npy", np.zeros(2, [("a", "f4"), ("b", "i4")]))
    refused("structured.npy", "unsupported", "structured")
    np.save(HERE / "text.npy", np.array(["ab"]))
    refused("text.npy", "unsupported", "text")
    np.save(HERE / "date.npy", np.array(["2020-01-01"], "M8[D]"))
    refused("date.npy", "unsupported", "dates")
    np.save(HERE / "longdouble.npy", np.ones(1, np.longdouble))
    refused("longdouble.npy", "unsupported", "extended precision")
    two = io.BytesIO()
    np.save(two, np.ones(1))
    np.save(two, np.ones(1))
    (HERE / "two_arrays.npy").write_bytes(two.getvalue())
    refused("two_arrays.npy", "malformed", "bytes after the elements")


def make_npz() -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.asfortranarray(np.arange(4).reshape(2, 2).astype(">i2"))
    np.savez(HERE / "stored.npz", a=a, b=b)
    np.savez_compressed(HERE / "deflated.npz", a=a, b=b)
    np.savez(HERE / "one.npz", only=a)
    both = [numpy_entry(a, "a"), numpy_entry(b, "b", contiguous=False)]
    good("stored.npz", "npz", both, "2 arrays")
    good("deflated.npz", "npz", both, "2 arrays")
    good("one.npz", "npz", [numpy_entry(a, "only")])
    np.savez(HERE / "object.npz", allow_pickle=True, o=np.array([None], object))
    refused("object.npz", "unsupported", "member o.npy")


def make_safetensors() -> None:
    names = [d for d in DTYPES if d not in ("complex32", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz")]
    tensors = {f"t.{d}": sample(d) for d in names}
    safetensors.torch.save_file(tensors, HERE / "all.safetensors", metadata={"format": "pt"})
    data = (HERE / "all.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    order = [n for n in header if n != "__metadata__"]
    good("all.safetensors", "safetensors", [entry(tensors[n], n) for n in order], f"{len(names)} tensors")
    one = torch.arange(4.0)
    safetensors.torch.save_file({"x": one}, HERE / "one.safetensors")
    good("one.safetensors", "safetensors", [entry(one, "x")])


def main() -> None:
    warnings.simplefilter("ignore")
    for old in HERE.iterdir():
        if old.suffix in (".pt", ".npy", ".npz", ".safetensors", ".pkl", ".zip"):
            old.unlink()
    for make in (make_pt, make_pt_containers, make_pt_refused, make_npy, make_npy_refused, make_npz, make_safetensors):
        make()
    lines = ",\n".join(" " + json.dumps(item) for item in manifest)
    (HERE / "manifest.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
