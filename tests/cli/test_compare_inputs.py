"""Bad input of `compare`: the smallest input for each error in section 24 of the specification, and its outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import dump, entry, ok_dump, tensor, write_json

STATS = {"Torch.add.0.forward": entry(tensor(), output=[tensor()])}
MD5_LEAF = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "md5": "8ba71454", "requires_grad": False}


# 1100 brackets: Python's own encoder would refuse to write them.
DEEP = json.dumps(dump({"Torch.a.0.forward": {"input_args": "HERE"}})).replace('"HERE"', "[" * 1100 + "]" * 1100)

# name, text of target dump.json, expected status, words of the error line
BAD_TARGETS = [
    ("empty file", "", 2, ["t/dump.json"]),
    ("not JSON", "{data", 2, ["t/dump.json:1:"]),
    ("top level is a list", "[]", 2, ["t/dump.json", "object"]),
    ("task missing", json.dumps(dump(STATS, task=None)), 2, ["t/dump.json", "task"]),
    ("task empty", json.dumps(dump(STATS, task="")), 2, ["t/dump.json", "task"]),
    ("task of another kind", json.dumps(dump({"x.0.debug": None}, task="tensor")), 2, ["task", "tensor", "statistics"]),
    ("task unknown", json.dumps(dump(STATS, task="guess")), 2, ["task", "guess"]),
    ("data missing", json.dumps(dump(None)), 2, ["t/dump.json", "data"]),
    ("data is a list", json.dumps(dump([])), 2, ["t/dump.json", "data"]),
    ("data is empty", json.dumps(dump({})), 1, ["t/dump.json"]),
    (
        "nesting beyond 1000",
        DEEP,
        2,
        ["t/dump.json"],
    ),
]


@pytest.mark.parametrize(("text", "status", "words"), [b[1:] for b in BAD_TARGETS], ids=[b[0] for b in BAD_TARGETS])
@pytest.mark.parametrize("spelling", ["new", "old"])
def test_bad_target_json(pair, msprobe, spelling, text, status, words):
    (pair / "t" / "dump.json").write_text(text)
    if spelling == "new":
        run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    else:
        write_json(pair / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
        run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out")
    assert run.status == status
    assert len(run.errors()) == 1
    for word in words:
        assert word in run.errors()[0]
    assert "Traceback" not in run.err
    assert run.files() == []


def test_nothing_in_common_is_reported_with_a_warning(pair, msprobe):
    write_json(pair / "t" / "dump.json", dump({"Torch.other.9.forward": STATS["Torch.add.0.forward"]}))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    assert run.status == 0
    assert "warning: no row has a partner" in run.err
    assert "pass 0, warning 0, error 0, unmatched 8, total 8" in run.err
    assert len(run.files()) == 2


@pytest.mark.parametrize(
    ("target", "golden", "words"),
    [
        ("gone/dump.json", "g/dump.json", ["gone/dump.json: the target path does not exist"]),
        ("t/dump.json", "gone/dump.json", ["gone/dump.json: the golden path does not exist"]),
        ("t/dump.json", "g", ["t/dump.json: the target is a file, the golden side (g) a folder"]),
        ("t", "g/dump.json", ["t: the target is a folder, the golden side (g/dump.json) a file"]),
        ("t/other.json", "g/dump.json", ["t/other.json: not named dump.json or debug.json"]),
        ("t/debug.json", "g/dump.json", ["t/debug.json: debug.json against dump.json of the golden side"]),
        ("empty", "empty", ["empty: no rank folder inside"]),
    ],
)
def test_bad_paths(pair, msprobe, target, golden, words):
    for name in ("other.json", "debug.json"):
        write_json(pair / "t" / name, ok_dump())
    (pair / "empty").mkdir()
    run = msprobe("compare", "-tp", target, "-gp", golden, "-o", "out")
    assert run.status == 2
    assert len(run.errors()) == 1
    for word in words:
        assert word in run.errors()[0]
    assert run.files() == []


def test_both_paths_missing_are_both_named(msprobe):
    run = msprobe("compare", "-tp", "a", "-gp", "b")
    assert run.status == 2
    assert [line.split(":")[0] for line in run.errors()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", ["c.json", "object"]),
        ("", ["c.json"]),
        ("{", ["c.json:1:"]),
        ('{"bench_path": "g/dump.json"}', ["c.json", "npu_path"]),
        ('{"npu_path": "", "bench_path": "g/dump.json"}', ["c.json", "npu_path"]),
        ('{"npu_path": "t/dump.json"}', ["c.json", "bench_path"]),
        ('{"npu_path": 3, "bench_path": "g/dump.json"}', ["c.json", "npu_path"]),
        (
            '{"npu_path": "t/dump.json", "bench_path": "g/dump.json", "is_print_compare_log": 1}',
            ["is_print_compare_log"],
        ),
    ],
)
def test_bad_compare_json(pair, msprobe, text, words):
    (pair / "c.json").write_text(text)
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out")
    assert run.status == 2
    assert run.errors()
    for word in words:
        assert word in "\n".join(run.errors())
    assert run.files() == []


@pytest.mark.parametrize("option", ["-dm", "-cm"])
@pytest.mark.parametrize(
    ("text", "words"),
    [(None, ["map.yaml"]), ("- a\n- b\n", ["map.yaml"]), ("a: [", ["map.yaml"]), ("a: {b: c}", ["map.yaml"])],
)
def test_bad_mapping_files(pair, msprobe, option, text, words):
    if text is not None:
        (pair / "map.yaml").write_text(text)
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", option, "map.yaml")
    assert run.status == 2
    for word in words:
        assert word in run.errors()[0]
    assert run.files() == []


def test_cell_mapping_is_refused_in_the_old_spelling(pair, msprobe):
    write_json(pair / "c.json", {"npu_path": "t/dump.json", "bench_path": "g/dump.json"})
    run = msprobe("-f", "pytorch", "compare", "-i", "c.json", "-o", "out", "-cm")
    assert run.status == 2
    assert run.errors()[0].startswith("-cm: is not for PyTorch dumps")


def test_layer_mapping_is_said_to_have_no_effect(pair, msprobe):
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "-lm")
    assert run.status == 0
    assert "warning: -lm has no effect" in run.err


def test_output_that_is_a_file_is_refused(pair, msprobe):
    (pair / "out").write_text("mine")
    for folder in ("out", "out/deeper"):
        run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", folder)
        assert run.status == 2
        assert run.errors()[0].startswith("out: is a file where the output folder belongs")
    assert (pair / "out").read_text() == "mine"


def test_byte_order_mark_is_accepted(pair, msprobe):
    path = pair / "t" / "dump.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out").status == 0


def test_torn_target_is_compared_as_far_as_it_is_whole(pair, msprobe):
    path = pair / "t" / "dump.json"
    text = path.read_text()
    path.write_text(text[: text.index("Torch.mul") + 40])
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    assert run.status == 0
    assert "recovered 1" in run.err
    (summary,) = Path(pair / "out").glob("compare_summary_*.json")
    counts = json.loads(summary.read_text())["counts"]
    assert (counts["pass"], counts["unmatched"]) == (3, 3)  # add is whole, mul is on the golden side only


def test_crc_against_statistics_is_refused(pair, msprobe):
    write_json(pair / "t" / "dump.json", dump({"Torch.add.0.forward": entry(MD5_LEAF, output=[MD5_LEAF])}))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    assert run.status == 2
    assert "md5" in run.errors()[0] or "checksum" in run.errors()[0]
    assert run.files() == []


def test_executable_text_is_neutralised_not_refused(pair, msprobe):
    evil = {"type": "str", "value": "=cmd|' /C calc'!A0"}
    for side in ("t", "g"):
        write_json(pair / side / "dump.json", dump({"Torch.add.0.forward": entry(tensor(), evil, output=[tensor()])}))
    run = msprobe("compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out")
    assert run.status == 0
    (report,) = Path(pair / "out").glob("*.csv")
    text = report.read_text()
    assert "'=cmd" in text
    assert ",=cmd" not in text and '"=cmd' not in text


def test_nul_bytes_and_controls_are_visible_in_errors(msprobe):
    run = msprobe("compare", "-tp", "a\x1b[31m", "-gp", "b\u202e")
    assert run.status == 2
    assert "\x1b" not in run.err and "\u202e" not in run.err
    assert "\\x1b" in run.err and "\\u202e" in run.err
