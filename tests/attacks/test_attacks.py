"""The attack table (README.md of this folder): one hostile input per test, given to the command as a user would."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_support import Attacked
from cli_support import dump, entry, executable, ok_dump, tensor, write_json

Attack = Callable[..., Attacked]

COMPARE = ("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")


def rows(tmp_path: Path) -> list[dict[str, str]]:
    """The rows of the one csv report."""
    (report,) = (tmp_path / "out").glob("compare_result_*.csv")
    return list(csv.DictReader(io.StringIO(report.read_text("utf-8-sig"))))


@pytest.fixture
def dumps(tmp_path: Path) -> Callable[[str | bytes], None]:
    """Writes a target dump.json of these bytes beside a sound golden one."""

    def write(target: str | bytes) -> None:
        write_json(tmp_path / "g" / "dump.json", ok_dump())
        path = tmp_path / "t" / "dump.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(target.encode("utf-8", "surrogatepass") if isinstance(target, str) else target)

    return write


# ---- dump.json -------------------------------------------------------------------------------------------------------


def test_attack_depth_of_a_million(dumps, attack: Attack) -> None:
    dumps('{"task": "statistics", "data": {"a": ' + "[" * 1_000_000)
    done = attack(*COMPARE)
    assert done.status in {1, 2}
    assert "t/dump.json" in done.err and "nest" in done.err


def test_attack_string_of_100_megabytes(dumps, attack: Attack) -> None:
    dumps('{"task": "statistics", "data": {"' + "x" * 100_000_000 + '": {}}}')
    done = attack(*COMPARE)
    assert done.status in {1, 2} and "t/dump.json" in done.err
    assert len(done.said) < 10_000


def test_attack_numbers_beyond_every_type(dumps, attack: Attack) -> None:
    leaf = json.dumps(tensor()).replace("1.0", "1" + "0" * 5000, 1)
    dumps('{"task": "statistics", "level": "L1", "data": {"Torch.add.0.forward": {"output": [' + leaf + "]}}}")
    assert attack(*COMPARE).status in {0, 1, 2}


@pytest.mark.parametrize(
    "shape", [[-1, 3], [2**63 - 1, 2**63 - 1], [2**62] * 40, ["a"], [None], {"0": 2}, [2.5], [10**30]]
)
def test_attack_shapes(dumps, attack: Attack, shape: Any) -> None:
    dumps(json.dumps(dump({"Torch.add.0.forward": entry(output=[tensor(shape=shape)])})))
    assert attack(*COMPARE).status in {0, 1, 2}


def test_attack_duplicate_keys_are_counted(dumps, attack: Attack, tmp_path: Path) -> None:
    text = json.dumps(ok_dump())
    inner = text[text.index('"data": {') + 9 : -2]
    dumps(text.replace(inner, inner + ", " + inner))
    done = attack(*COMPARE)
    assert done.status == 0 and "target: 2 entries stand in the file twice" in done.err


def test_attack_invalid_utf8(dumps, attack: Attack, tmp_path: Path) -> None:
    text = json.dumps(ok_dump()).encode()
    dumps(text.replace(b'.forward": {', b'\xff\xfe\x80.forward": {', 1))
    assert attack(*COMPARE).status in {0, 1, 2}
    for report in (tmp_path / "out").rglob("*"):
        report.read_text("utf-8-sig")


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop", "dangling"])
def test_attack_inputs_that_are_no_files(dumps, attack: Attack, tmp_path: Path, kind: str) -> None:
    dumps("{}")
    path = tmp_path / "t" / "dump.json"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to(tmp_path / "nowhere")
    done = attack(*COMPARE)
    assert done.status == 2
    assert "dump.json" in done.err


# ---- what a report shows ---------------------------------------------------------------------------------------------

HOSTILE_NAMES = [
    "\x1b]0;owned\x07\x1b[2J",
    '=HYPERLINK("http://x","y")',
    "+cmd|' /C calc'!A0",
    "</script><img src=x onerror=alert(1)>",
    "a\r\nmsprobe: error: forged line",
    "\u202e\u2066gnirts",
    "\u0000nul",
    "x" * 100_000,
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda n: repr(n[:12]))
def test_attack_names_in_reports_and_on_the_terminal(attack: Attack, tmp_path: Path, name: str) -> None:
    data = {f"Torch.{name}.0.forward": entry(tensor(), output=[tensor(Max=float("nan"))])}
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", dump(data))
    done = attack(*COMPARE)
    assert done.status in {0, 1}
    assert not any(line.startswith("msprobe: error: forged") for line in done.said.splitlines())
    for control in ("\x07", "\x00", "\u202e"):
        assert control not in done.said
    for row in rows(tmp_path):
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@"))
    for page in (tmp_path / "out").glob("*.html"):
        text = page.read_text("utf-8")
        assert "<img src=x" not in text


# ---- tensor files ----------------------------------------------------------------------------------------------------


def pt_bytes(data: bytes, storage: bytes = b"\0" * 24, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A .pt archive with this pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("x/data.pkl", data)
        archive.writestr("x/byteorder", "little")
        archive.writestr("x/data/0", storage)
        archive.writestr("x/version", "3\n")
    return out.getvalue()


def text_opcode(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def int_opcode(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def tensor_pickle(shape: tuple[int, int] = (2, 3), numel: int = 6, offset: int = 0) -> bytes:
    """What torch.save writes for a float32 tensor of shape (2, 3), by hand so that every number can lie."""
    storage = text_opcode("storage") + b"ctorch\nFloatStorage\n" + text_opcode("0") + text_opcode("cpu")
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
        + storage
        + int_opcode(numel)
        + b"tQ"
        + int_opcode(offset)
        + int_opcode(shape[0])
        + int_opcode(shape[1])
        + b"\x86"
        + int_opcode(3)
        + int_opcode(1)
        + b"\x86\x89ccollections\nOrderedDict\n)RtR."
    )


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.marker}",))


def npy_bytes(header: str) -> bytes:
    padded = header.encode().ljust(118, b" ") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + b"\0" * 24


def safetensors_bytes(header: str, declared: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if declared is None else declared) + header.encode() + b"\0" * 24


TENSOR_FILES: dict[str, Callable[[Path], bytes]] = {
    "pickle_runs_a_command": lambda p: pt_bytes(pickle.dumps(Evil(p / "owned"), protocol=2)),
    "pickle_runs_a_command_legacy": lambda p: pickle.dumps(Evil(p / "owned"), protocol=2),
    "pickle_eval": lambda p: pt_bytes(b"c__builtin__\neval\n(V1+1\ntR."),
    "pickle_inst": lambda p: pt_bytes(b"(Vtouch owned\nios\nsystem\n."),
    "pickle_obj": lambda p: pt_bytes(b"(cos\nsystem\nVtouch owned\no."),
    "pickle_newobj": lambda p: pt_bytes(b"\x80\x02csubprocess\nPopen\n(Vtrue\nt\x81."),
    "pickle_build": lambda p: pt_bytes(b"\x80\x02ccollections\nOrderedDict\n)R}Vx\nI1\nsb."),
    "pickle_ext": lambda p: pt_bytes(b"\x80\x02\x82\x01."),
    "pickle_huge_text": lambda p: pt_bytes(b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x."),
    "pickle_huge_frame": lambda p: pt_bytes(b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"."),
    "pickle_huge_long": lambda p: pt_bytes(b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"."),
    "pickle_huge_memo": lambda p: pt_bytes(b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b"."),
    "pickle_doubling": lambda p: pt_bytes(b"\x80\x02]q\x00" + b"(h\x00h\x00lq\x00" * 2000 + b"."),
    "pickle_deep": lambda p: pt_bytes(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"."),
    "shape_beyond_the_storage": lambda p: pt_bytes(tensor_pickle(shape=(2, 30000))),
    "shape_overflows": lambda p: pt_bytes(tensor_pickle(shape=(2**62, 8))),
    "shape_negative": lambda p: pt_bytes(tensor_pickle(shape=(-2, 3))),
    "offset_negative": lambda p: pt_bytes(tensor_pickle(offset=-1)),
    "storage_lies": lambda p: pt_bytes(tensor_pickle(numel=2**63 - 1)),
    "zip_bomb": lambda p: pt_bytes(tensor_pickle(), b"\0" * 300_000_000, zipfile.ZIP_DEFLATED),
    "zip_end_only": lambda p: b"PK\x05\x06" + b"\0" * 18,
    "zip_many_entries_declared": lambda p: b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 65535, 65535, 2**32 - 2, 0, 0),
    "npy_overflow": lambda p: npy_bytes(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }"
    ),
    "npy_negative": lambda p: npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }"),
    "npy_object": lambda p: npy_bytes("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"),
    "npy_code": lambda p: npy_bytes("{'descr': __import__('os').system('touch owned'), 'shape': (2, 3), }"),
    "safetensors_header_lies": lambda p: safetensors_bytes("{}", 2**63),
    "safetensors_offsets_lie": lambda p: safetensors_bytes(
        '{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 9999999999]}}'
    ),
    "safetensors_offsets_backwards": lambda p: safetensors_bytes(
        '{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]}}'
    ),
    "safetensors_deep": lambda p: safetensors_bytes('{"__metadata__": ' + "[" * 200_000),
    "empty": lambda p: b"",
    "text": lambda p: b"hello\n",
    "truncated": lambda p: pt_bytes(tensor_pickle())[:200],
}


def tensor_dump(data_name: str) -> dict[str, Any]:
    """A tensor dump of one call whose output is kept in this file."""
    leaf = tensor(data_name=data_name)
    return dump({"Torch.add.0.forward": entry(output=[leaf])}, task="tensor", dump_data_dir="dump_tensor_data")


@pytest.fixture
def tensor_dumps(tmp_path: Path) -> Path:
    """Two tensor dumps with one sound file each; returns the target's file."""
    name = "Torch.add.0.forward.output.0.pt"
    good = pt_bytes(tensor_pickle(), struct.pack("<6f", *range(6)))
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", tensor_dump(name))
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir()
        (folder / name).write_bytes(good)
    return tmp_path / "t" / "dump_tensor_data" / name


