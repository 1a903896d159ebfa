#!/usr/bin/env python3
"""Check who includes and imports whom, and how long files and functions are.

    tools/check_layers.py [ROOT]

The tables below are the architecture: a folder may include only what its row lists. An include that is not
listed, a folder that no table knows, an include cycle, a library used outside its home and a file that is too
long are errors (exit status 1). A function that is too long is a warning. HACKING.md explains the layers.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# folder of src/ -> (level, folders it may include beside itself)
CPP_LAYERS: dict[str, tuple[int, frozenset[str]]] = {
    "base": (0, frozenset()),
    "tensor": (1, frozenset({"base"})),
    "json": (1, frozenset({"base"})),
    "archive": (1, frozenset({"base"})),
    "kernels": (2, frozenset({"tensor", "base"})),
    "formats": (2, frozenset({"archive", "json", "tensor", "base"})),
    "report": (2, frozenset({"archive", "json", "base"})),
    "config": (2, frozenset({"json", "base"})),
    "metrics": (3, frozenset({"kernels", "tensor", "base"})),
    "dump": (3, frozenset({"json", "formats", "tensor", "base"})),
    "collect": (4, frozenset({"dump", "metrics", "config", "tensor", "json", "base"})),
    "compare": (4, frozenset({"dump", "metrics", "formats", "config", "tensor", "json", "base"})),
    "culprit": (4, frozenset({"dump", "metrics", "formats", "config", "tensor", "json", "base"})),
    "precheck": (4, frozenset({"dump", "metrics", "config", "tensor", "json", "base"})),
    "app": (
        5,
        frozenset(
            {
                *("compare", "culprit", "precheck", "collect", "dump", "metrics", "config", "report"),
                *("formats", "kernels", "archive", "json", "tensor", "base"),
            }
        ),
    ),
    "cli": (6, frozenset({"app", "config", "base"})),
}
# Additions to the rows above, each with its reason. Prefer moving code down to adding here.
GRANTED: dict[tuple[str, str], str] = {
    ("collect", "formats"): "writes tensor files itself, while the training goes on",
    ("compare", "kernels"): "feeds pairs piece by piece to the one-pass kernel; checksums of scalars",
    ("culprit", "kernels"): "adds up what ranks gave to a collective, element by element",
    ("metrics", "json"): "writes and reads the sketch of a tensor, which only it understands",
    ("precheck", "report"): "writes and reads its csv records by the rules of reports",
}
# bindings/ sits on top of everything, the command line included (the console script enters through it).
BINDINGS_LEVEL = 7

# Headers of other people's libraries, by prefix of the include -> folders that may use them.
LIBRARY_HOMES: dict[str, frozenset[str]] = {
    "rapidjson/": frozenset({"json"}),
    "hwy/": frozenset({"kernels"}),
    "yaml-cpp/": frozenset({"config"}),
    "CLI/": frozenset({"cli"}),
    "xlsxwriter": frozenset({"report"}),
    "expat": frozenset({"report"}),
    "nanobind/": frozenset({"bindings"}),
    "Python.h": frozenset({"bindings"}),
}

# Part of python/msprobe ("" is the package itself) -> (parts it may import, third-party packages it may import).
PYTHON_LAYERS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "": (frozenset(), frozenset()),
    "pytorch": (frozenset({""}), frozenset({"torch", "numpy"})),
    "precheck": (frozenset({"", "pytorch"}), frozenset({"torch", "numpy"})),
    "doctor": (frozenset({"", "pytorch"}), frozenset({"torch"})),
    "integrations": (
        frozenset({"", "doctor", "pytorch"}),
        frozenset({"torch", "transformers", "lightning", "pytest"}),
    ),
    "scale": (frozenset({"", "precheck", "pytorch"}), frozenset({"ray"})),
}

CPP_SUFFIXES = {".h", ".cc", ".cpp", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
LINKED = re.compile(r"\bmsprobe_(\w+)")


@dataclass
class Findings:
    """What is wrong, as `path:line: text`."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def cpp_files(root: Path) -> Iterator[Path]:
    for top in ("src", "bindings"):
        if (root / top).is_dir():
            yield from sorted(p for p in (root / top).rglob("*") if p.suffix in CPP_SUFFIXES)


