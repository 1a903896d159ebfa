"""A dump of MindSpore (npy tensors, Cell, Mint, Functional and Primitive names) against one of PyTorch, by mapping.

The network is x -> LayerNorm -> Dense -> relu -> matmul -> add, its values worked out by NumPy once for both sides.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli_support import Run, dump, tensor, write_json
from numpy.typing import NDArray

Array = NDArray[Any]
Msprobe = Callable[..., Run]
_RNG = np.random.default_rng(11)
X: Array = _RNG.standard_normal((3, 4)).astype(np.float32)
WEIGHT: Array = _RNG.standard_normal((4, 4)).astype(np.float32)
SCALE: Array = _RNG.standard_normal(4).astype(np.float32)
NORM: Array = ((X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True) * SCALE).astype(np.float32)
DENSE: Array = NORM @ WEIGHT.T
RELU: Array = np.maximum(DENSE, 0)
PRODUCT: Array = RELU @ WEIGHT
SUM: Array = PRODUCT + X


class Side:
    """One dump being made."""

    def __init__(self, folder: Path, framework: str) -> None:
        self.folder, self.framework = folder, framework
        self.tensors = folder / "dump_tensor_data"
        self.tensors.mkdir(parents=True)
        self.data: dict[str, Any] = {}
        self.construct: dict[str, str | None] = {}

    def leaf(self, name: str, array: Array) -> dict[str, Any]:
        mindspore = self.framework == "mindspore"
        np.save(self.tensors / f"{name}.npy", array)
        wide = array.astype(np.float64)
        return {
            "type": "mindspore.Tensor" if mindspore else "torch.Tensor",
            "dtype": "Float32" if mindspore else "torch.float32",
            "shape": list(array.shape),
            "Max": wide.max(),
            "Min": wide.min(),
            "Mean": wide.mean(),
            "Norm": float(np.linalg.norm(wide)),
            "requires_grad": False,
            "data_name": f"{name}.npy",
        }

    def add(self, name: str, inputs: list[Array], output: Array, parent: str | None = None, **weights: Array) -> None:
        entry: dict[str, Any] = {
            "input_args": [self.leaf(f"{name}.input.{i}", a) for i, a in enumerate(inputs)],
            "input_kwargs": {},
            "output": [self.leaf(f"{name}.output.0", output)],
        }
        if weights:
            entry["parameters"] = {k: self.leaf(f"{name}.parameters.{k}", a) for k, a in weights.items()}
        self.data[name] = entry
        self.construct[name] = parent

    def write(self) -> Path:
        header = {"task": "tensor", "level": "mix", "framework": self.framework}
        write_json(self.folder / "construct.json", self.construct)
        return write_json(self.folder / "dump.json", dump(self.data, **header))


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """tmp_path with m/ (MindSpore, the target) and p/ (PyTorch)."""
    m = Side(tmp_path / "m", "mindspore")
    m.add("Cell.net.norm.LayerNorm.forward.0", [X], NORM, "Cell.net.Net.forward.0", gamma=SCALE)
    m.add("Cell.net.head.Dense.forward.0", [NORM], DENSE, "Cell.net.Net.forward.0", weight=WEIGHT)
    m.add("Mint.relu.0.forward", [DENSE], RELU, "Cell.net.Net.forward.0")
    m.add("Primitive.MatMul.0.forward", [RELU, WEIGHT], PRODUCT, "Cell.net.Net.forward.0")
    m.add("Functional.add.0.forward", [X, PRODUCT], SUM, "Cell.net.Net.forward.0")
    m.write()
    p = Side(tmp_path / "p", "pytorch")
    p.add("Module.module.norm.LayerNorm.forward.0", [X], NORM, "Module.module.Net.forward.0", weight=SCALE)
    p.add("Module.module.fc.Linear.forward.0", [NORM], DENSE, "Module.module.Net.forward.0", weight=WEIGHT)
    p.add("Functional.relu.0.forward", [DENSE], RELU, "Module.module.Net.forward.0")
    p.add("Torch.matmul.0.forward", [RELU, WEIGHT], PRODUCT, "Module.module.Net.forward.0")
    p.add("Torch.add.0.forward", [PRODUCT, X], SUM, "Module.module.Net.forward.0")
    p.write()
    return tmp_path


def partners(folder: Path) -> dict[str, str]:
    (path,) = folder.glob("compare_result_*.csv")
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {row["NPU Name"]: row["Bench Name"] for row in csv.DictReader(file)}


def counts(folder: Path) -> dict[str, int]:
    (path,) = folder.glob("compare_summary_*.json")
    found: dict[str, int] = json.loads(path.read_text())["counts"]
    return found


COMMAND = ("compare", "-tp", "m/dump.json", "-gp", "p/dump.json", "-o", "out", "--rules", "base")

API_FILE = """\
- {ms_api: Mint.relu, pt_api: Functional.relu}
- {ms_api: Primitive.MatMul, pt_api: Torch.matmul}
- {ms_api: Functional.add, pt_api: Torch.add, ms_args: [0, 1], pt_args: [1, 0]}
- {ms_api: Cell.net.norm.LayerNorm, pt_api: Module.module.norm.LayerNorm, ms_parameters: [gamma],
   pt_parameters: [weight]}
