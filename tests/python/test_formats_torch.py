"""PyTorch reads the .pt files that the core writes (``formats::WritePt``).

The files lie in tests/data/formats/written; src/formats/writer_test.cc shows that the core writes exactly these bytes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

WRITTEN = Path(__file__).resolve().parents[1] / "data" / "formats" / "written"
DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("complex32", "complex64", "complex128"),
]
# Types for which torch.load fails on what torch.save itself writes for a tensor that requires gradients.
NO_GRADIENT = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"}
SHAPES = {
    "rank0": (),
    "rank1_empty": (0,),
    "rank3": (2, 1, 3),
    "rank5": (1, 2, 1, 2, 300),
    "wide_empty": (0, 3_000_000_000),
}


def raw_bytes(t: torch.Tensor) -> bytes:
    """Elements of ``t`` in row-major order, as they lie in memory."""
    flat = t.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def expected_bytes(count: int, dtype: str) -> bytes:
    """The pattern that writer_test.cc fills tensors with."""
    return bytes(k % 2 if dtype == "bool" else (7 * k + 1) % 256 for k in range(count))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_loads_written_pt_of_every_dtype(dtype: str, mmap: bool) -> None:
    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip(f"this PyTorch has no torch.{dtype}")
    t = torch.load(WRITTEN / f"{dtype}.pt", weights_only=True, mmap=mmap)
    assert t.dtype == kind
    assert tuple(t.shape) == (2, 3)
    assert t.is_contiguous()
    assert raw_bytes(t) == expected_bytes(6 * t.element_size(), dtype)
    differentiable = t.is_floating_point() or t.is_complex()
    assert t.requires_grad == (differentiable and dtype not in NO_GRADIENT)


@pytest.mark.parametrize("name", SHAPES)
def test_torch_loads_written_pt_of_every_rank(name: str) -> None:
    t = torch.load(WRITTEN / f"{name}.pt", weights_only=True)
    assert t.dtype == torch.int16
    assert tuple(t.shape) == SHAPES[name]
    assert raw_bytes(t) == expected_bytes(2 * t.numel(), "int16")
    assert t.stride() == torch.empty(SHAPES[name], dtype=torch.int16).stride()


def test_written_pt_is_a_sound_zip_archive_with_aligned_data() -> None:
    path = WRITTEN / "float32.pt"
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = ["archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/version"]
        assert archive.namelist() == names
        storage = archive.read("archive/data/0")
    assert content.find(storage) % 64 == 0