def folder_of(path: Path, root: Path) -> str:
    """The layer a C++ file belongs to: its folder below src/, or `bindings`."""
    parts = path.relative_to(root).parts
    return "bindings" if parts[0] == "bindings" else parts[1]


def level_of(folder: str) -> int:
    return BINDINGS_LEVEL if folder == "bindings" else CPP_LAYERS[folder][0]


def allowed(folder: str, target: str, is_test: bool) -> bool:
    """Whether a file of `folder` may include a header of `target`; tests may reach anything below them."""
    if folder == target:
        return True
    if folder == "bindings" or is_test:
        return level_of(target) < level_of(folder)
    return target in CPP_LAYERS[folder][1] or (folder, target) in GRANTED


def check_include(path: Path, root: Path, number: int, header: str, findings: Findings) -> Path | None:
    """Check one include line; return the file of ours that it names, if any."""
    folder, where = folder_of(path, root), f"{relative(path, root)}:{number}"
    for prefix, homes in LIBRARY_HOMES.items():  # tests may judge our files with the library itself
        if header.startswith(prefix) and folder not in homes and not path.stem.endswith("_test"):
            findings.errors.append(f"{where}: <{header}> belongs to {', '.join(sorted(homes))} only")
    top = header.split("/")[0]
    if top == "bindings":
        if folder != "bindings":
            findings.errors.append(f"{where}: {folder} includes upwards: {header}")
        return root / header
    if "/" in header and top in CPP_LAYERS:
        if not allowed(folder, top, path.stem.endswith("_test")):
            direction = "upwards" if level_of(top) >= level_of(folder) else "a folder its row does not list"
            findings.errors.append(f"{where}: {folder} includes {direction}: {header}")
        return root / "src" / header
    if (path.parent / header).is_file():
        return path.parent / header
    return None


def check_cpp(root: Path, findings: Findings) -> None:
    src = root / "src"
    if src.is_dir():
        for entry in sorted(src.iterdir()):
            if entry.is_dir() and entry.name not in CPP_LAYERS and any(entry.iterdir()):
                findings.errors.append(f"src/{entry.name}: a folder that the table in tools/check_layers.py lacks")
    graph: dict[Path, list[Path]] = {}
    for path in cpp_files(root):
        if folder_of(path, root) not in {*CPP_LAYERS, "bindings"}:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if match := INCLUDE.match(line):
                target = check_include(path, root, number, match[2], findings)
                if target is not None and target.is_file():
                    graph.setdefault(path, []).append(target.resolve())
        check_length(path, root, lines, findings)
        check_cpp_functions(path, root, lines, findings)
    check_cycles({p.resolve(): t for p, t in graph.items()}, root.resolve(), findings)
    check_links(root, findings)


def check_cycles(graph: dict[Path, list[Path]], root: Path, findings: Findings) -> None:
    done: set[Path] = set()
    trail: list[Path] = []

    def visit(path: Path) -> None:
        if path in trail:
            cycle = [*trail[trail.index(path) :], path]
            findings.errors.append("include cycle: " + " -> ".join(relative(p, root) for p in cycle))
            return
        if path in done:
            return
        trail.append(path)
        for target in graph.get(path, []):
            if target != path:  # Highway's foreach_target makes a file include itself on purpose
                visit(target)
        trail.pop()
        done.add(path)

    for path in sorted(graph):
        visit(path)


def check_links(root: Path, findings: Findings) -> None:
    """A library may link only what it may include (tests: anything below)."""
    for cmake in sorted((root / "src").glob("*/CMakeLists.txt")):
        folder = cmake.parent.name
        if folder not in CPP_LAYERS:
            continue
        test_part = False
        for number, line in enumerate(cmake.read_text(encoding="utf-8").splitlines(), 1):
            code = line.split("#")[0]
            if keyword := re.findall(r"\b(SOURCES|LINK|PRIVATE_LINK|TESTS|TEST_LINK)\b", code):
                test_part = keyword[-1] in ("TESTS", "TEST_LINK")
            for target in LINKED.findall(code):
                if target in CPP_LAYERS and not allowed(folder, target, test_part):
                    findings.errors.append(f"{relative(cmake, root)}:{number}: {folder} links msprobe_{target}")


