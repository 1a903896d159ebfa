"""`msprobe completion`: the scripts are run by the shells themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def bash_answers(script: Path, line: str, cwd: Path) -> set[str]:
    """What bash offers at the end of a command line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _msprobe; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def fish_answers(script: Path, line: str, cwd: Path) -> set[str]:
    program = f"source {script}; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    return {answer.split("\t")[0] for answer in done.stdout.splitlines()}


ANSWERS = [
    ("msprobe com", {"compare", "completion"}),
    ("msprobe compare --f", {"--fail-on", "--floor", "--fuzzy_match"}),
    ("msprobe compare --hi", set()),  # belongs to the older spelling
    ("msprobe -f pytorch compare --hi", {"--highlight"}),
    ("msprobe -f ", {"pytorch"}),
    ("msprobe -f pytorch in", {"inspect"}),
    ("msprobe acc_check --reference ", {"auto", "f64"}),
    ("msprobe init ", {"first-difference", "pre-check", "nan-hunt", "determinism"}),
    ("msprobe completion f", {"fish"}),
    ("msprobe compare -tp a", {"a_dump", "a_file"}),
    ("msprobe compare -tp a_file --metrics a", {"a_dump"}),  # a folder
    ("msprobe acc_check --baseline n", {"none"}),  # a word or a file
]


@pytest.fixture
def place(msprobe, tmp_path: Path):
    """The scripts, in a folder with one file and one folder."""
    for shell in ("bash", "zsh", "fish"):
        run = msprobe("completion", shell)
        assert (run.status, run.err) == (0, "")
        (tmp_path / f"msprobe.{shell}").write_text(run.out)
    (tmp_path / "a_dump").mkdir()
    (tmp_path / "a_file").write_text("")
    return tmp_path


@pytest.mark.parametrize(("line", "expected"), ANSWERS)
def test_bash_offers(place, line, expected):
    assert bash_answers(place / "msprobe.bash", line, place) == expected


@pytest.mark.parametrize(("line", "expected"), ANSWERS)
def test_fish_offers(place, line, expected):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    answers = {answer.rstrip("/") for answer in fish_answers(place / "msprobe.fish", line, place)}
    if expected == {"a_dump"}:
        expected = {"a_dump", "a_file"}  # fish has no folders-only
    if not expected:
        assert not [answer for answer in answers if answer.startswith("--hi")]
    else:
        assert expected <= answers, answers


def test_zsh_reads_it_and_has_every_command(msprobe, place):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    # Calls the function with the completion builtins replaced by ones that print what they are given.
    program = """
    _describe() { print -rl -- "${(@P)2}"; }
    _arguments() { print -rl -- "$@"; }
    compadd() { print -rl -- "$@"; }
    compdef() { : }
    source ./msprobe.zsh
    words=(msprobe ''); CURRENT=2; _msprobe; print @@
    words=(msprobe compare ''); CURRENT=3; _msprobe; print @@
    words=(msprobe -f pytorch compare ''); CURRENT=5; _msprobe
    """
    done = subprocess.run(["zsh", "-f", "-c", program], cwd=place, capture_output=True, text=True, check=True)
    commands, new, old = done.stdout.split("@@\n")
    assert "compare:compare two dumps and say where they part" in commands
    assert "--golden_path" in new
    assert "--highlight" not in new
    assert "--highlight" in old
    assert done.stderr == ""


def test_every_command_of_the_help_is_offered_with_its_options(msprobe, place):
    commands = re.findall(r"^  ([a-z_]+)  ", msprobe("--help").out.split("Commands:")[1].split("Other:")[0], re.M)
    assert len(commands) > 10
    assert set(commands) <= bash_answers(place / "msprobe.bash", "msprobe ", place)
    for command in commands:
        options = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", msprobe(command, "--help").out.split("Terminal:")[0]))
        options |= {"--quiet", "--debug", "--help"}
        offered = bash_answers(place / "msprobe.bash", f"msprobe {command} -", place)
        texts = {option for option in options if option in offered}
        assert {"--quiet", "--debug", "--help"} <= texts
        assert len(texts) >= len(options) - 3  # others that the texts of the help mention


def test_unknown_shell_is_refused(msprobe):
    run = msprobe("completion", "tcsh")
    assert (run.status, run.out) == (2, "")
    assert run.errors() == ["SHELL: has no value 'tcsh'; did you mean bash? allowed: bash zsh fish"]
    assert msprobe("completion").errors() == ["SHELL: is required; give bash, zsh or fish"]
