"""`msprobe api_precision_compare` as a user runs it; the golden cases are judged by src/precheck/precheck_test.cc."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli_support import DATA

GOLDEN = DATA / "precheck" / "compare_ulp" / "npu.csv"
TITLES = GOLDEN.read_text(encoding="utf-8-sig").splitlines()[0].split(",")


def details(path: Path, *rows: dict[str, str], titles: list[str] = TITLES, encoding: str = "utf-8-sig") -> Path:
    """A details file; cells that a row does not name are blank."""
    usual = {"Bench Dtype": "torch.float64", "DEVICE Dtype": "torch.float32", "Shape": "(2, 2)", "Status": "pass"}
    with path.open("w", encoding=encoding, newline="") as f:
        out = csv.writer(f)
        out.writerow(titles)
        out.writerows([(usual | row).get(title, " ") for title in titles] for row in rows)
    return path


def row(name: str, rmse: str = "0.001", **cells: str) -> dict[str, str]:
    """An output with the five metrics of the benchmark algorithm."""
    figures = {
        "小值域错误占比": "0",
        "均方根误差": rmse,
        "相对误差最大值": "0.001",
        "相对误差平均值": "0.0002",
        "误差均衡性": "0.1",
    }
    return {"API Name": name} | figures | cells


def table(folder: Path, kind: str) -> list[list[str]]:
    """The records of the one output file of that kind."""
    (path,) = folder.glob(f"api_precision_compare_{kind}_*.csv")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as f:
        return list(csv.reader(f))


@pytest.mark.parametrize(("spelling", "limit"), [((), "2.4"), (("-f", "pytorch"), None)], ids=["new", "old"])
def test_limits_follow_the_spelling(tmp_path: Path, msprobe, spelling: tuple[str, ...], limit: str | None) -> None:
    # precheck.md 12.3: matmul is level L2 (RMSE ratio 1.2) in the new generation, the old one knows no levels (2).
    npu = details(tmp_path / "n.csv", row("Torch.matmul.0.forward.output.0", rmse="0.0015"))
    gpu = details(tmp_path / "g.csv", row("Torch.matmul.0.forward.output.0"))
    done = msprobe(*spelling, "api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out")
    assert done.status == 0, done.err
    expected = "error" if limit else "pass"
    assert table(tmp_path / "out", "result")[1][:3] == ["Torch.matmul.0", expected, " "]
    summary = json.loads(next((tmp_path / "out").glob("*summary*.json")).read_text(encoding="utf-8"))
    assert summary["standard"] == ("new" if limit else "old")
    assert summary["counts"]["forward"]["total"] == 1


def test_fail_on(tmp_path: Path, msprobe) -> None:
    npu = details(tmp_path / "n.csv", row("Torch.exp.0.forward.output.0", rmse="0.003"))
    gpu = details(tmp_path / "g.csv", row("Torch.exp.0.forward.output.0"))
    args = ("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out", "--fail-on")
    assert msprobe(*args, "error").status == 3
    assert msprobe(*args, "skip").status == 0


def test_missing_columns_are_refused_before_anything_is_written(tmp_path: Path, msprobe) -> None:
    short = [t for t in TITLES if t != "均方根误差"]
    npu = details(tmp_path / "n.csv", row("Torch.exp.0.forward.output.0"), titles=short)
    gpu = details(tmp_path / "g.csv", row("Torch.exp.0.forward.output.0"))
    done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out")
    assert done.status == 2
    assert "均方根误差" in done.errors()[0] and "n.csv" in done.errors()[0]
    assert done.files() == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        ("\ufeff".encode() + ",".join(TITLES).encode() + "\r\nTorch.abs.0.forward.output.0,数\r\n".encode(), ":2"),
        (",".join(TITLES).encode() + "\r\n数".encode("gb18030") + b",\xff" * 22 + b"\r\n", "UTF-8"),
        (",".join(TITLES).encode() + b'\r\n"Torch.abs.0.forward.output.0', "quoted"),
    ],
    ids=["empty", "ragged", "other_encoding", "open_quote"],
)
def test_broken_files(tmp_path: Path, msprobe, content: bytes, said: str) -> None:
    (tmp_path / "n.csv").write_bytes(content)
    gpu = details(tmp_path / "g.csv", row("Torch.exp.0.forward.output.0"))
    done = msprobe("api_precision_compare", "-npu", "n.csv", "-gpu", str(gpu), "-o", "out")
    assert done.status == 2
    assert len(done.errors()) == 1 and said in done.errors()[0] and "n.csv" in done.errors()[0]
    assert done.files() == []


def test_cells_that_a_spreadsheet_could_run_and_very_long_ones(tmp_path: Path, msprobe) -> None:
    evil = '=HYPERLINK("http://x")'
    long = "m" * 100_000
    rows = [
        row("=cmd|' /C calc'!A0.x.0.forward.output.0"),
        {"API Name": "Torch.abs.0.forward.output.0", "Status": "SKIP", "DEVICE Dtype": " ", "Message": evil},
        {"API Name": "Torch.abs.1.forward.output.0", "Status": "SKIP", "DEVICE Dtype": " ", "Message": long},
    ]
    npu = details(tmp_path / "n.csv", *rows)
    gpu = details(tmp_path / "g.csv", *rows)
    done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out")
    assert done.status == 0, done.err
    cells = [c for record in table(tmp_path / "out", "details") for c in record]
    assert not [c for c in cells if c[:1] in ("=", "+", "@", "%")]
    assert "'" + evil in cells
    assert long in cells


def test_other_inputs_are_said(tmp_path: Path, msprobe) -> None:
    name = "Torch.exp.0.forward.output.0"
    npu = details(tmp_path / "n.csv", row(name, Message="pass\ninputs=00ff"))
    gpu = details(tmp_path / "g.csv", row(name, Message="inputs=00fe"))
    done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out")
    assert "other inputs" in done.err and name in done.err
    same = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(npu), "-o", "out2")
    assert "other inputs" not in same.err


def test_digits_and_titles(tmp_path: Path, msprobe) -> None:
    name = "Torch.exp.0.forward.output.0"
    npu = details(tmp_path / "n.csv", row(name, rmse="0.0015"))
    gpu = details(tmp_path / "g.csv", row(name))
    args = ("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o")
    assert msprobe(*args, "a", "--digits", "14", "--english").status == 0
    titles, cells = table(tmp_path / "a", "details")
    assert cells[titles.index("RMSE ratio")] == "1.50000000000000"
    assert msprobe(*args, "b").status == 0
    titles, cells = table(tmp_path / "b", "details")
    assert float(cells[titles.index("均方根误差比值")]) == 0.0015 / 0.001


def test_wrong_options(tmp_path: Path, msprobe) -> None:
    done = msprobe("api_precision_compare", "--digits", "21", "--rules", "bse", "-npu", "a", "-gpu", "b")
    assert done.status == 2
    assert any("--digits" in e for e in done.errors()) and any("did you mean base" in e for e in done.errors())
    assert "-gpu" in msprobe("api_precision_compare", "-npu", "a").errors()[0]


def test_explain_rules_prints_the_limits(msprobe) -> None:
    done = msprobe("api_precision_compare", "--explain-rules", "--standard", "new")
    assert done.status == 0
    assert "L2: addmm" in done.out and "2, 1.2, 2, 1.2" in done.out


def test_golden_inputs_are_there() -> None:
    assert len(list((DATA / "precheck").glob("compare_*/npu.csv"))) >= 20


def test_rows_of_one_side_duplicates_and_odd_names_are_rows(tmp_path: Path, msprobe) -> None:
    def out(name: str, k: int = 0) -> str:
        return f"Torch.{name}.forward.output.{k}"

    npu = [row(out("exp.0")), row(out("exp.1")), row(out("sin.0")), row(out("sin.0")), row("odd"), row(out("abs.0"))]
    gpu = [row(out("abs.0")), row(out("abs.0")), row(out("exp.0")), row(out("sin.0")), row("odd"), row(out("neg.0"))]
    names = (details(tmp_path / "n.csv", *npu), details(tmp_path / "g.csv", *gpu))
    done = msprobe("api_precision_compare", "-npu", str(names[0]), "-gpu", str(names[1]), "-o", "out")
    assert done.status == 0, done.err
    rows = [(r[0], r[25], r[27]) for r in table(tmp_path / "out", "details")[1:]]
    assert rows == [
        (out("exp.0"), "pass", ""),
        (out("exp.1"), "SKIP", "not in the other file"),
        (out("sin.0"), "pass", ""),
        (out("sin.0"), "SKIP", "the name occurs before in this file"),
        ("odd", "SKIP", "the name is not Type.name.N.direction.output.i"),
        (out("abs.0"), "SKIP", "the name occurs 2 times in the other file"),
        (out("neg.0"), "SKIP", "only in the other file"),
    ]
    apis = {r[0]: r[1:3] for r in table(tmp_path / "out", "result")[1:]}
    assert apis["Torch.exp.0"] == ["pass", " "]
    assert {tuple(apis[n]) for n in ("Torch.exp.1", "Torch.sin.0", "Torch.abs.0", "Torch.neg.0")} == {("SKIP", " ")}


def test_blank_metrics_are_no_data_and_errors_show_the_raw_values(tmp_path: Path, msprobe) -> None:
    blank = dict.fromkeys(("小值域错误占比", "均方根误差", "相对误差最大值", "相对误差平均值", "误差均衡性"), " ")
    npu = details(
        tmp_path / "n.csv",
        row("Torch.exp.0.forward.output.0") | blank,
        row("Torch.exp.1.forward.output.0") | blank | {"Status": "error", "Message": "shapes differ"},
        row("Torch.exp.2.forward.output.0"),
        row("Torch.exp.3.forward.output.0", rmse="0.003"),
    )
    gpu = details(
        tmp_path / "g.csv",
        *(row(f"Torch.exp.{k}.forward.output.0") for k in (0, 1)),
        row("Torch.exp.2.forward.output.0") | blank,
        row("Torch.exp.3.forward.output.0"),
    )
    done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", "out")
    assert done.status == 0, done.err
    records = table(tmp_path / "out", "details")[1:]
    assert [r[25] for r in records] == ["SKIP", "error", "SKIP", "error"]
    assert records[1][27] == "shapes differ"
    assert records[3][27] == "ERROR: RMSE 0.003 against 0.001: ratio 3 over 2"
    assert "floor of a ratio's denominator" in msprobe("api_precision_compare", "--explain-rules").out


def test_levels_are_found_in_any_case(tmp_path: Path, msprobe) -> None:
    # embedding is level L1 (limit 1.5), exp is in no list (2): precheck.md 12.3; matmul is L2 (1.2).
    names = ("Functional.Embedding.0", "Torch.MATMUL.0", "Torch.EXP.0")
    files = [
        details(
            tmp_path / f"{k}.csv", *(row(f"{n}.forward.output.0", rmse=r) for n, r in zip(names, rmse, strict=True))
        )
        for k, rmse in (("n", ("0.0016", "0.0013", "0.0019")), ("g", ("0.001",) * 3))
    ]
    done = msprobe("api_precision_compare", "-npu", str(files[0]), "-gpu", str(files[1]), "-o", "out")
    assert done.status == 0, done.err
    assert [r[1] for r in table(tmp_path / "out", "result")[1:]] == ["error", "error", "pass"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "gbk"])
def test_other_encodings_are_refused_with_a_hint(tmp_path: Path, msprobe, encoding: str) -> None:
    npu = details(tmp_path / "n.csv", row("Torch.exp.0.forward.output.0"), encoding=encoding)
    done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(npu), "-o", "out")
    assert done.status == 2
    assert len(done.errors()) == 1 and "UTF-8" in done.errors()[0]
    assert done.files() == []


def test_nul_bytes_and_cells_that_are_no_numbers(tmp_path: Path, msprobe) -> None:
    good = details(tmp_path / "g.csv", row("Torch.exp.0.forward.output.0"))
    for text, said in (
        ("1.0\0", "not a number"),
        ("=1+1", "not a number"),
        ("1,5", "not a number"),
        ("0x10", "number"),
    ):
        npu = details(tmp_path / "n.csv", row("Torch.exp.0.forward.output.0", rmse=text))
        done = msprobe("api_precision_compare", "-npu", str(npu), "-gpu", str(good), "-o", "out")
        assert done.status == 2 and len(done.errors()) == 1, text
        assert said in done.errors()[0] and ":2" in done.errors()[0]
    assert done.files() == []
