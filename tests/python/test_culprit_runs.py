"""One dump by itself, constants learned from clean runs, the level of discoveries, and collectives over ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_culprit_search import Wrong, net, run, search

from msprobe import _core


def command(*arguments: Any) -> int:
    return int(_core.main(["msprobe", "compare", *(str(a) for a in arguments)]))


def summary_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(max(out.glob("compare_summary_*.json")).read_text())
    return found


def wrong_gelu(x: torch.Tensor) -> None:
    with Wrong("gelu", 1 + 1e-3):
        net()(x)


def test_one_dump_names_the_call_whose_own_result_is_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = run(tmp_path / "bad", "tensor", wrong_gelu)
    out = tmp_path / "out"
    assert command("-tp", dump, "--one-dump", "-o", out, "--fail-on", "error") == 3
    text = capfd.readouterr()
    assert "Culprit (step0 rank): introduced: Functional.gelu.0.forward" in text.out
    assert "discoveries at q = 0.001 (calibrated on CPU)" in text.out
    summary = summary_of(out)
    report = summary["culprit"]
    assert report["one_dump"] is True
    assert [f["entry"] for f in report["findings"]] == ["Functional.gelu.0.forward"]
    assert summary["first_bad"]["entry"] == "Functional.gelu.0.forward"
    counts = summary["counts"]
    assert counts["error"] == 1
    assert counts["total"] == counts["pass"] + counts["error"] + counts["unmatched"]
    good = run(tmp_path / "good", "tensor", net())
    assert command("-tp", good, "--one-dump", "-o", tmp_path / "out2", "--fail-on", "error") == 0
    assert summary_of(tmp_path / "out2")["culprit"]["verdict"] == "none"


def test_one_dump_without_tensors_is_not_judged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = run(tmp_path / "d", "statistics", net())
    assert command("-tp", dump, "--one-dump", "-o", tmp_path / "out") == 0
    assert "not judged: the dump holds no tensors" in capfd.readouterr().out
    assert command("-tp", dump, "--one-dump", "-o", tmp_path / "out", "--fail-on", "culprit") == 3


def many(x: torch.Tensor) -> None:
    """Enough calls to learn from, each of other numbers."""
    torch.manual_seed(5)
    for _ in range(20):
        x = F.layer_norm(F.linear(torch.tanh(x), torch.randn(8, 8)), [8])
        torch.softmax(torch.exp(x), -1)


def test_constants_are_learned_written_and_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a = run(tmp_path / "a", "tensor", many)
    b = run(tmp_path / "b", "tensor", many, moved=True)
    file = tmp_path / "constants.json"
    assert command("--learn-floor", a, b, "-o", file) == 0
    text = capfd.readouterr()
    floor = json.loads(file.read_text())
    assert floor["learned_from"] == [str(a), str(b)]
    # randn draws and is left out: 20 rounds of linear, tanh, layer_norm, exp and softmax in each run.
    assert floor["entries"] == 200
    assert floor["limit"] >= 4
    assert f"Learned from {floor['entries']} replayed entries" in text.out
    out = tmp_path / "out"
    report = search(b, a, out, "--floor", file)["culprit"]
    assert report["discoveries"]["calibrated"] == "on your device from 200 entries"
    # A floor that calls nothing a discovery: the same fault is silent.
    bad = run(tmp_path / "bad", "tensor", wrong_gelu, moved=True)
    good = run(tmp_path / "good", "tensor", net())
    assert search(bad, good, tmp_path / "o1", "--floor", file)["culprit"]["findings"]
    file.write_text(json.dumps(floor | {"limit": 1e8}))
    assert search(bad, good, tmp_path / "o2", "--floor", file)["culprit"]["findings"] == []


def test_the_level_of_discoveries_is_an_option(tmp_path: Path) -> None:
    bad = run(tmp_path / "bad", "tensor", wrong_gelu, moved=True)
    good = run(tmp_path / "good", "tensor", net())
    found = search(bad, good, tmp_path / "o1", "--q", "0.05")["culprit"]
    assert found["discoveries"]["q"] == 0.05
    assert found["discoveries"]["count"] >= 1
    # p of a score of at most 1e-3 * 2^24 is at least 0.0036 * 16777^-3.47, which is about 8e-18.
    silent = search(bad, good, tmp_path / "o2", "--q", "1e-20")["culprit"]
    assert silent["discoveries"] == {"q": 1e-20, "count": 0, "calibrated": "on CPU"}
    assert silent["findings"] == []


def test_options_that_contradict_each_other_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = run(tmp_path / "d", "statistics", net())
    broken = tmp_path / "floor.json"
    broken.write_text('{"entries": 5}')
    for arguments, words in (
        (["--one-dump"], "-tp"),
        (["--one-dump", "-tp", dump, "-gp", dump], "has no golden run"),
        (["--one-dump", "-tp", dump, "--learn-floor", dump, dump], "contradicts --learn-floor"),
        (["--learn-floor", dump, dump, "-gp", dump], "names both runs itself"),
        (["--learn-floor", dump, dump, "--floor", broken], "is what --learn-floor makes"),
        (["-tp", dump, "-gp", dump, "--floor", broken], "entries is no number"),
        (["-tp", dump, "-gp", dump, "--floor", tmp_path / "none.json"], "no such file"),
        (["-tp", dump, "-gp", dump, "--q", "1.5"], "no level between 0 and 1"),
        (["-tp", tmp_path / "none", "--one-dump"], "does not exist"),
    ):
        assert command(*arguments, "-o", tmp_path / "out") == 2, arguments
        assert words in capfd.readouterr().err, arguments
    # Too few calls, none of them with tensors: work that could not be done.
    assert command("--learn-floor", dump, dump, "-o", tmp_path / "f.json") == 1
    assert "0 scores of clean replays are too few" in capfd.readouterr().err
    assert not (tmp_path / "f.json").exists()


def ranks(folder: Path, name: str, given: list[list[float]], received: list[list[float]]) -> Path:
    """A step in which every rank makes one all_reduce, and then doubles the result."""
    for rank, (x, y) in enumerate(zip(given, received, strict=True)):
        place = folder / name / "step0" / f"rank{rank}"
        (place / "dump_tensor_data").mkdir(parents=True)

        def leaf(kind: str, values: list[float], place: Path = place) -> dict[str, Any]:
            tensor = torch.tensor(values, dtype=torch.float32)
            torch.save(tensor, place / "dump_tensor_data" / f"{kind}.pt")
            shape = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [len(values)], "requires_grad": False}
            figures = {"Max": tensor.max().item(), "Min": tensor.min().item(), "Mean": tensor.mean().item()}
            return {**shape, **figures, "Norm": tensor.norm().item(), "data_name": f"{kind}.pt"}

        data = {
            "Distributed.all_reduce.0.forward": {
                "input_args": [leaf("given", x)],
                "input_kwargs": {},
                "output": [leaf("received", y)],
            },
            "Torch.mul.0.forward": {
                "input_args": [leaf("again", y), {"type": "int", "value": 2}],
                "input_kwargs": {},
                "output": [leaf("twice", [2 * v for v in y])],
            },
        }
        head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": "dump_tensor_data"}
        (place / "dump.json").write_text(json.dumps({**head, "data": data, "msprobe": {"world_size": len(given)}}))
    return folder / name


def test_collectives_are_judged_from_the_inputs_of_all_ranks(tmp_path: Path) -> None:
    golden = ranks(tmp_path, "golden", [[1, 2], [3, 5]], [[4, 7], [4, 7]])
    # Rank 0 gave another number: its state; what rank 1 received follows from that, and is no fault of its own.
    moved = ranks(tmp_path, "moved", [[2, 2], [3, 5]], [[5, 7], [5, 7]])
    by_rank = {r["rank"]: r["culprit"] for r in search(moved, golden, tmp_path / "o1")["ranks"]}
    assert [f["kind"] for f in by_rank["rank0"]["findings"]] == ["state"]
    assert by_rank["rank1"]["findings"] == []
    assert by_rank["rank1"]["collectives"] == {"from_all_ranks": 1, "by_growth": {}}
    # The sum itself is wrong on rank 1.
    wrong = ranks(tmp_path, "wrong", [[1, 2], [3, 5]], [[4, 7], [4, 8]])
    by_rank = {r["rank"]: r["culprit"] for r in search(wrong, golden, tmp_path / "o2")["ranks"]}
    assert by_rank["rank0"]["findings"] == []
    finding = by_rank["rank1"]["findings"][0]
    assert (finding["kind"], finding["rule"]) == ("introduced", 9)
    assert finding["entry"] == "Distributed.all_reduce.0.forward"
    assert finding["numbers"]["deviation"] == pytest.approx(1 / (16 + 49) ** 0.5)
    # Without a golden run, too.
    assert command("-tp", wrong, "--one-dump", "-o", tmp_path / "o3", "--fail-on", "error") == 3
    assert summary_of(tmp_path / "o3")["first_bad"]["rank"] == "rank1"
