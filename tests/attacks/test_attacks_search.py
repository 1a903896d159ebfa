"""What came last under attack: evidence of culprits in a dump, layouts of ranks, learned constants, narrow.json."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_support import MEMORY_MIB, Attacked
from cli_support import entry, tensor, write_json

Attack = Callable[..., Attacked]

ADD, MUL = "Torch.add.0.forward", "Torch.mul.0.forward"
ORIGIN = {"entry": MUL, "leaf": "output.0"}
DEEP = "@deep@"  # stands for 900 levels


def sketch(values: tuple[float, ...] = (0, 1, 2, 3, 4, 5), **changes: Any) -> dict[str, Any]:
    data = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    return {"sketch": {"k": 64, "seed": 1, "data": "f32:" + data} | changes}


LEAVES: dict[str, dict[str, Any]] = {
    "from_text": {"from": "x"},
    "from_list": {"from": [1]},
    "from_numbers": {"from": {"entry": 1, "leaf": 2}},
    "from_itself": {"from": {"entry": ADD, "leaf": "output.0"}},
    "from_what_comes_later": {"from": {"entry": "Torch.add.0.backward", "leaf": "input.0"}},
    "from_nowhere_at_length": {"from": {"entry": "x" * 3_000_000, "leaf": "y" * 3_000_000}},
    "from_with_escapes": {"from": {"entry": "\x1b[31mX", "leaf": "\x07"}, "data_name": "\x1b]0;x\x07"},
    "view_deep": {"from": ORIGIN | {"view": DEEP}},
    "view_beyond": {"from": ORIGIN | {"view": {"strides": [2**62, -(2**62), 0], "offset": -5}}},
    "view_wide": {"from": ORIGIN | {"view": {"strides": [0] * 200_000}}},
    "writes_text": {"from": ORIGIN | {"writes": "many", "step": -1}},
    "hash_short": {"hash64": "ff"},
    "hash_long": {"hash64": "f" * 1000},
    "hash_number": {"hash64": 2**64},
    "hash_signed": {"hash64": "-123456789012345"},
    "hash_list": {"hash64": []},
    "sketch_text": {"sketch": "x"},
    "sketch_nan": sketch((float("nan"),) * 6),
    "sketch_infinite": sketch((float("inf"),) * 6),
    "sketch_largest": sketch((3.4e38,) * 6),
    "sketch_short": sketch((1.0,)),
    "sketch_no_base64": sketch(data="f32:!!!!"),
    "sketch_k_zero": sketch(k=0),
    "sketch_k_negative": sketch(k=-64),
    "sketch_k_huge": sketch(k=2**31),
    "sketch_start_beyond": sketch(start=[2**62, 0], whole=[2**62, 2**62]),
    "sketch_start_negative": sketch(start=[-1, -1], whole=[4, 6]),
    "sketch_counts": sketch(nan=-1, inf=2**63 - 1, huge="x"),
    "statistics_of_other_kinds": {"Norm": "x", "Max": [], "Min": {}},
}
MUTATED: dict[str, Any] = {
    "mutated_list": [1],
    "mutated_text": "x",
    "mutated_deep": DEEP,
    "mutated_number": {"input.0": 3},
    "mutated_what_is_not_there": {"input.99": tensor()},
    "mutated_wide": {f"input.{i}": tensor() for i in range(20_000)},
}


def text(leaf: dict[str, Any], **more: Any) -> str:
    data = {
        MUL: entry(tensor(), output=[tensor()]),
        ADD: entry(leaf, leaf, output=[leaf]) | more,
        "Torch.add.0.backward": {"input": [leaf], "output": [leaf]},
    }
    document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    return json.dumps(document).replace(f'"{DEEP}"', '{"strides":' * 900 + "[0]" + "}" * 900)


@pytest.mark.parametrize("kind", [*LEAVES, *MUTATED])
def test_attack_evidence_of_culprits(attack: Attack, tmp_path: Path, kind: str) -> None:
    """On either side, and of one dump: what is no evidence is none, and the search ends."""
    hostile = text(tensor() | LEAVES[kind]) if kind in LEAVES else text(tensor(), mutated=MUTATED[kind])
    good = text(tensor(Max=2.0) | sketch() | {"hash64": "0123456789abcdef", "from": ORIGIN})
    for folder, content in (("t", hostile), ("g", good)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dump.json").write_text(content)
    for target, golden in (("t", "g"), ("g", "t")):
        done = attack("compare", "-tp", target, "-gp", golden, "-o", "out", "--culprit", "--no-html")
        assert done.status == 0, done.said
        assert len(done.err) < 20_000


def ranks(tmp_path: Path) -> None:
    for step in ("step0", "step1"):
        for rank in range(4):
            folder = tmp_path / step / f"rank{rank}"
            folder.mkdir(parents=True)
            (folder / "dump.json").write_text(text(tensor()))


def sides(target: str, golden: str = "") -> str:
    return f"target: {{{target}}}\ngolden: {{{golden or target}}}\n"


ONES = ", ".join(f"d{i}: 1" for i in range(3000))
LAYOUTS: dict[str, tuple[str, int]] = {
    "empty": ("", 2),
    "null": ("~", 2),
    "list": ("[1, 2]", 2),
    "nul": ("\0\0\0", 2),
    "again": ("target: {tp: 4}\n" + sides("tp: 4"), 2),
    "negative": (sides("tp: -4"), 2),
    "infinite": (sides("tp: .inf"), 2),
    "huge": (sides("a: 65536, b: 65535, c: 65535, d: 65535, e: 65535"), 2),
    "axis_overflows": (sides("tp: 4") + "tensors: [{name: '*', tp: 9223372036854775808}]", 2),
    "axis_not_there": (sides("tp: 4") + "tensors: [{name: '*', tp: 40}]", 0),
    "pattern_of_stars": (sides("tp: 4") + "tensors: [{name: '" + "*a" * 5000 + "', tp: 0}]", 0),
    "many_rules": (sides("tp: 4") + "tensors:\n" + " - {name: x, tp: 0}\n" * 20_000, 0),
    "many_dimensions": (sides(ONES + ", tp: 4"), 0),
    "alias": ("a: &a [x, x]\nb: [*a, *a]\n" + sides("tp: 4"), 2),
    "deep": ("[" * 100_000, 2),
    "runs_code": ("!!python/object/apply:os.system ['touch owned']", 2),
    "escape": (sides('"\\e[31m": 4', "tp: 4"), 2),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_attack_layouts_of_ranks(attack: Attack, tmp_path: Path, kind: str) -> None:
    ranks(tmp_path)
    content, status = LAYOUTS[kind]
    (tmp_path / "layout.yaml").write_text(content)
    # Twenty thousand nodes of YAML are some ten MiB by themselves.
    command = ("compare", "-tp", "step0", "-gp", "step1", "--layout", "layout.yaml", "-o", "out", "--no-html")
    done = attack(*command, memory_mib=2 * MEMORY_MIB)
    assert done.status == status, done.said
    assert status == 0 or "layout.yaml" in done.err or "ranks" in done.err
    assert not (tmp_path / "owned").exists()


FLOOR = {"entries": 200, "limit": 5.0, "contrast": 8.0, "tail": 0.01, "exponent": 2.5}
FLOORS: dict[str, tuple[str, int]] = {
    "good": (json.dumps(FLOOR), 0),
    "empty": ("", 2),
    "null": ("null", 2),
    "list": ("[]", 2),
    "deep": ("[" * 100_000, 2),
    "again": (json.dumps(FLOOR)[:-1] + ', "limit": "x"}', 2),
    **{f"{key}_nan": (json.dumps(FLOOR | {key: float("nan")}), 2) for key in FLOOR},
    **{f"{key}_negative": (json.dumps(FLOOR | {key: -1}), 2) for key in FLOOR},
    **{f"{key}_huge": (json.dumps(FLOOR | {key: 1e300}), 2) for key in FLOOR},
    **{f"{key}_text": (json.dumps(FLOOR | {key: "5"}), 2) for key in FLOOR},
}


def test_attack_learned_constants(attack: Attack, tmp_path: Path) -> None:
    for folder, high in (("t", 1.0), ("g", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dump.json").write_text(text(tensor(Max=high)))
    for kind, (content, status) in FLOORS.items():
        (tmp_path / "floor.json").write_text(content)
        done = attack("compare", "-tp", "t", "-gp", "g", "-o", "out", "--culprit", "--floor", "floor.json", "--no-html")
        assert done.status == status, (kind, done.said)
        assert status == 0 or "floor.json" in done.err, kind


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop"])
@pytest.mark.parametrize("option", ["--layout", "--floor"])
def test_attack_layouts_and_constants_that_are_no_files(attack: Attack, tmp_path: Path, kind: str, option: str) -> None:
    ranks(tmp_path)
    path = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    done = attack("compare", "-tp", "step0", "-gp", "step1", option, "file", "-o", "out")
    assert done.status == 2 and "file: " in done.err, done.said


def test_attack_ranks_of_which_some_are_hostile(attack: Attack, tmp_path: Path) -> None:
    """The others are read, and the hostile one is left out with a reason or read as far as it says anything."""
    hostile = {
        "empty": "",
        "deep": "[" * 100_000,
        "no_data": "{}",
        **{kind: text(tensor() | changes) for kind, changes in LEAVES.items()},
    }
    ranks(tmp_path)
    for kind, content in hostile.items():
        (tmp_path / "step0" / "rank1" / "dump.json").write_text(content)
        done = attack("ranks", "-i", "step0", "-o", "out")
        assert done.status in {0, 1}, (kind, done.said)
        assert len(done.err) < 20_000, kind


def test_attack_narrow_of_hostile_dumps(attack: Attack, tmp_path: Path) -> None:
    """The file that comes out is JSON of bounded size that collection reads, whatever names the dumps have."""
    names = {
        "quotes": '"],"x":["',
        "escape": "\x1b[2J",
        "lines": "a\nb",
        "half": "\ud800",
        "long": "x" * 1_000_000,
    }
    for kind, name in names.items():
        for folder, high in (("t", 1.0), ("g", 5.0)):
            data = {f"Torch.{name}.{i}.forward": entry(tensor(), output=[tensor(Max=high)]) for i in range(3)}
            document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
            write_json(tmp_path / folder / "dump.json", document | {"data": data})
        done = attack("narrow", "t", "g", "-o", "narrow.json", "--force")
        assert done.status in {0, 2}, (kind, done.said)
        if done.status == 0:
            told = json.loads((tmp_path / "narrow.json").read_text("utf-8"))
            assert all(isinstance(n, str) for n in told["tensor"]["list"]), kind
            assert all(n.startswith("Torch.") for n in told["tensor"]["list"]), kind
