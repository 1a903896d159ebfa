"""Tensor files as replays read them: every type, and files that are not what their record says."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe.precheck.inputs import InputMaker, Unsupported, read_tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_read_are_those_that_torch_reads(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = (torch.randn(5, 7, 3) * 3).abs().to(dtype)
    for name, saved in (
        ("whole", whole),
        ("turned", whole.transpose(0, 2)),
        ("slice", whole[1:4, ::2]),
        ("one", whole[0, 0, 0]),
        ("none", whole[:, :0]),
        ("parameter", torch.nn.Parameter(whole, requires_grad=False)),
    ):
        torch.save(saved, tmp_path / f"{name}.pt")
        expected = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        found = read_tensor(str(tmp_path), f"{name}.pt", "input.0")
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.is_contiguous()
        assert found.flatten().tolist() == expected.flatten().tolist()


def test_numpy_files_are_read(tmp_path: Path) -> None:
    expected = np.arange(12.0).reshape(3, 4).T
    np.save(tmp_path / "a.npy", expected)
    assert read_tensor(str(tmp_path), "a.npy", "input.0").tolist() == expected.tolist()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/msprobe-was-here",)


def broken_files(folder: Path) -> dict[str, str]:
    """Files with the start of the reason that they must have."""
    torch.save(torch.zeros(4), folder / "good.pt")
    whole = (folder / "good.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.pt").write_bytes(b"")
    (folder / "folder.pt").mkdir()
    torch.save({"a": torch.zeros(4)}, folder / "dict.pt")
    torch.save(torch.zeros(5), folder / "shape.pt")
    torch.save(torch.zeros(4, dtype=torch.float64), folder / "dtype.pt")
    with zipfile.ZipFile(folder / "evil.pt", "w") as z:
        z.writestr("evil/data.pkl", pickle.dumps(Evil(), protocol=2))
    outside = folder.parent / "outside.pt"
    torch.save(torch.zeros(4), outside)
    (folder / "link.pt").symlink_to(outside)
    bad = ("cut.pt", "empty.pt", "folder.pt", "dict.pt", "shape.pt", "dtype.pt", "evil.pt")
    reasons = dict.fromkeys(bad, "bad_data_file: ")
    return reasons | {
        "link.pt": "bad_path: ",
        "../outside.pt": "bad_path: ",
        "..": "bad_path: ",
        "missing.pt": "no_data_file: ",
    }


def test_files_that_are_not_what_their_record_says_have_a_typed_reason(tmp_path: Path) -> None:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    maker = InputMaker("Torch.exp.0", "exp", 0, str(folder), True)
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4]}
    for name, reason in broken_files(folder).items():
        with pytest.raises(Unsupported) as caught:
            maker.make({"input_args": [{**record, "data_name": name}], "input_kwargs": {}})
        assert str(caught.value).startswith(reason), (name, caught.value)
    assert not Path("/tmp/msprobe-was-here").exists()
    for name in ("good.pt", "/from/another/machine/good.pt"):  # earlier releases write whole paths
        made = maker.make({"input_args": [{**record, "data_name": name}], "input_kwargs": {}})
        assert made.args[0].tolist() == [0, 0, 0, 0]
