"""The checks that guard the tree, each shown the smallest tree that it must refuse, and the tree itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.no_sanitizer  # nothing here enters the extension


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


layers = load("check_layers")
promises = load("check_promises")
hygiene = load("check_hygiene")
counting = load("count_tests")


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def layer_errors(tmp_path: Path, files: dict[str, str]) -> list[str]:
    return layers.check(tree(tmp_path, files)).errors


def test_layers_accept_a_downward_include_and_a_lazy_import(tmp_path: Path) -> None:
    files = {
        "src/json/json.h": '#include "base/result.h"\n#include <rapidjson/reader.h>\n',
        "src/base/result.h": "#include <string>\n",
        "src/json/json_test.cc": '#include "base/result.h"\n',
        "src/dump/dump_test.cc": '#include <rapidjson/document.h>\n#include "archive/zip.h"\n',
        "python/msprobe/__init__.py": "def f():\n    from msprobe.pytorch import compare\n    return compare\n",
        "python/msprobe/pytorch/__init__.py": "import torch\nimport msprobe._core\n",
    }
    assert layer_errors(tmp_path, files) == []


@pytest.mark.parametrize(
    ("files", "place", "words"),
    [
        ({"src/base/a.cc": "\n#include <json/x.h>\n"}, "src/base/a.cc:2", "upwards"),
        ({"src/metrics/a.h": '#include "dump/reader.h"\n'}, "src/metrics/a.h:1", "upwards"),
        ({"src/metrics/a.h": '#include "config/rules.h"\n'}, "src/metrics/a.h:1", "does not list"),
        ({"src/cli/a.cc": '#include "bindings/module.h"\n'}, "src/cli/a.cc:1", "upwards"),
        ({"src/compare/a.cc": "#include <rapidjson/reader.h>\n"}, "src/compare/a.cc:1", "json only"),
        ({"src/plots/a.cc": "int x;\n"}, "src/plots", "lacks"),
        (
            {"src/json/CMakeLists.txt": "msprobe_library(json\n  LINK msprobe_dump)\n"},
            "src/json/CMakeLists.txt:2",
            "links",
        ),
        ({"src/base/a.cc": "//\n" * 601}, "src/base/a.cc", "601 lines"),
        ({"python/msprobe/x.py": "import numpy\n"}, "python/msprobe/x.py:1", "may not import numpy"),
        ({"python/msprobe/x.py": "from msprobe import pytorch\n"}, "python/msprobe/x.py:1", "imports msprobe.pytorch"),
        ({"python/msprobe/x.py": "def f():\n    import torch\n"}, "python/msprobe/x.py:2", "may not import torch"),
        ({"python/msprobe/pytorch/x.py": "import torch_npu\n"}, "python/msprobe/pytorch/x.py:1", "torch_npu"),
        ({"python/msprobe/pytorch/x.py": "from ..precheck import a\n"}, "python/msprobe/pytorch/x.py:1", "precheck"),
        ({"python/msprobe/scale/x.py": "import torch\n"}, "python/msprobe/scale/x.py:1", "may not import torch"),
    ],
)
def test_layers_refuse(tmp_path: Path, files: dict[str, str], place: str, words: str) -> None:
    errors = layer_errors(tmp_path, files)
    assert len(errors) == 1
    assert errors[0].startswith(place)
    assert words in errors[0]


def test_layers_find_a_cycle_but_not_a_self_include(tmp_path: Path) -> None:
    files = {
        "src/base/a.h": '#include "base/b.h"\n',
        "src/base/b.h": '#include "base/a.h"\n',
        "src/kernels/k.cc": '#include "kernels/k.cc"\n',
    }
    errors = layer_errors(tmp_path, files)
    assert errors == ["include cycle: src/base/a.h -> src/base/b.h -> src/base/a.h"]


def test_layers_warn_of_a_function_of_61_lines(tmp_path: Path) -> None:
    def body(statements: int) -> str:
        return "int f() {\n" + "  g();\n" * statements + "}\n"

    files = {"src/base/long.cc": body(59), "src/base/short.cc": body(58)}
    assert layers.check(tree(tmp_path, files)).warnings == [
        "src/base/long.cc:1: a function of 61 lines, the aim is 60",
    ]


def test_layers_of_this_tree() -> None:
    assert layers.check(ROOT).errors == []


PAGE = "# Promises\n- 1: one. Tests: `a.S.T`\n## Not yet\n- B1: two.\n"


def test_promises_accept_kept_and_open_lines() -> None:
    assert promises.check(PAGE, {"a.S.T"}, ["1", "B1"]) == ([], 1)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (PAGE.replace("`a.S.T`", "`a.S.Gone`"), "line 2: 1: no such test: a.S.Gone"),
        (PAGE.replace(" Tests: `a.S.T`", ""), "line 2: 1 stands as kept and names no test"),
        (PAGE.replace("- B1: two.\n", ""), "missing: B1"),
        (PAGE + "- 1: again.\n", "line 5: 1 stands already on line 2"),
        (PAGE + "- B2: more.\n", "line 5: no promise has the number B2"),
        (PAGE + "- B2 more.\n", "line 5: not of the form '- D5: words. Tests: `…`'"),
    ],
)
def test_promises_refuse(page: str, problem: str) -> None:
    assert promises.check(page, {"a.S.T"}, ["1", "B1"])[0] == [problem]


def test_promises_find_tests_by_name(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "src/a/x_test.cc": "TEST(S, T) {\nTEST_F(Fix, Two) {\n TEST_P(P, Three) {\n// TEST(No, Comment)\n",
            "tests/python/test_x.py": "def test_one(): ...\nclass TestC:\n    def test_two(self): ...\ndef h(): ...\n",
        },
    )
    assert promises.cpp_tests(tmp_path) == {"a.S.T", "a.Fix.Two", "a.P.Three"}
    assert promises.python_tests(tmp_path) == {
        "tests/python/test_x.py::test_one",
        "tests/python/test_x.py::TestC::test_two",
    }


def test_promises_of_this_tree() -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    tests = promises.cpp_tests(ROOT) | promises.python_tests(ROOT)
    assert promises.check(page, tests, promises.all_items())[0] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = '/" + "home/someone/data/x.json'\n", "a path of one machine"),
        ("# https://my." + "pypi.example/simple\n", "a registry host"),
        ("x = 1  \n", "blanks at the end"),
        ("x = '" + "a" * 120 + "'\n", "126 characters, the limit is 120"),
        ("if x:\n\ty = 1\n", "a tab"),
    ],
)
def test_hygiene_refuses(text: str, words: str) -> None:
    problems = hygiene.check_text("a.py", ".py", text)
    assert len(problems) == 1
    assert words in problems[0]


def test_hygiene_accepts_ordinary_text() -> None:
    assert hygiene.check_text("a.py", ".py", "x = '/tmp/out'  # https://example.org/doc\n") == []


def test_counting_adds_files_and_counts_a_missing_one_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.xml").write_text(
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase><testcase><skipped/></testcase></testsuite>"
        "</testsuites>"
    )
    (tmp_path / "b.xml").write_text('<testsuite><testcase status="run"/></testsuite>')
    files = [str(tmp_path / name) for name in ("a.xml", "b.xml", "gone.xml")]
    assert counting.main(["count_tests.py", *files]) == 1
    assert capsys.readouterr().out == "2 passed, 2 failed, 1 skipped\n"


def test_setup_without_root_prints_the_command(tmp_path: Path) -> None:
    # A path with stand-ins for the three programs that setup.sh asks: nobody is root, nothing is installed.
    tools = {"dpkg-query": "exit 1", "id": "echo 1000", "apt-get": "echo called > called; exit 1"}
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VENV": str(tmp_path / "venv")}
    done = subprocess.run([ROOT / "tools/setup.sh", "build"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "apt-get install --no-install-recommends build-essential ccache" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_installed_distribution_holds_everything_of_the_package() -> None:
    try:
        files = importlib.metadata.files("msprobe-native")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("msprobe-native is not installed here; `make test` installs it")
    installed = {str(path) for path in files or []}
    assert any(name.startswith("msprobe/_core.") and name.endswith(".so") for name in installed)
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "python"], check=True, capture_output=True, text=True
    ).stdout
    assert {name.removeprefix("python/") for name in tracked.split()} <= installed


def test_committed_stub_is_that_of_the_extension() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/make_stub.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
