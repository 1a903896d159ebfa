"""Make python/msprobe/pytorch/api_list.json from a YAML list of API names by namespace.

    make_api_list.py API_LIST.yaml [OUTPUT.json]

The YAML file holds `namespaces: {key: {dump_prefix, apis: {name: CORE|FOCUS|LOW}}}`. Namespaces that collection never
wraps are left out. Names keep their order: it decides between two names of one function.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
DEFAULT = HERE.parent / "python" / "msprobe" / "pytorch" / "api_list.json"
# Casts and clamp round or cut values, so the default of `risk_level` has to see them. The published list has them among
# the views.
RAISED = ("to", "type_as", "half", "float", "double", "bfloat16", "clamp")
# Where two names are one object, the first namespace here wins.
ORDER = ("functional", "_VF", "tensor", "torch", "torch_npu", "distributed", "npu_distributed", "mindspeed")


def main() -> None:
    source = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))["namespaces"]
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT
    out = {}
    for key in ORDER:
        space = source[key]
        apis = space["apis"]
        if len(apis) != space["count"]:
            raise SystemExit(f"{key}: {len(apis)} names, but count says {space['count']}")
        if set(apis.values()) - {"CORE", "FOCUS", "LOW"}:
            raise SystemExit(f"{key}: a risk class other than CORE, FOCUS, LOW")
        apis = {name: "FOCUS" if name in RAISED and risk == "LOW" else risk for name, risk in apis.items()}
        out[key] = {"prefix": space["dump_prefix"], "apis": apis}
    target.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
