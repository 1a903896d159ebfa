"""Console entry point: `msprobe` and `python -m msprobe`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line with this process's arguments and return its exit status."""
    from msprobe import _core

    return int(_core.main(["msprobe", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
