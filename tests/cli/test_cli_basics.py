"""Help, version, wrong commands and options: what the command line says and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import ROOT, dump, entry, ok_dump, tensor, write_json

VERSION = (ROOT / "VERSION").read_text().strip()


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["-f", "pytorch"], ["-f", "pytorch", "--help"], ["-f"]])
def test_help_is_printed_and_ends_with_status_0(msprobe, args):
    run = msprobe(*args)
    assert run.status == 0
    assert run.err == ""
    first = run.out.index("msprobe compare -tp TARGET -gp GOLDEN")
    assert first < run.out.index("--version")  # common use comes first


def test_help_lists_only_what_exists(msprobe):
    text = msprobe("--help").out
    for absent in ("consistent_check", "graph_visualize"):
        assert absent not in text


def test_version(msprobe):
    run = msprobe("--version")
    assert run.status == 0
    first, *facts = run.out.splitlines()
    assert first == f"msprobe {VERSION}"
    assert [fact.split()[0] for fact in facts] == ["commit", "compiler", "build", "vectors"]
    assert re.search(r"compiler +(GNU|Clang) \d+\.\d+", run.out)
    head = subprocess.run(["git", "-C", ROOT, "cat-file", "-t", facts[0].split()[1].split("-")[0]], capture_output=True)
    assert head.stdout in (b"commit\n", b"") and "SSE4" in facts[3]


@pytest.mark.parametrize(("spelling", "needed"), [([], "-tp,--target_path"), (["-f", "pytorch"], "-i,--input_path")])
def test_help_of_compare_shows_both_names_of_options(msprobe, spelling, needed):
    run = msprobe(*spelling, "compare", "--help")
    assert run.status == 0
    assert needed in run.out
    assert max(len(line) for line in run.out.splitlines()) <= 120


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["comapre"], ["comapre: unknown command", "did you mean compare?"]),
        (["--verison"], ["--verison: unknown option"]),
        (["-f", "pytroch", "compare"], ["unknown framework", "did you mean pytorch?"]),
        (["-f", "mindspore", "compare"], ["-f mindspore", "PyTorch dumps only"]),
        (["op_generate", "-i", "x"], ["-o: is required"]),
        (["-f", "pytorch", "graph_visualize", "-i", "x"], ["graph_visualize: this build does not have it yet"]),
        (["merge_result", "-tp", "x"], ["-tp: unknown option"]),
        (["nan_analyse", "-i", "x"], ["nan_analyse: unknown command", "did you mean nan_analyze?"]),
        (["compare"], ["-tp: is required", "-gp: is required"]),
        (["-f", "pytorch", "compare"], ["-i: is required"]),
        (["compare", "--traget_path", "a"], ["--traget_path: unknown option; did you mean --target_path?"]),
        (["compare", "--target", "a", "-gp", "b"], ["--target: unknown option"]),
        (["compare", "-tp", "-gp", "b"], ["-tp: needs a value"]),
        (["compare", "-tp", "a", "-gp"], ["-gp: needs a value"]),
        (["compare", "-i", "a"], ["-i: belongs to the other spelling", "msprobe -f pytorch compare"]),
        (["-f", "pytorch", "compare", "-tp", "a"], ["-tp: belongs to the other spelling", "msprobe compare -tp"]),
        (["compare", "-tp", "a", "-gp", "b", "--rules", "bse"], ["--rules: has no value 'bse'; did you mean base?"]),
        (["compare", "-tp", "a", "-gp", "b", "--rules", "mine.yaml"], ["mine.yaml: no such file"]),
        (
            ["compare", "-tp", "a", "-gp", "b", "--fail-on", "eror"],
            ["--fail-on: has no value 'eror'; did you mean error?"],
        ),
        (["compare", "-tp", "a", "-gp", "b", "-m", "torchair"], ["--mode torchair: this build does not have it yet"]),
        (
            ["compare", "-tp", "a", "-gp", "b", "--engine", "rey"],
            ["--engine: has no value 'rey'; did you mean ray?"],
        ),
        (["compare", "-tp", "a", "-gp", "b", "--config", "gone.yaml"], ["gone.yaml"]),
        (["compare", "-tp", "a", "-gp", "b", "-am", "-lm"], ["-am: has no effect beside -lm"]),
        (["compare", "-tp", "a", "-gp", "b", "stray"], ["stray"]),
    ],
)
def test_wrong_command_lines_are_refused_with_the_reason(msprobe, args, words):
    run = msprobe(*args)
    assert run.status == 2
    assert run.out == ""
    text = "\n".join(run.errors())
    for word in words:
        assert word in text
    assert "Traceback" not in run.err
    assert os.listdir(run.cwd) == []  # refused before any work


def dump_folders(root: Path) -> None:
    """Folders in every wrong state: e empty, n ranks without dump.json, b two torn ranks, l one torn rank, …"""
    for rank in ("rank0", "rank1"):
        write_json(root / "r" / "step0" / rank / "dump.json", ok_dump())
        (root / "n" / rank).mkdir(parents=True)
        (root / "b" / rank).mkdir(parents=True)
        (root / "b" / rank / "dump.json").write_text("{")
    (root / "l" / "rank0").mkdir(parents=True)
    (root / "l" / "rank0" / "dump.json").write_text("{")
    (root / "e").mkdir()
    (root / "file").write_text("")
    (root / "number.yaml").write_text("api: 5\n")
    (root / "m.yaml").write_text("api: [Torch]\n")


OK = "r/step0/rank0/dump.json"


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (["compare", "-tp", "e", "-gp", "e"], ["e: no rank folder inside"]),
        (["compare", "-tp", "e", "-gp", "e", "-da"], ["e: no rank folder inside"]),
        (["compare", "-tp", "r/step0", "-gp", "r"], ["r/step0: the target is a folder of ranks, the golden side (r)"]),
        (
            ["compare", "-tp", "r/step0/rank0", "-gp", "r/step0"],
            ["r/step0/rank0: the target is the folder of one rank"],
        ),
        (
            ["compare", "-tp", "n", "-gp", "n"],
            ["n: no pair of ranks to compare: no dump.json or debug.json in n/rank0"],
        ),
        (["compare", "-tp", "l", "-gp", "l"], ["l/rank0/dump.json:1:2: the JSON text ends too early"]),
        (
            ["compare", "-tp", "b", "-gp", "b"],
            ["[rank0] not compared: b/", "[rank1] not compared: b/", "b: none of the 2 pairs of ranks"],
        ),
        (["compare", "-tp", "b", "-gp", "b", "-da"], ["rank0: ", "rank1: ", "b: none of the 2 pairs of ranks"]),
        (["compare", "-tp", OK, "-gp", OK, "-o", ""], ["-o: its value is empty"]),
        (
            ["compare", "-tp", OK, "-gp", OK, "-o", "x" * 300],
            ["x" * 100 + "…: the name of the output folder is too long"],
        ),
        (["compare", "-tp", OK, "-gp", OK, "-o", "new/" + "x" * 300], ["new/"]),
        (["compare", "-tp", OK, "-gp", OK, "-o", "/proc/nope"], ["/proc/nope: the output folder cannot be "]),
        (["compare", "-tp", OK, "-gp", OK, "-o", "file/sub"], ["file: is a file where the output folder belongs"]),
        (["compare", "-tp", OK, "-gp", OK, "-o", "file"], ["file: is a file where the output folder belongs"]),
        (["overflow_check", "-i", "e"], ["e: no rank folder inside"]),
        (["overflow_check", "-i", "l"], ["l/rank0/dump.json:1:2: the JSON text ends too early"]),
        (["overflow_check", "-i", "n"], ["rank0 is left out: ", "rank1 is left out: ", "n: none of the 2 ranks"]),
        (["overflow_check", "-i", "r/step0", "-o", "/proc/nope"], ["/proc/nope: the output folder cannot be "]),
        (["merge_result", "-i", "e", "-o", "out", "-config", "m.yaml"], ["e: no report of a rank inside"]),
        (["merge_result", "-i", "e", "-o", "", "-config", "m.yaml"], ["-o: its value is empty"]),
        (
            ["merge_result", "-i", "e", "-o", "out", "-config", "number.yaml"],
            ["number.yaml:1:6 api: '5' is not a name"],
        ),
    ],
)
def test_inputs_that_are_not_there_or_of_another_kind_are_refused(tmp_path, msprobe, args, lines):
    """Status 2, each cause said once, and nothing left behind (decisions 1 and 2)."""
    dump_folders(tmp_path)
    before = sorted(os.listdir(tmp_path))
    run = msprobe(*args)
    assert run.status == 2
    assert len(run.errors()) == len(lines), run.err
    for line, start in zip(sorted(run.errors()), sorted(lines), strict=True):  # ranks end in any order
        assert line.startswith(start)
    assert sorted(os.listdir(tmp_path)) == before


def test_folders_that_only_look_like_ranks_are_named(tmp_path, msprobe):
    for rank in ("rank0", "rankfoo", "rank01", "other"):
        write_json(tmp_path / "t" / rank / "dump.json", ok_dump())
    run = msprobe("compare", "-tp", "t", "-gp", "t", "-o", "out")
    assert run.status == 0
    assert run.err.count("t: not taken as ranks: other, rank01, rankfoo;") == 1
    assert "not taken as ranks: other" in msprobe("overflow_check", "-i", "t", "-o", "out").err


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which needs root")
def test_full_disk_fails_with_one_line_and_leaves_no_empty_folder(tmp_path, msprobe):
    write_json(
        tmp_path / "t" / "dump.json", dump({f"Torch.a.{i}.forward": entry(output=[tensor()]) for i in range(99)})
    )
    (tmp_path / "full").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "full"]
    if subprocess.run(mount, cwd=tmp_path, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount here")
    try:
        run = msprobe("compare", "-tp", "t/dump.json", "-gp", "t/dump.json", "-o", "full/a/b")
        left = os.listdir(tmp_path / "full")
    finally:
        subprocess.run(["umount", "full"], cwd=tmp_path, check=True)
    assert run.status == 1
    assert len(run.errors()) == 1
    assert "No space left on device" in run.errors()[0]
    assert left == []


def test_several_problems_are_all_named(msprobe):
    run = msprobe("compare", "--aaa", "--bbb", "-am")
    assert [line.split(":")[0] for line in run.errors()] == ["--aaa", "--bbb"]


def test_console_script_and_executable_are_one(pair, msprobe):
    """`python -m msprobe` answers as the executable does."""
    args = ["compare", "-tp", "t/dump.json", "-gp", "gone/dump.json"]
    script = subprocess.run(
        [sys.executable, "-m", "msprobe", *args], cwd=pair, capture_output=True, text=True, timeout=120, check=False
    )
    run = msprobe(*args)
    assert (script.returncode, script.stdout, script.stderr) == (run.status, run.out, run.err)


def test_import_is_light():
    """The console script must not pay for torch or numpy."""
    code = "import sys, msprobe, msprobe._compare; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_interrupt_ends_with_130(tmp_path: Path):
    """A fifo as input of a mapping would block; a large dump keeps the tool busy until the signal comes."""
    import signal
    import time

    from cli_support import executable

    data = {f"Torch.add.{i}.forward": entry(*[tensor() for _ in range(20)], output=[tensor()]) for i in range(20000)}
    for side in ("t", "g"):
        write_json(tmp_path / side / "dump.json", dump(data))
    command = [*executable(), "compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--xlsx"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out").glob("*")) and process.poll() is None and time.monotonic() < deadline:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in err
    assert list((tmp_path / "out").glob("*")) == []  # the unfinished workbook is gone
