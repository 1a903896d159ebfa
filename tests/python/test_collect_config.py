"""docs/config.md says what the program does: every example is read, every key is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from msprobe.errors import ConfigError
from msprobe.pytorch import PrecisionDebugger

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


def keys_of(value):
    if isinstance(value, dict):
        return {k for k in value} | {k for v in value.values() for k in keys_of(v)}
    return {k for v in value for k in keys_of(v)} if isinstance(value, list) else set()


@pytest.mark.parametrize("text", blocks("json"))
def test_collect_config_examples_are_read(tmp_path, capsys, text):
    Path("config.json").write_text(text)
    PrecisionDebugger(config_path="config.json")
    out = capsys.readouterr().out
    assert "unknown key" not in out and "[ERROR]" not in out


def test_collect_config_page_shows_every_key():
    shown = set().union(*(keys_of(json.loads(text)) for text in blocks("json")))
    source = (ROOT / "src" / "config" / "collect_config.cc").read_text()
    known = set()
    for name in ("kTopKeys", "kSectionKeys", "kSliceKeys", "kApiListKeys"):
        known |= set(re.findall(r'"(\w+)"', re.search(rf"{name}\[\] = {{(.*?)}};", source, re.DOTALL)[1]))
    sections = {"structure", "nan_check", "acc_check", "run_ut", "diff_check", "exception_dump", "free_benchmark"}
    named_only = sections | {"grad_probe", "check_mode", "end"}
    assert known - shown == named_only  # refused or without effect, or a default: named in the text
    assert all(f"`{key}`" in PAGE for key in named_only)


def test_collect_config_errors_are_as_shown():
    Path("config.json").write_text(blocks("wrong")[0])
    with pytest.raises(ConfigError) as error:
        PrecisionDebugger(config_path="config.json")
    assert str(error.value).split("\n") == blocks("text")[0].strip().split("\n")


def test_collect_config_refused_tasks_say_what_to_use():
    for task in re.findall(r"`(\w+)`", PAGE.partition("need no device register. ")[2].partition(" are refused")[0]):
        settings = {"level": task} if task == "L2" else {"task": task}
        Path("config.json").write_text(json.dumps({"dump_path": "./dump", **settings}))
        with pytest.raises(ConfigError, match=f'"{task}" is refused: .*; (run|choose|collect|parameter)'):
            PrecisionDebugger(config_path="config.json")