- {ms_api: Cell.net.head.Dense, pt_api: Module.module.fc.Linear}
"""


def test_api_mapping_file_pairs_every_tensor(dumps: Path, msprobe: Msprobe) -> None:
    (dumps / "api.yaml").write_text(API_FILE)
    run = msprobe(*COMMAND, "-am", "api.yaml")
    assert run.status == 0, run.err
    found = partners(dumps / "out")
    assert found["Functional.add.0.forward.input.0"] == "Torch.add.0.forward.input.1"
    assert (
        found["Cell.net.norm.LayerNorm.forward.0.parameters.gamma"]
        == "Module.module.norm.LayerNorm.forward.0.parameters.weight"
    )
    got = counts(dumps / "out")
    assert (got["pass"], got["unmatched"], got["total"]) == (14, 0, 14)


def test_api_mapping_alone_pairs_functions_of_like_names_and_cell_mapping_the_cells(
    dumps: Path, msprobe: Msprobe
) -> None:
    (dumps / "cell.yaml").write_text("net.head.Dense: module.fc.Linear\nnet.norm: module.norm\n")
    run = msprobe(*COMMAND, "-am", "-cm", "cell.yaml")
    assert run.status == 0, run.err
    found = partners(dumps / "out")
    assert found["Mint.relu.0.forward.output.0"] == "Functional.relu.0.forward.output.0"
    assert found["Primitive.MatMul.0.forward.input.1"] == "Torch.matmul.0.forward.input.1"
    assert found["Cell.net.head.Dense.forward.0.output.0"] == "Module.module.fc.Linear.forward.0.output.0"
    got = counts(dumps / "out")
    # gamma and weight; without a file the arguments of add stand crosswise: two shapes differ in no way, values do.
    assert (got["unmatched"], got["total"]) == (2, 15)


def test_layer_mapping_pairs_by_place_and_writes_the_row_map(dumps: Path, msprobe: Msprobe) -> None:
    (dumps / "layer.yaml").write_text("TopLayer: {net: module}\nNet: {head: fc}\nCell: {matmul: matmul}\n")
    # `Cell` is an older word for TopLayer; the class of net is not recorded here, so its children have no rules.
    run = msprobe(*COMMAND, "-lm", "layer.yaml")
    assert run.status == 0, run.err
    found = partners(dumps / "out")
    assert found["Cell.net.norm.LayerNorm.forward.0.output.0"] == "Module.module.norm.LayerNorm.forward.0.output.0"
    assert found["Mint.relu.0.forward.input.0"] == "Functional.relu.0.forward.input.0"
    assert found["Functional.add.0.forward.output.0"] == "Torch.add.0.forward.output.0"
    assert found["Cell.net.head.Dense.forward.0.output.0"] == "N/A"
    (mapping,) = (dumps / "out").glob("data_mapping_*.yaml")
    assert yaml.safe_load(mapping.read_text()) == {
        target: golden for target, golden in found.items() if target != "N/A"
    }
    again = msprobe(*(w if w != "out" else "again" for w in COMMAND), "-dm", str(mapping))
    assert again.status == 0, again.err
    assert partners(dumps / "again") == found


def test_layer_mapping_renames_children_by_the_class_of_their_parent(dumps: Path, msprobe: Msprobe) -> None:
    for side, net in (("m", "Cell.net.Net.forward.0"), ("p", "Module.module.Net.forward.0")):
        path = dumps / side / "dump.json"
        whole = json.loads(path.read_text())
        whole["data"][net] = {"input_args": [], "input_kwargs": {}, "output": []}
        write_json(path, whole)
    (dumps / "layer.yaml").write_text("TopLayer:\n  net: module\nNet:\n  head: fc (the classifier)\n  MatMul: matmul\n")
    run = msprobe(*COMMAND, "-lm", "layer.yaml")
    assert run.status == 0, run.err
    found = partners(dumps / "out")
    assert found["Cell.net.head.Dense.forward.0.output.0"] == "Module.module.fc.Linear.forward.0.output.0"
    assert found["Primitive.MatMul.0.forward.output.0"] == "Torch.matmul.0.forward.output.0"


def test_api_mapping_is_refused_for_pytorch_targets(dumps: Path, msprobe: Msprobe) -> None:
    run = msprobe("compare", "-tp", "p/dump.json", "-gp", "p/dump.json", "-o", "out", "-am")
    assert run.status == 2
    assert run.errors()[0].startswith("-am: is not for PyTorch dumps, and p/dump.json is one")
    assert run.files() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-am", "-dm", "x.yaml"], ["-am", "-dm"]),
        (["-lm", "-fm"], ["-lm", "-fm"]),
        (["-lm", "-cm"], ["-cm", "-lm"]),
        (["-am", "-lm"], ["-am", "-lm"]),
        (["-lm", "--consistent_check", "--backend", "fsdp"], ["-lm", "--consistent_check"]),
        (["-am", "gone.yaml"], ["gone.yaml"]),
        (["-lm", "gone.yaml"], ["gone.yaml"]),
    ],
)
def test_mappings_that_cannot_be_used_are_refused(
    dumps: Path, msprobe: Msprobe, options: list[str], words: list[str]
) -> None:
    (dumps / "x.yaml").write_text("a: b\n")
    run = msprobe(*COMMAND, *options)
    assert run.status == 2
    for word in words:
        assert word in "\n".join(run.errors())
    assert run.files() == []


def test_python_takes_both_mappings(dumps: Path) -> None:
    import msprobe

    (dumps / "api.yaml").write_text(API_FILE)
    params = {"npu_path": str(dumps / "m" / "dump.json"), "bench_path": str(dumps / "p" / "dump.json")}
    named = msprobe.compare(params, str(dumps / "out"), api_mapping=str(dumps / "api.yaml"), rules="base")
    assert (named.counts["pass"], named.counts["unmatched"]) == (14, 0)
    placed = msprobe.compare(params, str(dumps / "out"), layer_mapping=True, rules="base")
    assert placed.counts["unmatched"] > 0  # net and module are not one place without a rule
    with pytest.raises(msprobe.ConfigError, match="api_mapping has no effect beside layer_mapping"):
        msprobe.compare(params, str(dumps / "out"), api_mapping=True, layer_mapping=True)
    with pytest.raises(msprobe.ConfigError):
        msprobe.compare(params, str(dumps / "out"), layer_mapping=str(dumps / "gone.yaml"))


def test_a_mindspore_dump_of_statistics_meets_pytorch(tmp_path: Path, msprobe: Msprobe) -> None:
    leaf = tensor(type="mindspore.Tensor", dtype="Float32")
    call = {"input_args": [leaf], "input_kwargs": {}, "output": [leaf | {"Norm": 9.0}]}
    write_json(tmp_path / "m" / "dump.json", dump({"Mint.exp.0.forward": call}, framework="mindspore"))
    golden = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
    write_json(tmp_path / "p" / "dump.json", dump({"Torch.exp.0.forward": golden}))
    run = msprobe("compare", "-tp", "m/dump.json", "-gp", "p/dump.json", "-o", "out", "-am")
    assert run.status == 0, run.err
    got = counts(tmp_path / "out")
    assert (got["error"], got["unmatched"]) == (1, 0)
