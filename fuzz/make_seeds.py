#!/usr/bin/env python3
"""Write the first inputs of every fuzz target: small, valid files of each kind.

    python fuzz/make_seeds.py

Files that are there already, findings among them, stay as they are.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import openpyxl
import torch
from safetensors.torch import save as safetensors_save

CORPUS = Path(__file__).parent / "corpus"
DATA = Path(__file__).parent.parent / "tests" / "data"

TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2, 3],
    "Max": 1.5,
    "Min": float("-inf"),
    "Mean": "nan",
    "Norm": 2.0,
    "requires_grad": True,
    "md5": "0a1b2c3d",
}
DUMP = {
    "task": "tensor",
    "level": "mix",
    "framework": "pytorch",
    "dump_data_dir": "dump_tensor_data",
    "data": {
        "Module.layer.Linear.forward.0": {
            "input_args": [TENSOR, {"type": "int", "value": 3}, None],
            "input_kwargs": {"mask": TENSOR},
            "output": [TENSOR],
            "parameters": {"weight": TENSOR},
        },
        "Torch.add.0.backward": {"input": [TENSOR], "output": [TENSOR, [TENSOR, {"a": 1e400}]]},
    },
}


def put(target: str, name: str, content: bytes | str) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def journal() -> bytes:
    """One record of each kind: see src/dump/journal.h for the layout."""
    generation = 2
    head = b"MSPJRNL1" + struct.pack("<QQQ", generation, 97, 0)
    out = bytearray(head.ljust(64, b"\0"))
    records = [
        (1, b"Torch.mul.0.forward", b'{"output": []}'),
        (2, b"Torch.mul.0.forward", b"null"),
        (3, b"0", b'["File a.py, line 1"]'),
        (4, b"Torch.mul.0.forward", b"0"),
    ]
    for kind, name, value in records:
        payload = bytes([kind, 0, 0, 0]) + struct.pack("<I", len(name)) + name + value
        crc = zlib.crc32(struct.pack("<Q", generation) + payload)
        out += struct.pack("<II", len(payload), crc) + payload
        out += b"\0" * (-len(out) % 8)
    return bytes(out)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def pt(value: object, legacy: bool = False) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=not legacy)
    return out.getvalue()


def deflated(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def workbook() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["NPU Name", "Cosine", "flag"])
    sheet.append(["Torch.add.0", 0.5, True])
    sheet.append(["=1+1", None, "x"])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def json_seeds() -> None:
    put("json", "values", json.dumps(DUMP, indent=1))
    put("json", "numbers", "[0, -0.0, 1e308, 123456789012345678901234567890, NaN, -Infinity, 1E-5]")
    put("json", "strings", '["\\ud800", "\\u0000", "\\ud83d\\ude00", "é", {"a": 1, "a": 2}]')
    put("dump", "whole", json.dumps(DUMP))
    put("dump", "torn", json.dumps(DUMP)[:700])
    put("dump", "empty", '{"data": {}}')
    put("stack", "lists", '{"Torch.add.0.forward": ["File a.py, line 1, in f, \\n x()"]}')
    put("stack", "numbered", '{"0": [["Torch.add.0.forward"], ["File a.py, line 1"]]}')
    put("construct", "parents", '{"Torch.add.0.forward": "Module.a.A.forward.0", "b": null, "c": ["d", 1]}')
    put("journal", "records", journal())


def config_seeds() -> None:
    config = {
        "task": "statistics",
        "dump_path": "/tmp/x",
        "rank": [0, "2-4"],
        "step": ["1"],
        "level": "mix",
        "async_dump": False,
        "statistics": {"scope": [], "list": ["relu"], "data_mode": ["all"], "summary_mode": "md5"},
        "tensor": {"scope": ["Module.a.forward.0", "Module.b.forward.0"], "file_format": "npy"},
    }
    put("collect_config", "both", json.dumps(config, indent=4))
    put("compare_json", "old", '{"npu_path": "a/dump.json", "bench_path": "b/dump.json", "is_print_compare_log": true}')
    put("compare_json", "new", '{"target_path": "a", "golden_path": "b", "stack_path": "s"}')
    put("name_map", "plain", "module.a.conv: module.b.conv\n'quoted: key': \"value\"\n")
    narrow = {"_comment": "why", "task": "tensor", "level": "mix", "step": [3]}
    narrow["tensor"] = {"list": ["Functional.relu.2.forward"], "data_mode": ["all"]}
    put("narrow_config", "plain", json.dumps(narrow, indent=4))
    pair = "- ms_api: Mint.sub\n  pt_api: Torch.sub\n  ms_args: [0, 1]\n  pt_args: [1, 0]\n"
    put("api_map", "pairs", pair + "- {ms_api: Norm, pt_api: Norm, ms_parameters: [gamma], pt_parameters: [weight]}\n")
    put("layer_map", "classes", "TopLayer:\n  network: module\nCell:\n  a.b: c\n  d: e\n")
    put(
        "rule_file",
        "limits",
        "limits:\n  - api: linear\n    dtype: torch.bfloat16\n    rounding: 2\n    off: [R1, Q1]\n",
    )
    put("merge_config", "plain", "api:\n  - Torch.add*\n  - Module\ncompare_index:\n  - Max diff\n")
    put(
        "postprocess_config",
        "plain",
        "right_matmul:\n  matrix: r.pt\n  target: [Torch.a.pt]\nvalid_length:\n  target: {fa: seq}\n",
    )


def tensor_seeds() -> None:
    base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    put("pt", "float32", pt(base))
    put("pt", "view", pt(base.t()))
    put("pt", "bfloat16", pt(base.to(torch.bfloat16)))
    put("pt", "parameter", pt(torch.nn.Parameter(base)))
    put("pt", "legacy", pt(base, legacy=True))
    put("pt", "dict", pt({"a": base, "b": [base, 3]}))
    with zipfile.ZipFile(io.BytesIO(pt({"a": base.t(), "n": (1, 2.5, None)}))) as archive:
        put("pickle", "torch", archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl"))))
    put("pickle", "plain", pickle.dumps({"a": [1, 2.5, "x", None, True], "b": (10**30, b"y")}, protocol=4))
    put("npy", "float32", npy(base.numpy()))
    put("npy", "fortran", npy(np.asfortranarray(base.numpy())))
    put("npy", "big_endian", npy(base.numpy().astype(">f8")))
    put("npz", "two", deflated({"a.npy": npy(base.numpy()), "b.npy": npy(np.zeros(3, np.int64))}))
    put("safetensors", "two", safetensors_save({"a": base, "b": base.to(torch.float16)}))
    put("zip", "deflated", deflated({"a.txt": b"text " * 50, "b": b""}))
    put("zip", "stored", pt(base))


def table_seeds() -> None:
    put("csv", "quoted", 'a,b\r\n"x, ""y""\nz",1\r\n,2\n')
    put("xlsx", "small", workbook())
    details = DATA / "precheck" / "compare_real_new" / "npu.csv"
    put("details", "golden", b"".join(details.read_bytes().splitlines(keepends=True)[:8]))
    put("write_table", "cells", b'=1+1\xff-2\xfe\xffplain\xfe"quo""ted\n\xff+x')
    put("write_xlsx", "cells", b'=1+1\xff-2\xfeplain 1\xff"quo""ted\n_x0041_\xfe\xff\x01')
    put("write_dump", "members", b'a\xff1\xfe\xfeb\xff\xc3\xa9\n\xfea\xff"\\\xfe')
    put("write_pieces", "three", bytes(range(48)))
    put("write_tensor", "float32", bytes([11, 2, 3]) + bytes(range(40)))


def kernel_seeds() -> None:
    values = np.array([1.0, -2.5, np.inf, np.nan, 0.0, 1e-38, 65504.0, 3.0])
    for index, dtype in enumerate((np.float16, np.uint16, np.float32, np.float64)):
        data = values.astype(np.float32).view(np.uint32) >> 16 if dtype is np.uint16 else values
        elements = data.astype(dtype).tobytes()
        put("float_stats", f"type{index}", bytes([index, 8]) + elements * 3)
        put("pair", f"type{index}", bytes([index, 8, index, 9]) + elements + elements[::-1][: len(elements)])
    for index in range(8):
        put("int_stats", f"type{index}", bytes([index, 17]) + bytes(range(0, 256, 3)))
    put("checksum", "bytes", bytes(range(100)))
    for index, dtype in enumerate((np.float16, np.float32, np.float64, np.int32)):
        head = bytes([3, 1, index, 192 if dtype is np.int32 else 0, (0, 2, 3, 5)[index], 24 + index])
        put("sketch_kernel", f"type{index}", head + np.nan_to_num(values, posinf=9).astype(dtype).tobytes() * 9)


def sketch_seeds() -> None:
    def leaf(shape: list[int], stored: int, **more: object) -> str:
        data = base64.b64encode(np.arange(stored, dtype="<f4").tobytes()).decode()
        sketch = {"k": 64, "seed": 1, "data": "f32:" + data, **more}
        return json.dumps({"dtype": "torch.float32", "shape": shape, "Norm": 3.5, "sketch": sketch})

    put("sketch", "small", leaf([3], 3))
    put("sketch", "whole", leaf([10, 20], 64, nan=2, inf=1, huge=3))
    put("sketch", "shard", leaf([10, 20], 64, start=[0, 20], whole=[10, 40]))


def search_seeds() -> None:
    put(
        "layout",
        "mesh",
        "target: {tp: 4, dp: 2}\ngolden: {tp: 2, dp: 1}\ntensors:\n"
        "  - {name: '*.weight', tp: 0, dp: same}\n  - {name: 'x?', tp: -1, dp: sum}\n  - {name: '*', tp: guess}\n",
    )
    floor = {"format_version": 1, "learned_from": ["run"], "entries": 120, "limit": 4.5}
    put("floor", "plain", json.dumps(floor | {"contrast": 8.0, "tail": 0.01, "exponent": 2.5}, indent=2))
    put("search", "evidence", json.dumps(evidence(1.0)).encode() + b"\xff" + json.dumps(evidence(2.0)).encode())
    put("search", "equal", json.dumps(evidence(1.0)))


def evidence(norm: float) -> dict[str, object]:
    """A dump whose entries carry what the search for the culprit reads."""
    leaf = TENSOR | {"Max": norm, "Min": -1.0, "Mean": 0.0, "Norm": norm, "hash64": f"{int(norm):016x}"}
    values = base64.b64encode(np.full(6, norm, dtype="<f4").tobytes()).decode()
    leaf["sketch"] = {"k": 64, "seed": 1, "data": "f32:" + values}
    made = leaf | {"from": {"entry": "Torch.mul.0.forward", "leaf": "output.0", "view": {"strides": [3, 0]}}}
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}
    data = {
        "Torch.mul.0.forward": {"input_args": [leaf, leaf], "input_kwargs": {}, "output": [leaf]},
        "Tensor.add_.0.forward": {
            "input_args": [made],
            "input_kwargs": {},
            "output": [leaf],
            "mutated": {"input.0": leaf},
        },
        "Distributed.all_reduce.0.forward": {
            "input_args": [leaf],
            "input_kwargs": {"group": group, "op": {"type": "ReduceOp", "value": "SUM"}},
            "output": [leaf],
        },
        "Tensor.add_.0.backward": {"input": [leaf], "output": [leaf]},
    }
    return {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}


def wire_seeds() -> None:
    def word(n: int) -> bytes:
        return struct.pack("<Q", n)

    def text(value: bytes) -> bytes:
        return word(len(value)) + value

    blobs = word(2) + word(0) + text(b"a.csv") + word(3) + word(1) + text(b"") + word(2)
    stream = word(len(blobs)) + blobs + b"abcde"
    put("wire", "stream", b"\0" + stream + word(zlib.crc32(stream)))
    error = word(3) + text(b"gone") + text(b"") + text(b"/a") + word(1) + word(7) + word(2) + word(1) + text(b"k")
    put("wire", "error", b"\x03" + error)
    put(
        "wire",
        "rows",
        b"\x04" + text(b"tensor") + word(1) + word(1) + word(1) + text(b"n") + word(1) + text(b"0.5") + word(0),
    )
    put("wire", "files", b"\x05" + text(b"rank0") + word(1) + word(1) + text(b"a.csv"))
    put("wire", "messages", b"\x0a" + word(1) + word(2) + text(b"said"))
    put("wire", "blobs", b"\x0b" + blobs)


def main() -> None:
    json_seeds()
    config_seeds()
    tensor_seeds()
    table_seeds()
    kernel_seeds()
    sketch_seeds()
    search_seeds()
    wire_seeds()


if __name__ == "__main__":
    main()