def test_attack_the_sound_tensor_file_is_compared(tensor_dumps: Path, attack: Attack, tmp_path: Path) -> None:
    """Without this the tests below would show nothing."""
    done = attack(*COMPARE)
    assert done.status == 0, done.err
    (row,) = rows(tmp_path)
    assert row["Result"] == "pass" and row["Cosine"] == "1.0", row


@pytest.mark.parametrize("case", TENSOR_FILES)
def test_attack_tensor_files_become_a_row_with_a_reason(
    tensor_dumps: Path, attack: Attack, tmp_path: Path, case: str
) -> None:
    tensor_dumps.write_bytes(TENSOR_FILES[case](tmp_path))
    done = attack(*COMPARE)
    assert done.status in {0, 1}
    (row,) = rows(tmp_path)
    assert row["Result"] == "unmatched" and row["Cosine"] == "unsupported", row
    assert "Torch.add.0.forward.output.0.pt: " in row["Err_message"], "no reason"
    assert not list(tmp_path.rglob("owned")), "code in the file was run"


@pytest.mark.parametrize("name", ["../../secret.pt", "/etc/hostname", "link.pt", "sub/../../../secret.pt", "fifo.pt"])
def test_attack_names_of_tensor_files_that_lead_outside(
    tensor_dumps: Path, attack: Attack, tmp_path: Path, name: str
) -> None:
    good = tensor_dumps.read_bytes()
    (tmp_path / "secret.pt").write_bytes(good)
    (tensor_dumps.parent / "link.pt").symlink_to(tmp_path / "secret.pt")
    os.mkfifo(tensor_dumps.parent / "fifo.pt")
    write_json(tmp_path / "t" / "dump.json", tensor_dump(name))
    done = attack(*COMPARE)
    assert done.status in {0, 1}
    for row in rows(tmp_path):
        assert row["Result"] == "unmatched", row


