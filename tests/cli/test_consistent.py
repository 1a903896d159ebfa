"""`--consistent_check`: a training dump against an inference dump whose modules are fused."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import DATA, dump, write_json
from numpy.typing import NDArray

Array = NDArray[Any]
WIDTH = 4
_RNG = np.random.default_rng(7)
X: Array = _RNG.standard_normal((3, WIDTH)).astype(np.float32)
W: dict[str, Array] = {name: _RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) for name in "qkvoguda"}
IDS: Array = np.arange(3)
ONES: Array = np.ones(WIDTH, np.float32)


class Side:
    """One dump being made: entries of modules with their tensors in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors = folder / "dump_tensor_data"
        self.tensors.mkdir(parents=True)
        self.data: dict[str, Any] = {}

    def leaf(self, name: str, array: Array) -> dict[str, Any]:
        file = f"{name}.npy"
        np.save(self.tensors / file, array)
        wide = array.astype(np.float64)
        return {
            "type": "torch.Tensor",
            "dtype": f"torch.{array.dtype}",
            "shape": list(array.shape),
            "Max": wide.max(),
            "Min": wide.min(),
            "Mean": wide.mean(),
            "Norm": float(np.linalg.norm(wide)),
            "requires_grad": False,
            "data_name": file,
        }

    def add(
        self,
        module: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        weight: Array | None = None,
        call: str = "forward.0",
    ) -> None:
        entry = f"{module}.{call}"
        kind = "input_args" if call.startswith("forward") else "input"
        body: dict[str, Any] = {kind: [self.leaf(f"{entry}.input.{i}", a) for i, a in enumerate(inputs)]}
        if kind == "input_args":
            body["input_kwargs"] = {}
        body["output"] = [self.leaf(f"{entry}.output.{i}", a) for i, a in enumerate(outputs)]
        if weight is not None:
            body["parameters"] = {"weight": self.leaf(f"{entry}.parameters.weight", weight)}
        self.data[entry] = body

    def finish(self) -> None:
        whole = dump(self.data, task="tensor", level="L0", dump_data_dir=str(self.tensors))
        write_json(self.folder / "dump.json", whole)


def training_fsdp(folder: Path) -> None:
    """Two steps; after the first a backward pass with a recomputed module, which does not count."""
    side = Side(folder)
    top = "Module._fsdp_wrapped_module.model."
    x = X[None]
    for n in range(2):
        call = f"forward.{n}"
        side.add(top + "embed_tokens.Embedding", [IDS], [x], call=call)
        for layer in range(2):
            at = top + f"layers.{layer}._fsdp_wrapped_module."
            side.add(at + "input_layernorm.Qwen2RMSNorm", [x], [x * 2], ONES, call)
            for k in "qkv":
                side.add(at + f"self_attn.{k}_proj.Linear", [x * 2], [(X @ W[k])[None]], W[k], call)
            side.add(at + "self_attn.o_proj.Linear", [x], [(X @ W["o"])[None]], W["o"], call)
            side.add(at + "self_attn.Qwen2Attention", [x], [(X @ W["o"])[None]], call=call)
            side.add(at + "mlp.gate_proj.Linear", [x], [(X @ W["g"])[None]], W["g"], call)
            side.add(at + "mlp.up_proj.Linear", [x], [(X @ W["u"])[None]], W["u"], call)
            side.add(at + "mlp.act_fn.SiLU", [x], [(X @ W["a"])[None]], call=call)
            side.add(at + "mlp.down_proj.Linear", [x], [(X @ W["d"])[None]], W["d"], call)
        side.add(top + "norm.Qwen2RMSNorm", [x], [x * 2], ONES, call)
        side.add(top + "Qwen2Model", [IDS], [x], call=call)
        if n == 0:
            side.add(top + "Qwen2Model", [x], [x], call="backward.0")
            side.add(top + "layers.0._fsdp_wrapped_module.mlp.act_fn.SiLU", [x], [x], call="backward.0")
    side.finish()


def training_megatron(folder: Path) -> None:
    side = Side(folder)
    x = X[:, None]
    side.add("Module.module.module.embedding.word_embeddings.VocabParallelEmbedding", [IDS], [x])
    fused = {k: np.concatenate([W[i] for i in k], axis=0) for k in ("qkv", "gu")}
    wide = {k: np.concatenate([X @ W[i] for i in k], axis=1)[:, None] for k in ("qkv", "gu")}
    for layer in range(2):
        at = f"Module.module.module.decoder.layers.{layer}."
        side.add(at + "input_layernorm.RMSNorm", [x], [x * 2], ONES)
        side.add(at + "self_attention.linear_qkv.ColumnParallelLinear", [x * 2], [wide["qkv"]], fused["qkv"])
        side.add(at + "self_attention.core_attention.DotProductAttention", [x], [x])
        side.add(at + "self_attention.linear_proj.RowParallelLinear", [x], [(X @ W["o"])[:, None]], W["o"])
        side.add(at + "mlp.linear_fc1.ColumnParallelLinear", [x], [wide["gu"]], fused["gu"])
        side.add(at + "mlp.linear_fc2.RowParallelLinear", [x], [(X @ W["d"])[:, None]], W["d"])
    side.finish()