def check_length(path: Path, root: Path, lines: list[str], findings: Findings) -> None:
    if len(lines) > MAX_FILE_LINES:
        findings.errors.append(f"{relative(path, root)}: {len(lines)} lines, the limit is {MAX_FILE_LINES}")


def check_cpp_functions(path: Path, root: Path, lines: list[str], findings: Findings) -> None:
    """Functions at namespace level start at column 0 and end with a lone brace there (our format)."""
    start = 0
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z\[]", line) and not line.startswith(("namespace", "#", "using", "extern")):
            start = number
        elif line == "}" and start:
            if number - start + 1 > MAX_FUNCTION_LINES:
                findings.warnings.append(
                    f"{relative(path, root)}:{start}: a function of {number - start + 1} lines, "
                    f"the aim is {MAX_FUNCTION_LINES}"
                )
            start = 0


def python_part(path: Path, package: Path) -> str:
    parts = path.relative_to(package).parts
    return parts[0] if len(parts) > 1 else ""


def imports_of(tree: ast.Module, path: Path, package: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, dotted module, at module level) for every import, relative ones made absolute."""
    top_level = {id(node) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            top_level -= {id(node) for node in ast.walk(function)}
    for guarded in ast.walk(tree):  # `if TYPE_CHECKING:` costs nothing at run time
        if isinstance(guarded, ast.If) and "TYPE_CHECKING" in ast.unparse(guarded.test):
            top_level -= {id(node) for part in guarded.body for node in ast.walk(part)}
    here = ["msprobe", *path.relative_to(package).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name, id(node) in top_level
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*here[: len(here) - node.level + 1], *([base] if base else [])])
            for name in node.names:
                yield node.lineno, f"{base}.{name.name}", id(node) in top_level


def check_python(root: Path, findings: Findings) -> None:
    package = root / "python" / "msprobe"
    for path in sorted(package.rglob("*.py")):
        part = python_part(path, package)
        text = path.read_text(encoding="utf-8")
        if part not in PYTHON_LAYERS:
            findings.errors.append(f"{relative(path, root)}: a part that the table in tools/check_layers.py lacks")
            continue
        check_length(path, root, text.splitlines(), findings)
        tree = ast.parse(text, str(path))
        for line, module, top_level in imports_of(tree, path, package):
            check_import(f"{relative(path, root)}:{line}", part, module, top_level, findings)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    findings.warnings.append(
                        f"{relative(path, root)}:{node.lineno}: {node.name} has {length} lines, "
                        f"the aim is {MAX_FUNCTION_LINES}"
                    )


def check_import(where: str, part: str, module: str, top_level: bool, findings: Findings) -> None:
    parts_allowed, packages_allowed = PYTHON_LAYERS[part]
    names = module.split(".")
    if names[0] == "msprobe":
        target = names[1] if len(names) > 1 and names[1] in PYTHON_LAYERS else ""
        if target == part or target in parts_allowed:
            return
        # The package itself reaches its parts lazily, so that `msprobe --help` never imports torch.
        if part == "" and not top_level:
            return
        findings.errors.append(f"{where}: {part or 'the package'} imports {module}")
    elif names[0] not in sys.stdlib_module_names and names[0] not in packages_allowed:
        findings.errors.append(f"{where}: {part or 'the package'} may not import {names[0]}")


def check(root: Path) -> Findings:
    """Check one source tree."""
    findings = Findings()
    check_cpp(root, findings)
    check_python(root, findings)
    return findings


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parent.parent
    findings = check(root)
    for text in findings.warnings:
        print(f"warning: {text}")
    for text in findings.errors:
        print(f"error: {text}")
    print(f"layers: {len(findings.errors)} errors, {len(findings.warnings)} warnings")
    return 1 if findings.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