# ---- other files -----------------------------------------------------------------------------------------------------


def test_attack_yaml_of_aliases(attack: Attack, tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    levels += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    (tmp_path / "map.yaml").write_text("\n".join(levels))
    done = attack(*COMPARE, "-dm", "map.yaml")
    assert done.status == 2 and "map.yaml" in done.err


def test_attack_yaml_of_depth(attack: Attack, tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    (tmp_path / "map.yaml").write_text("[" * 100_000)
    done = attack(*COMPARE, "-dm", "map.yaml")
    assert done.status == 2 and "map.yaml" in done.err


def xlsx_bytes(strings: str) -> bytes:
    """A workbook whose shared strings are this XML."""
    out = io.BytesIO()
    office = "http://schemas.openxmlformats.org"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{office}/spreadsheetml/2006/main" xmlns:r="{office}/officeDocument/2006/relationships">'
            '<sheets><sheet name="s" sheetId="1" r:id="r1"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r1" '
            f'Type="{office}/officeDocument/2006/relationships/worksheet" Target="worksheets/s.xml"/></Relationships>',
        )
        book.writestr(
            "xl/worksheets/s.xml",
            f'<worksheet xmlns="{office}/spreadsheetml/2006/main"><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c>'
            "</row></sheetData></worksheet>",
        )
        book.writestr("xl/sharedStrings.xml", strings)
    return out.getvalue()


LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + "]><sst><si><t>&j;</t></si></sst>"
)


