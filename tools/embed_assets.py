#!/usr/bin/env python3
"""Make the C++ source that holds styles and scripts of the HTML reports.

    tools/embed_assets.py --source src/report/html --out html_assets.cc [--dygraphs FOLDER]

The libraries come from installed packages (Tabulator: PyPI's django-js-lib-tabulator; dygraphs: Debian's
libjs-dygraphs) and must have the checksums below, so every build embeds the same bytes. Exit status 1 with the
reason when a file is missing or another one.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import re
import sys
from pathlib import Path

STYLES = ["report.css"]
SCRIPTS = ["core.js", "detail.js", "table.js", "plot.js", "tree.js", "parts.js", "main.js"]
TABULATOR = "django-js-lib-tabulator==6.3.1.1"
SHA256 = {
    "tabulator.min.js": "e952272c3b2afa4ebb60cef5db8cbe9cbaabaa52b50c3cd3d22993ca5215a6ff",
    "tabulator_simple.min.css": "8a7431ff86fa6aa02943b70470df77fa7094e7eac9f2420b6780c6970c7345eb",
    "dygraph.min.js": "065bb9a7158dadc02b1c204b962dcc45279304dffbe80d5cb898ff33afac5c40",
    "dygraph.min.css": "26c4ef2356454f40e108e4d9649bf92139671cb49ef214ec1879fd8ffad848c9",
}


def library(folder: Path, name: str, package: str) -> str:
    """One file of a library, checked; without its reference to a source map, which a browser would look for."""
    path = folder / name
    if not path.is_file():
        sys.exit(f"{path} is missing; install {package}, or configure with -DMSPROBE_HTML=OFF")
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[name]:
        sys.exit(f"{path} has sha256 {found}, expected {SHA256[name]}: another version of {package}")
    text = re.sub(r"\n?/[/*]# sourceMappingURL=[^\n]*", "", data.decode()).strip()
    if re.search(r"</(script|style)", text, re.IGNORECASE):
        sys.exit(f"{path} would end the element that it stands in")
    return text + "\n"


def tabulator_folder() -> Path:
    """Where the Python package keeps Tabulator."""
    spec = importlib.util.find_spec("js_lib_tabulator")
    if spec is None or spec.origin is None:
        sys.exit(f"this Python ({sys.executable}) has no Tabulator: pip install {TABULATOR}, or -DMSPROBE_HTML=OFF")
    return Path(spec.origin).parent / "static" / "tabulator"


def literal(text: str) -> str:
    """A C++ string literal, in pieces that every compiler takes."""
    data = text.encode()
    pieces = []
    for start in range(0, len(data), 4096):
        piece = data[start : start + 4096]
        # Octal escapes have a fixed length; '?' would make trigraphs.
        pieces.append(
            '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in piece) + '"'
        )
    return "\n    ".join(pieces) or '""'


def policy(scripts: list[str]) -> str:
    """Nothing from outside, and no script but these."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dygraphs", type=Path, default=Path("/usr/share/javascript/dygraphs"))
    args = parser.parse_args()
    tabulator = tabulator_folder()
    scripts = [
        library(tabulator / "js", "tabulator.min.js", TABULATOR),
        library(args.dygraphs, "dygraph.min.js", "libjs-dygraphs"),
        '"use strict";\n(() => {\n' + "\n".join((args.source / s).read_text() for s in SCRIPTS) + "})();\n",
    ]
    style = library(tabulator / "css", "tabulator_simple.min.css", TABULATOR)
    style += library(args.dygraphs, "dygraph.min.css", "libjs-dygraphs")
    style += "\n".join((args.source / s).read_text() for s in STYLES)
    values = {
        "kHtmlPolicy": policy(scripts),
        "kHtmlStyle": style,
        "kHtmlScripts": "".join(f"<script>{s}</script>\n" for s in scripts),
        "kHtmlNotices": (args.source / "NOTICES").read_text(),
    }
    out = ["// Made by tools/embed_assets.py.", '#include "report/html_assets.h"', "namespace msprobe::report {"]
    for name, text in values.items():
        # The size is given: a view of a literal this long would count its characters at compile time.
        out.append(f"constinit const std::string_view {name}(\n    {literal(text)},\n    {len(text.encode())});")
    args.out.write_text("\n".join([*out, "}  // namespace msprobe::report", ""]))


if __name__ == "__main__":
    main()
