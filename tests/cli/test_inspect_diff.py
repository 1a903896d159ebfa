"""`msprobe inspect` and `msprobe diff` as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_support import Run, dump, entry, ok_dump, tensor, write_json

Msprobe = Callable[..., Run]


def test_inspect_lists_entries_and_counts(msprobe: Msprobe, pair: Path) -> None:
    run = msprobe("inspect", "t")
    assert run.status == 0
    assert "Torch.add.0.forward" in run.out and "Torch.mul.0.forward" in run.out
    assert run.err.splitlines()[-1].endswith("dumps 1, entries 2, torn 0, unreadable 0, matching 2")


def test_inspect_json_holds_what_the_dump_has(msprobe: Msprobe, pair: Path) -> None:
    run = msprobe("inspect", "t/dump.json", "--entry", "*.add.*", "--json")
    (found,) = json.loads(run.out)["dumps"]
    assert found["counts"] == {"entries": 2, "rows": 6, "files": 0, "missing_files": 0, "recovered": 0}
    (shown,) = found["entries"]
    assert shown["name"] == "Torch.add.0.forward"
    assert [row["name"] for row in shown["rows"]] == ["input.0", "input.1", "output.0"]
    assert shown["rows"][2]["max"] == "2.0"


def test_inspect_shows_stack_and_modules(msprobe: Msprobe, tmp_path: Path) -> None:
    name, module = "Functional.linear.0.forward", "Module.fc.Linear.forward.0"
    write_json(
        tmp_path / "dump.json", dump({name: entry(tensor(), output=[tensor()]), module: entry(output=[tensor()])})
    )
    write_json(tmp_path / "construct.json", {name: module, module: None})
    write_json(tmp_path / "stack.json", {"0": [[name], ["File a.py, line 3, in f, \n y = g(x)"]]})
    run = msprobe("inspect", "dump.json", "--entry", name)
    assert "in fc (Linear)/Functional.linear" in run.out
    assert "File a.py, line 3, in f,   y = g(x)" in run.out
    tree = msprobe("inspect", "dump.json", "--tree")
    assert "  fc (Linear) (2)\n    Functional.linear (1)\n" in tree.out


def test_inspect_says_where_a_dump_is_torn_and_reads_on(msprobe: Msprobe, tmp_path: Path) -> None:
    whole = json.dumps(ok_dump())
    for rank, text in (("rank0", whole), ("rank1", whole[: whole.index('"Torch.mul')]), ("rank2", "{")):
        (tmp_path / "step0" / rank).mkdir(parents=True)
        (tmp_path / "step0" / rank / "dump.json").write_text(text)
    run = msprobe("inspect", "step0")
    lines = run.out.splitlines()
    assert run.status == 0 and len(lines) == 3
    assert "2 entries" in lines[0] and "torn" not in lines[0]
    assert "1 entries" in lines[1] and "torn: step0/rank1/dump.json" in lines[1]
    assert "cannot be read" in lines[2]
    assert run.err.splitlines()[-1].endswith("dumps 3, entries 3, torn 1, unreadable 1")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["inspect"], "PATH"),
        (["inspect", "none"], "none: does not exist"),
        (["inspect", "t", "--entry", "Torch.ad.0.forward"], "did you mean Torch.add.0.forward?"),
        (["inspect", "t", "--trea"], "did you mean --tree?"),
        (["diff", "t"], "A B"),
        (["diff", "t", "none", "--entry", "x"], "none"),
        (["diff", "t", "g", "--entry", "Torch.mul.1.forward"], "did you mean Torch.mul.0.forward?"),
    ],
)
def test_refusals_name_the_cause(msprobe: Msprobe, pair: Path, arguments: list[str], problem: str) -> None:
    run = msprobe(*arguments)
    assert run.status == 2
    (line,) = run.errors()
    assert problem in line


def test_inspect_and_diff_of_tensor_files(msprobe: Msprobe, tmp_path: Path) -> None:
    golden = np.arange(24, dtype=np.float32).reshape(4, 6)
    target = golden.copy()
    target[:, 5] += np.float32(0.5)
    target[2, 1] = np.nan
    np.save(tmp_path / "t.npy", target)
    np.save(tmp_path / "g.npy", golden)
    shown = dict(line.split(maxsplit=1) for line in msprobe("inspect", "g.npy").out.splitlines())
    assert shown["dtype"] == "float32" and shown["shape"] == "[4, 6]" and shown["max"] == "23.0"
    run = msprobe("diff", "t.npy", "g.npy", "--json", "-k", "2")
    assert run.status == 0
    (item,) = json.loads(run.out)["items"]
    found = item["tensors"]
    assert (found["elements"], found["different"], found["class_differs"]) == (24, 5, 1)
    assert [p["index"] for p in found["first"]] == [[0, 5], [1, 5]]
    assert found["worst"][0] == {"index": [2, 1], "target": "nan", "golden": 13.0}
    assert found["decades"] == {"-1": 4}
    assert found["axes"] == [[0.25] * 4, [0, 0, 0, 0, 0, 1]]
    keep = ~np.isnan(target)
    difference = (target[keep] - golden[keep]).astype(np.float64)
    norm = np.linalg.norm(difference) / np.linalg.norm(golden[keep].astype(np.float64))
    assert found["relative_l2"] == pytest.approx(norm, rel=1e-12)
    text = msprobe("diff", "t.npy", "g.npy").out
    assert "by index of axis 1 (6 indexes)" in text and "100.00 % ####" in text
    assert "No difference in 24 elements." in msprobe("diff", "g.npy", "g.npy").out
    above = msprobe("diff", "t.npy", "g.npy", "--above", "0.5", "--json")
    assert json.loads(above.out)["items"][0]["tensors"]["different"] == 1


def test_diff_of_entries_without_files_shows_both_sides(msprobe: Msprobe, pair: Path) -> None:
    changed = ok_dump()
    changed["data"]["Torch.add.0.forward"]["output"][0]["Max"] = 7.0
    write_json(pair / "t" / "dump.json", changed)
    run = msprobe("diff", "t", "g", "--entry", "Torch.add.0.forward")
    assert "Torch.add.0.forward.output.0: differs" in run.out
    line = next(text for text in run.out.splitlines() if text.split()[:1] == ["max"])
    assert line.split() == ["max", "7.0", "2.0", "differs"]
    assert run.err.splitlines()[-1].endswith("3 compared, 1 differ, 0 on one side only")


def test_hostile_names_are_made_visible(msprobe: Msprobe, tmp_path: Path) -> None:
    name = "Functional.\x1b[31mred\u202e.0.forward"
    write_json(tmp_path / "dump.json", dump({name: entry(tensor(dtype="\x07"), output=[tensor()])}))
    for arguments in (["inspect", "dump.json"], ["inspect", "dump.json", "--entry", "Functional."]):
        out = msprobe(*arguments).out
        assert "\x1b" not in out and "\u202e" not in out and "\x07" not in out
        assert "\\x1b[31mred\\u202e" in out


def test_diff_takes_the_folder_of_a_step_with_one_rank(msprobe: Msprobe, tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_json(tmp_path / side / "step0" / "rank" / "dump.json", ok_dump())
        (tmp_path / side / "step0" / "notes").mkdir()
    run = msprobe("diff", "t/step0", "g/step0", "--entry", "Torch.add.0.forward")
    assert (run.status, run.errors()) == (0, [])
    write_json(tmp_path / "g" / "step0" / "rank1" / "dump.json", ok_dump())
    run = msprobe("diff", "t/step0", "g/step0", "--entry", "Torch.add.0.forward")
    assert run.status == 2
    assert run.errors() == [
        "g/step0: holds neither dump.json nor debug.json; give the folder of one rank, or the file itself"
    ]