@pytest.mark.parametrize("case", ["laughs", "external", "bomb", "deep"])
def test_attack_workbooks(attack: Attack, tmp_path: Path, case: str) -> None:
    strings = {
        "laughs": LAUGHS,
        "external": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><sst><si><t>&e;</t></si></sst>',
        "bomb": "<sst><si><t>" + "x" * 1_200_000_000 + "</t></si></sst>" if case == "bomb" else "",
        "deep": "<a>" * 300_000,
    }[case]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "compare_result_rank0_20260101000000.xlsx").write_bytes(xlsx_bytes(strings))
    (tmp_path / "merge.yaml").write_text("api: [Torch]\ncompare_index: []\n")
    done = attack("merge_result", "-i", "in", "-o", "out", "-config", "merge.yaml")
    assert done.status in {1, 2}
    assert "root:" not in done.said


@pytest.mark.parametrize(
    "text",
    [
        b"API Name,Status\r\n" + b'"' + b"x" * 3_000_000,
        b"\xff\xfeA\x00P\x00I\x00",
        b"API Name\r\n" * 10,
        b"\0" * 1000,
        b"",
        b"a," * 200_000 + b"b\r\n",
    ],
    ids=["open_quote", "utf16", "columns_missing", "nul", "empty", "wide"],
)
def test_attack_details_csv(attack: Attack, tmp_path: Path, text: bytes) -> None:
    for name in ("npu.csv", "gpu.csv"):
        (tmp_path / name).write_bytes(text)
    done = attack("api_precision_compare", "-npu", "npu.csv", "-gpu", "gpu.csv", "-o", "out")
    assert done.status in {1, 2} and ".csv" in done.err


def test_attack_journal_that_lies(attack: Attack, tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    for payload in (b"\xff" * 200, struct.pack("<II", 2**32 - 1, 0) + b"\0" * 64):
        head = (b"MSPJRNL1" + struct.pack("<QQQ", 2, 10, 10)).ljust(64, b"\0")
        (tmp_path / "t" / ".msprobe_journal").write_bytes(head + payload)
        done = attack(*COMPARE)
        assert done.status in {0, 1}
    record = b"\x01\0\0\0" + struct.pack("<I", 2**31) + b"name"
    crc = zlib.crc32(struct.pack("<Q", 2) + record)
    (tmp_path / "t" / ".msprobe_journal").write_bytes(
        (b"MSPJRNL1" + struct.pack("<QQQ", 2, 10, 10)).ljust(64, b"\0") + struct.pack("<II", len(record), crc) + record
    )
    assert attack(*COMPARE).status in {0, 1}


@pytest.mark.parametrize("where", ["out", "out/compare_result"])
def test_attack_output_through_a_link(attack: Attack, tmp_path: Path, where: str) -> None:
    """A folder that the user names may be a link; files below it are never written through one."""
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", ok_dump())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    attack(*COMPARE)
    for report in (tmp_path / "elsewhere").iterdir():
        assert report.is_file() and not report.is_symlink()
        assert report.stat().st_mode & 0o002 == 0, "written for everybody"


@pytest.mark.slow
@pytest.mark.parametrize(("entries", "memory_mib"), [(1_000_000, 512), (10_000_000, 1536)])
def test_attack_dump_of_millions_of_entries(
    dumps, attack: Attack, tmp_path: Path, entries: int, memory_mib: int
) -> None:
    dumps("")
    with (tmp_path / "t" / "dump.json").open("w") as file:
        file.write('{"task": "statistics", "level": "L1", "data": {"Torch.a.0.forward": {}')
        for first in range(1, entries, 10_000):
            file.writelines(f',"Torch.a.{i}.forward":{{}}' for i in range(first, min(first + 10_000, entries)))
        file.write("}}")
    done = attack(*COMPARE, memory_mib=memory_mib)
    assert done.status in {0, 1}


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_attack_memory_that_the_user_limits_ends_in_one_line(dumps, tmp_path: Path) -> None:
    """Three million leaves need more than the 300 MiB that `ulimit -v` leaves."""
    leaves = ",".join(["null"] * 3_000_000)
    dumps('{"task": "statistics", "level": "L1", "data": {"Torch.a.0.forward": {"output": [' + leaves + "]}}}")
    run = subprocess.run(
        ["sh", "-c", 'ulimit -v 307200; exec "$0" "$@"', *executable(), *COMPARE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "out of memory" in run.stderr and len(run.stderr.splitlines()) == 1, run.stderr
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
