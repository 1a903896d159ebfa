"""Every command that reads dumps or tensor files, on every kind of hostile file: each run ends, in bounded memory."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attack_support import MEMORY_MIB, Attacked
from cli_support import dump, entry, ok_dump, tensor, write_json
from test_attacks import TENSOR_FILES, Evil, int_opcode, pt_bytes, tensor_pickle

from msprobe import _core

Attack = Callable[..., Attacked]

COMMANDS = {
    "compare": ("compare", "-tp", "t", "-gp", "g", "-o", "out"),
    "compare_turned": ("compare", "-tp", "g", "-gp", "t", "-o", "out"),
    "compare_old": ("-f", "pytorch", "compare", "-i", "compare.json", "-o", "out"),
    "search": ("compare", "-tp", "t", "-gp", "g", "-o", "out", "-da"),
    "inspect": ("inspect", "t/dump.json"),
    "inspect_tree": ("inspect", "t/dump.json", "--tree"),
    "inspect_json": ("inspect", "t/dump.json", "--json"),
    "diff": ("diff", "t/dump.json", "g/dump.json", "--entry", "Torch.add.0.forward"),
    "narrow": ("narrow", "t", "g", "-o", "narrow.json", "--force"),
    "overflow_check": ("overflow_check", "-i", "t", "-o", "out"),
}


def sound() -> str:
    return json.dumps(ok_dump())


def call(name: str, text: str) -> str:
    return '{"task": "statistics", "level": "L1", "data": {' + f'"{name}": {text}' + "}}"


LEAF = json.dumps(tensor())
ADD = "Torch.add.0.forward"
DUMPS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "null": lambda: b"null",
    "no_object": lambda: b"[" + sound().encode() + b"]",
    "not_utf8": lambda: sound().encode().replace(b"forward", b"\xff\xfeforward"),
    "utf16": lambda: sound().encode("utf-16"),
    "nul": lambda: b"\0" * 4096,
    "torn": lambda: sound().encode()[:-40],
    "deep_value": lambda: call(ADD, "[" * 200_000).encode(),
    "deep_whole_value": lambda: call(ADD, '{"output": ' + "[" * 900 + LEAF + "]" * 900 + "}").encode(),
    "deep_objects": lambda: call(ADD, '{"output": ' * 200_000).encode(),
    "long_text": lambda: call(ADD, '{"output": ["' + "x" * 20_000_000 + '"]}').encode(),
    "long_number": lambda: call(ADD, '{"output": [' + LEAF.replace("1.0", "9" * 3_000_000, 1) + "]}").encode(),
    "long_name": lambda: call("Torch." + "x" * 5_000_000 + ".0.forward", "{}").encode(),
    "same_name_again": lambda: (
        b'{"task": "statistics", "data": {' + b",".join([f'"{ADD}": {{}}'.encode()] * 50_000) + b"}}"
    ),
    "data_again": lambda: (
        b'{"task": "statistics", ' + b",".join([b'"data": {"Torch.add.0.forward": {}}'] * 5_000) + b"}"
    ),
    "wide_call": lambda: call(ADD, '{"output": [' + ",".join(["null"] * 100_000) + "]}").encode(),
    "wide_shape": lambda: call(ADD, '{"output": [' + LEAF.replace("[2, 3]", str([1] * 200_000), 1) + "]}").encode(),
    "wrong_kinds": lambda: call(ADD, '{"output": {"a": 1}, "input_args": 3, "input_kwargs": []}').encode(),
    "statistics_of_no_kind": lambda: call(
        ADD, '{"output": [{"type": "torch.Tensor", "Max": [], "Min": {}, "shape": "x", "dtype": 3}]}'
    ).encode(),
    "sketch_lies": lambda: call(
        ADD,
        '{"output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4611686018427387904, 8], '
        '"Norm": 1.0, "sketch": {"k": 4294967295, "seed": -1, "data": "f32:AAAA"}}]}',
    ).encode(),
    "unicode": lambda: call("\u202eTorch.\U0001f4a9.\ud800.0.forward", "{}").encode("utf-8", "surrogatepass"),
}


@pytest.fixture
def side(tmp_path: Path) -> Callable[[bytes], None]:
    def write(text: bytes) -> None:
        for name in ("t", "g"):
            write_json(tmp_path / name / "dump.json", ok_dump())
            write_json(tmp_path / name / "stack.json", {})
            write_json(tmp_path / name / "construct.json", {})
        (tmp_path / "t" / "dump.json").write_bytes(text)
        write_json(tmp_path / "compare.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})

    return write


QUICK = {"compare", "inspect_json", "diff", "overflow_check"}


@pytest.mark.parametrize("command", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS])
def test_attack_every_command_with_every_dump(side: Callable[[bytes], None], attack: Attack, command: str) -> None:
    for kind, text in DUMPS.items():
        side(text())
        # A hundred thousand leaves are a hundred thousand rows: honest work, which may need memory.
        done = attack(*COMMANDS[command], memory_mib=MEMORY_MIB * (4 if kind == "wide_call" else 1))
        assert len(done.err) < 100_000, kind


@pytest.mark.slow
@pytest.mark.parametrize("file", ["stack.json", "construct.json"])
def test_attack_every_file_beside_a_dump(
    side: Callable[[bytes], None], attack: Attack, tmp_path: Path, file: str
) -> None:
    side(sound().encode())
    for kind, text in DUMPS.items():
        (tmp_path / "t" / file).write_bytes(text())
        for command in ("compare", "search", "inspect", "inspect_tree", "narrow"):
            done = attack(*COMMANDS[command], memory_mib=4 * MEMORY_MIB)
            assert len(done.err) < 100_000, (kind, command)


@pytest.mark.parametrize("file", ["stack.json", "construct.json", ".msprobe_journal"])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop"])
def test_attack_files_beside_a_dump_that_are_no_files(
    side: Callable[[bytes], None], attack: Attack, tmp_path: Path, file: str, kind: str
) -> None:
    """Nothing waits for a writer of a FIFO and nothing reads a device to its end."""
    side(sound().encode())
    path = tmp_path / "t" / file
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    for command in ("compare", "inspect", "inspect_tree", "narrow", "overflow_check"):
        attack(*COMMANDS[command])


def overlapping_zip() -> bytes:
    """A thousand members that all are the same bytes: what is unpacked adds up, the file stays small."""
    import zlib

    data = zlib.compress(b"\0" * 10_000_000)[2:-4]
    crc = zlib.crc32(b"\0" * 10_000_000)
    name = b"x/data/0"
    sizes = struct.pack("<IIIHH", crc, len(data), 10_000_000, len(name), 0)
    local = b"PK\x03\x04" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sizes + name + data
    entry_ = b"PK\x01\x02" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sizes
    entry_ += struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    directory = entry_ * 1000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1000, 1000, len(directory), len(local), 0)
    return local + directory + end


def many_members() -> bytes:
    """A directory of 400,000 names and no data."""
    name = b"n%07d"
    entries = []
    for i in range(400_000):
        text = name % i
        sizes = struct.pack("<IIIHH", 0, 0, 0, len(text), 0)
        entries.append(
            b"PK\x01\x02" + struct.pack("<HHHHHH", 20, 20, 0, 0, 0, 0) + sizes + struct.pack("<HHHII", 0, 0, 0, 0, 0)
        )
        entries.append(text)
    directory = b"".join(entries)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, len(directory), 0, 0)
    return directory + end


MORE_FILES: dict[str, Callable[[Path], bytes]] = {
    "zip_overlapping": lambda p: overlapping_zip(),
    "zip_400_000_members": lambda p: many_members(),
    "pickle_reduce_ex_of_torch": lambda p: pt_bytes(b"\x80\x02ctorch.hub\nload\n(Vx\ntR."),
    "pickle_global_of_dots": lambda p: pt_bytes(b"\x80\x04\x8c\x05torch\x8c\x0e__loader__.exec\x93."),
    "pickle_newobj_ex": lambda p: pt_bytes(b"\x80\x04csubprocess\nPopen\n(Vtrue\nt}\x92."),
    "pickle_persistent_id": lambda p: pt_bytes(b"\x80\x02Pfile:///etc/passwd\n."),
    "pickle_next_buffer": lambda p: pt_bytes(b"\x80\x05\x97\x98."),
    "pickle_bytearray": lambda p: pt_bytes(b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"."),
    "pickle_pops_beyond": lambda p: pt_bytes(b"\x80\x0200000."),
    "pickle_tuple_bomb": lambda p: pt_bytes(b"\x80\x02N" + b"2\x86" * 100_000 + b"."),
    "stride_overflows": lambda p: pt_bytes(
        tensor_pickle().replace(int_opcode(3) + int_opcode(1), int_opcode(2**62) * 2)
    ),
    "stride_negative": lambda p: pt_bytes(
        tensor_pickle().replace(int_opcode(3) + int_opcode(1), int_opcode(-3) + int_opcode(1))
    ),
}


@pytest.mark.parametrize("command", [("inspect", "a.pt"), ("diff", "a.pt", "b.pt")], ids=str)
def test_attack_every_command_with_every_tensor_file(attack: Attack, tmp_path: Path, command: tuple[str, ...]) -> None:
    good = pt_bytes(tensor_pickle(), struct.pack("<6f", *range(6)))
    (tmp_path / "b.pt").write_bytes(good)
    (tmp_path / "a.pt").write_bytes(good)
    assert attack(*command).status == 0
    for kind, make in (TENSOR_FILES | MORE_FILES).items():
        (tmp_path / "a.pt").write_bytes(make(tmp_path))
        done = attack(*command)
        assert done.status in {1, 2}, (kind, done.said)
        assert "a.pt" in done.err, (kind, done.said)
        assert not list(tmp_path.rglob("owned")), kind


PRECHECK = """
import os, resource, sys
from msprobe import _core
import torch
assert _core.main(["msprobe", "acc_check", "-api_info", "sound.json", "-o", "sound", "--device", "cpu"]) in (0, 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    status = _core.main(["msprobe", "acc_check", "-api_info", name, "-o", name + ".out", "--device", "cpu"])
    assert status in (0, 1, 2), (name, status)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print("DONE", name, status, f"{grown:.0f} MiB", flush=True)
"""


@pytest.mark.no_sanitizer
def test_attack_pre_check_with_every_dump(tmp_path: Path) -> None:
    (tmp_path / "sound.json").write_text(json.dumps(dump({ADD: entry(tensor(), tensor(), output=[tensor()])})))
    names = []
    for kind, text in DUMPS.items():
        path = tmp_path / f"{kind}.json"
        path.write_bytes(text())
        names.append(path.name)
    evil = tmp_path / "tensors"
    evil.mkdir()
    (evil / "x.pt").write_bytes(TENSOR_FILES["pickle_runs_a_command"](tmp_path))
    write_json(
        tmp_path / "files.json",
        dump({ADD: entry(tensor(data_name="x.pt"), tensor(data_name="../secret.pt"), output=[tensor()])}, task="tensor")
        | {"dump_data_dir": str(evil)},
    )
    assert Evil(tmp_path / "owned").marker.name == "owned"
    names.append("files.json")
    paths = [str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-c", PRECHECK, *names],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    done = [line.split() for line in run.stdout.splitlines() if line.startswith("DONE ")]
    assert [d[1] for d in done] == names
    assert max(float(d[3]) for d in done) < 512, done
    assert "\x1b" not in run.stdout + run.stderr
    assert not list(tmp_path.rglob("owned"))