def inference(folder: Path, shift: float = 0.0) -> None:
    """`shift` is added to the fused attention projection of layer 1."""
    side = Side(folder)
    for n in range(2):
        call = f"forward.{n}"
        side.add("Module.model.embed_tokens.VocabParallelEmbedding", [IDS], [X], call=call)
        for layer in range(2):
            at = f"Module.model.layers.{layer}."
            qkv = np.concatenate([X @ W[k] for k in "qkv"], axis=1) + np.float32(shift * layer)
            side.add(at + "input_layernorm.RMSNorm", [X], [X * 2], ONES, call)
            weight = np.concatenate([W[k] for k in "qkv"], axis=0)
            side.add(at + "self_attn.qkv_proj.QKVParallelLinear", [X * 2], [qkv], weight, call)
            side.add(at + "self_attn.attn.Attention", [X], [X], call=call)
            side.add(at + "self_attn.o_proj.RowParallelLinear", [X], [X @ W["o"]], W["o"], call)
            side.add(at + "self_attn.Qwen2Attention", [X], [X @ W["o"]], call=call)
            gate_up = np.concatenate([X @ W[k] for k in "gu"], axis=1)
            weight = np.concatenate([W[k] for k in "gu"], axis=0)
            side.add(at + "mlp.gate_up_proj.MergedColumnParallelLinear", [X], [gate_up], weight, call)
            side.add(at + "mlp.act_fn.SiluAndMul", [X], [X @ W["a"]], call=call)
            side.add(at + "mlp.down_proj.RowParallelLinear", [X], [X @ W["d"]], W["d"], call)
        side.add("Module.model.norm.RMSNorm", [X], [X * 2], ONES, call)
    side.finish()


TRAINING = {"fsdp": training_fsdp, "megatron": training_megatron}


def compare(msprobe: Any, where: Path, backend: str, *more: str) -> list[dict[str, str]]:
    args = ["compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out", "--no-html"]
    run = msprobe(*args, "--consistent_check", "--backend", backend, *more)
    assert run.status == 0, run.err
    (path,) = (where / "out").glob("compare_result_*.csv")
    with path.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_rows_meet_as_in_the_recorded_report(tmp_path, msprobe, backend):
    TRAINING[backend](tmp_path / "t")
    inference(tmp_path / "g")
    rows = compare(msprobe, tmp_path, backend, "--rules", "base")
    wanted = json.loads((DATA / "consistent" / "pairs.json").read_text())[backend]
    assert sorted([r["NPU Name"], r["Bench Name"]] for r in rows) == sorted(wanted)
    paired = [r for r in rows if "N/A" not in (r["NPU Name"], r["Bench Name"])]
    assert {(r["Result"], r["Err_message"], r["One Thousandth Err Ratio"]) for r in paired} == {("pass", "[]", "1.0")}
    assert {r["Result"] for r in rows if r not in paired} == {"unmatched"}
    assert list((tmp_path / "out").glob(".*")) == []  # the joined tensors are gone


def test_fused_outputs_are_joined_along_the_features(tmp_path, msprobe):
    training_fsdp(tmp_path / "t")
    inference(tmp_path / "g", shift=0.25)
    rows = compare(msprobe, tmp_path, "fsdp", "--rules", "base")
    bad = [r for r in rows if r["Result"] == "error"]
    assert [r["Bench Name"] for r in bad] == [
        f"Module.model.layers.1.self_attn.qkv_proj.QKVParallelLinear.forward.{n}.output.0" for n in range(2)
    ]
    ours = np.concatenate([X @ W[k] for k in "qkv"], axis=1).astype(np.float64)
    theirs = (np.concatenate([X @ W[k] for k in "qkv"], axis=1) + np.float32(0.25)).astype(np.float64)
    for row in bad:
        assert row["NPU Name"].count(";  ") == 2
        assert row["NPU Tensor Shape"] == ";".join(["[1, 3, 4]"] * 3)
        assert float(row["EucDist"]) == pytest.approx(np.linalg.norm(ours - theirs), rel=1e-9)
        assert float(row["MaxAbsErr"]) == pytest.approx(np.abs(ours - theirs).max(), abs=1e-11)
        assert float(row["NPU max"]) == ours.max()
        assert float(row["NPU min"]) == ours.min()
        assert "One Thousandth Err Ratio > 0.9 while the output < 0.6" in row["Err_message"]


def test_parts_that_cannot_be_joined_are_unmatched(tmp_path, msprobe):
    training_fsdp(tmp_path / "t")
    inference(tmp_path / "g")
    gone = (
        "Module._fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module.self_attn.k_proj.Linear.forward.0.output.0.npy"
    )
    (tmp_path / "t" / "dump_tensor_data" / gone).unlink()
    rows = compare(msprobe, tmp_path, "fsdp")
    (row,) = [r for r in rows if gone.removesuffix(".npy") in r["NPU Name"]]
    assert row["Result"] == "unmatched"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--consistent_check"], "--backend: is required"),
        (["--consistent_check", "--backend", "fdsp"], "--backend: has no value 'fdsp'; did you mean fsdp?"),
        (["--consistent_check", "--backend", "fsdp", "-fm"], "-fm: has no effect beside --consistent_check"),
        (["--consistent_check", "--backend", "fsdp", "-da"], "-da: has no effect beside --consistent_check"),
    ],
)
def test_options_are_checked(tmp_path, msprobe, more, words):
    inference(tmp_path / "g")
    run = msprobe("compare", "-tp", "g/dump.json", "-gp", "g/dump.json", *more)
    assert run.status == 2
    assert run.errors()[0].startswith(words)


def test_statistics_dumps_are_refused(pair, msprobe):
    args = ["compare", "-tp", "t/dump.json", "-gp", "g/dump.json", "-o", "out"]
    run = msprobe(*args, "--consistent_check", "--backend", "fsdp")
    assert run.status == 2
    assert "--consistent_check" in run.errors()[0]
    assert run.files() == []
