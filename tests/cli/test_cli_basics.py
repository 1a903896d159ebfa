"""Help, version, wrong commands and options: what the command line says and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import ROOT

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
    assert (run.status, run.out) == (0, f"msprobe {VERSION}\n")


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
        (["compare", "-tp", "a", "-gp", "b", "--rules", "mine.yaml"], ["--rules", "does not read rule files yet"]),
        (
            ["compare", "-tp", "a", "-gp", "b", "--fail-on", "eror"],
            ["--fail-on: has no value 'eror'; did you mean error?"],
        ),
        (["compare", "-tp", "a", "-gp", "b", "-m", "torchair"], ["--mode torchair: this build does not have it yet"]),
        (
            ["compare", "-tp", "a", "-gp", "b", "--consistent_check"],
            ["--consistent_check: this build does not have it yet"],
        ),
        (["compare", "-tp", "a", "-gp", "b", "--config", "gone.yaml"], ["gone.yaml"]),
        (["compare", "-tp", "a", "-gp", "b", "-am"], ["-am: is not for PyTorch dumps"]),
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

    from cli_support import dump, entry, executable, tensor, write_json

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
