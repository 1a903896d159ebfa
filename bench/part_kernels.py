"""The kernels against the read bandwidth of the machine (roofline), one core."""

from __future__ import annotations

import json
import subprocess

from harness import ROOT, WORK, Goal, Section, Setup, table


def kernels(setup: Setup) -> Section:
    folder = WORK / "kernels"
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DMSPROBE_BENCH=ON"]
    for command in (configure, ["cmake", "--build", str(folder), "--target", "kernels_bench", "--parallel"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    program = folder / "bench" / "kernels_bench"
    options = ["--benchmark_format=json", f"--benchmark_min_time={0.05 if setup.small else 0.5}"]
    done = subprocess.run([str(program), *options], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    speed: dict[str, dict[str, float]] = {}
    for item in report["benchmarks"]:
        name, size = item["name"].rsplit("/", 1)
        speed.setdefault(name, {})["L2" if int(size) < 1 << 20 else "DRAM"] = item["bytes_per_second"] / 1e9
    read = speed["Read"]
    body = [
        [f"`{name}`", f"{s['L2']:.1f}", f"{s['DRAM']:.1f}", f"{100 * s['DRAM'] / read['DRAM']:.0f} %"]
        for name, s in speed.items()
    ]
    lines = [
        f"GB per second of one core, vector target {report['context']['vector target']}; pairs count both sides.",
        "`Read` only reads (sums of 64-bit words); the last column is the share of its speed in DRAM.",
        "",
        *table(["kernel", "L2 (256 KiB)", "DRAM (128 MiB)", "of Read"], body),
    ]
    part = 100 * speed["Stats/float32"]["DRAM"] / read["DRAM"]
    return Section(lines, [Goal("statistics of float32, of read bandwidth", "≥ 80 %", 80, part, " %", True, 0)])
