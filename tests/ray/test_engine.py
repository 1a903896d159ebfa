"""`--engine ray` on two nodes: what local threads give, whatever is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ray_support import compare, rows, run, summary, tables, write_pair, write_rank

pytestmark = pytest.mark.no_sanitizer


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statistics")
    write_pair(folder, 3, entries=5)
    return folder


def test_statistics_are_the_same_on_two_nodes(statistics: Path, cluster: str) -> None:
    shared = ["--json", "rows.jsonl", "--junit", "junit.xml"]
    compare(statistics, "local", "--workers", "1", *shared)
    local_rows = (statistics / "rows.jsonl").read_text()
    local_tests = (statistics / "junit.xml").read_text().split("\n", 2)[2]
    compare(statistics, "ray", "--engine", "ray", "--ray-address", cluster, *shared)
    assert tables(statistics / "ray") == tables(statistics / "local")
    assert len(tables(statistics / "ray")) == 3
    assert summary(statistics / "ray") == summary(statistics / "local")
    assert (statistics / "rows.jsonl").read_text() == local_rows
    assert (statistics / "junit.xml").read_text().split("\n", 2)[2] == local_tests
    assert list((statistics / "ray").glob("compare_report_*.html"))
    # Rank r is wrong at call r + 1: worked out when the dumps were made.
    document = summary(statistics / "ray")
    assert [r["first_bad"]["entry"] for r in document["ranks"]] == [
        f"Functional.relu.{r + 1}.forward" for r in range(3)
    ]


def test_tensors_in_blocks_by_bytes_and_a_worker_killed_in_the_middle(tmp_path: Path, cluster: str) -> None:
    write_pair(tmp_path, 1, entries=6, elements=1 << 18)  # 1 MiB each
    (tmp_path / "metrics").mkdir()
    # A metric of the user's that kills its process the first time it sees a flag.
    (tmp_path / "metrics" / "alg_rank.py").write_text(
        "import os, signal\n"
        "def column_name():\n"
        "    return 'largest'\n"
        "def compare(target, golden):\n"
        "    if os.path.exists('kill_me'):\n"
        "        os.remove('kill_me')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return float(abs(target - golden).max())\n"
    )
    compare(tmp_path, "local", "--metrics", "metrics")
    (tmp_path / "kill_me").touch()
    shared = ["--engine", "ray", "--ray-address", cluster, "--block-mib", "1", "--metrics", "metrics"]
    compare(tmp_path, "ray", *shared)
    assert not (tmp_path / "kill_me").exists()  # it was killed
    assert tables(tmp_path / "ray") == tables(tmp_path / "local")
    assert summary(tmp_path / "ray") == summary(tmp_path / "local")


def test_a_pair_that_kills_every_worker_is_told_and_the_others_are_compared(tmp_path: Path, cluster: str) -> None:
    write_pair(tmp_path, 2, entries=3, elements=16)
    (tmp_path / "metrics").mkdir()
    poison = tmp_path / "golden" / "rank1" / "dump_tensor_data" / "Functional.relu.0.forward.output.0.npy"
    (tmp_path / "metrics" / "alg_poison.py").write_text(
        "import os, signal, numpy\n"
        f"first = numpy.load({str(poison)!r})\n"
        "def column_name():\n"
        "    return 'none'\n"
        "def compare(target, golden):\n"
        "    if numpy.array_equal(golden, first):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return 0.0\n"
    )
    shared = ["--engine", "ray", "--ray-address", cluster, "--metrics", "metrics"]
    assert compare(tmp_path, "ray", *shared) == 1
    document = summary(tmp_path / "ray")
    assert [r["status"] for r in document["ranks"]] == ["compared", "failed"]
    assert "its worker was lost each of the 3 times it was tried" in document["ranks"][1]["error"]["message"]
    assert list(tables(tmp_path / "ray")) == ["compare_result_rank0"]


def test_first_difference_and_overflow_and_merge(statistics: Path, cluster: str, tmp_path: Path) -> None:
    ray = ["--engine", "ray", "--ray-address", cluster]
    found = {}
    for out, extra in (("da_local", []), ("da_ray", ray)):
        run("compare", "-tp", "target", "-gp", "golden", "-o", out, "-da", "-q", *extra, cwd=statistics)
        reports = sorted(p.read_bytes() for p in (statistics / out).glob("diff_analyze_[0-9]*.json"))
        assert reports
        ranks = sorted(p.read_bytes() for p in (statistics / out).glob("compare_result_rank*.json"))
        found[out] = (reports, ranks, summary(statistics / out, "diff_analyze"))
    assert found["da_ray"] == found["da_local"]
    assert len(found["da_ray"][1]) == 3

    for rank in range(2):
        write_rank(tmp_path / "step0", rank, entries=3)
    path = tmp_path / "step0" / "rank1" / "dump.json"
    document = json.loads(path.read_text())
    document["data"]["Functional.relu.1.forward"]["output"][0]["Max"] = float("inf")
    path.write_text(json.dumps(document))
    anomalies = {}
    for out, extra in (("o_local", []), ("o_ray", ray)):
        run("overflow_check", "-i", "step0", "-o", out, "-q", *extra, cwd=tmp_path)
        (report,) = (tmp_path / out).glob("anomaly_analyze_*.json")
        anomalies[out] = (report.read_bytes(), summary(tmp_path / out, "overflow_check"))
    assert anomalies["o_ray"] == anomalies["o_local"]
    assert json.loads(anomalies["o_ray"][0])["rank_1"][0]["op_name"] == "Functional.relu.1.forward"

    (tmp_path / "merge.yaml").write_text("api: [Functional]\n")
    reports = statistics / "reports"
    compare(statistics, "reports", "--no-html")
    merged = {}
    for out, extra in (("m_local", []), ("m_ray", ray)):
        args = ("merge_result", "-i", str(reports), "-o", out, "-config", "merge.yaml", "--json", f"{out}.jsonl", "-q")
        assert run(*args, *extra, cwd=tmp_path).returncode == 0
        merged[out] = ((tmp_path / f"{out}.jsonl").read_text(), summary(tmp_path / out, "merge_result"))
    assert merged["m_ray"] == merged["m_local"]


def test_what_cannot_be_is_refused_before_any_work(statistics: Path, cluster: str) -> None:
    cases = (
        (["--engine", "dask"], "--engine: has no value 'dask'"),
        (["--ray-address", cluster], "--ray-address: has no effect beside --engine local"),
        (["--engine", "ray", "--workers", "0"], "--workers: has no value '0'"),
        (["--engine", "ray", "--block-mib", "x"], "--block-mib: has no value 'x'"),
        (["--engine", "ray", "--resume"], "--resume: has no effect beside --engine ray"),
    )
    for args, message in cases:
        done = run("compare", "-tp", "target", "-gp", "golden", "-o", "refused", *args, cwd=statistics)
        assert done.returncode == 2, args
        assert message in done.stderr, done.stderr
    assert not (statistics / "refused").exists()


def test_rows_of_ranks_come_in_their_order(statistics: Path, cluster: str) -> None:
    args = ("--engine", "ray", "--ray-address", cluster, "--json", "ordered.jsonl", "--no-html")
    compare(statistics, "ordered", *args)
    lines = [json.loads(line) for line in (statistics / "ordered.jsonl").read_text().splitlines()]
    assert [line["rank"] for line in lines] == [f"rank{r}" for r in range(3) for _ in range(5)]
    (table,) = (statistics / "ordered").glob("compare_result_rank2_*.csv")
    assert [row["NPU Name"] for row in rows(table)] == [line["NPU Name"] for line in lines[10:]]
