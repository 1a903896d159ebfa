#!/usr/bin/env python3
"""Put the licences of the libraries that a wheel will carry into its metadata: `graft_licences.py WHEEL`.

What is compiled in and what auditwheel grafts comes from Debian packages; each has its notice at
/usr/share/doc/PACKAGE/copyright. The list of packages is found, not written: headers and archives that are compiled in
stand in tools/packages/apt-build.txt, shared libraries are asked of ldd, and dpkg names their owners.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What every Linux has, by auditwheel's policies.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libz)\b")


def shared_libraries(module: Path) -> list[Path]:
    """Real paths of the libraries that a module needs and that are no part of the system."""
    text = subprocess.run(["ldd", str(module)], check=True, capture_output=True, text=True).stdout
    found = (line.split() for line in text.splitlines() if "=>" in line)
    return [Path(words[2]).resolve() for words in found if not SYSTEM.match(words[0])]


def owner(path: Path) -> str:
    """The Debian package of a file."""
    for name in (str(path), str(path).removeprefix("/usr")):
        answer = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False).stdout
        if answer:
            return answer.split(":")[0]
    raise SystemExit(f"no package owns {path}")


def compiled_in() -> list[str]:
    """Packages of headers and archives that the build needs."""
    lines = (ROOT / "tools" / "packages" / "apt-build.txt").read_text().split("\n")
    return [name for name in lines if re.fullmatch(r"(lib.*-dev|libjs-.*|rapidjson-dev)", name)]


def python_notices() -> dict[str, bytes]:
    """Notices of what Python packages put into the wheel: the binding layer and the table of the pages."""
    out = {}
    for name in ("nanobind", "django-js-lib-tabulator"):
        files = metadata.files(name) or []
        texts = [f.read_binary() for f in files if re.search(r"(licen[cs]e|copying)[^/]*$", str(f), re.I)]
        if not texts:
            raise SystemExit(f"{name} brings no licence")
        out[name] = b"\n\n".join(texts)
    return out


def main(argv: list[str]) -> int:
    """Rewrite the wheel with `licenses/PACKAGE.txt` in its dist-info."""
    wheel = Path(argv[1])
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        module = next(Path(folder).glob("msprobe/_core*.so"))
        info = next(Path(folder).glob("*.dist-info"))
        packages = sorted({*compiled_in(), *map(owner, shared_libraries(module))})
        for package in packages:
            notice = Path("/usr/share/doc") / package / "copyright"
            target = info / "licenses" / "third-party" / f"{package}.txt"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(notice.read_bytes())
        for name, text in python_notices().items():
            (info / "licenses" / "third-party" / f"{name}.txt").write_bytes(text)
        subprocess.run([sys.executable, "-m", "wheel", "pack", folder, "-d", str(wheel.parent)], check=True,
                       capture_output=True)  # fmt: skip
    print(f"licences of {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
