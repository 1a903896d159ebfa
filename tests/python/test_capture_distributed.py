"""Collectives of two processes over gloo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

SCRIPT = """
import os, sys
sys.path[:0] = {path!r}
import torch, torch.distributed as dist
from msprobe.pytorch import PrecisionDebugger
rank = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=rank, world_size=2)
tool = PrecisionDebugger(dump_path={folder!r}, task="statistics", level="L1")
wait = dist.distributed_c10d.Work.wait
tool.start()
x = torch.ones(4) * (rank + 1)
dist.all_reduce(x)                                  # 3
handle = dist.all_reduce(x, async_op=True)          # 6
assert handle.wait() is True                        # the value of before
parts = [torch.zeros(4), torch.zeros(4)]
dist.all_gather(parts, x + rank)                    # 6, 7
ops = [dist.P2POp(dist.isend, x + rank, 1 - rank), dist.P2POp(dist.irecv, parts[0], 1 - rank)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
dist.all_reduce(x, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
tool.stop()
assert dist.distributed_c10d.Work.wait is wait
tool.step()
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_capture_collectives_of_two_ranks(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = SCRIPT.format(path=sys.path, port=port, folder=str(tmp_path))
    ranks = [
        subprocess.Popen([sys.executable, "-c", script, str(r)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for r in range(2)
    ]
    outputs = [p.communicate(timeout=180)[0].decode() for p in ranks]
    assert [p.returncode for p in ranks] == [0, 0], outputs
    group = f"{zlib.crc32(b'[0, 1]'):08x}"
    for rank in range(2):
        data = json.loads(Path(tmp_path, "step0", f"rank{rank}", "dump.json").read_text())["data"]

        def mean(leaf):
            return leaf["Mean"]

        first = data["Distributed.all_reduce.0.forward"]
        assert (mean(first["input_args"][0]), mean(first["output"][0])) == (rank + 1, 3)
        second = data["Distributed.all_reduce.1.forward"]  # described again after the wait
        assert (mean(second["input_args"][0]), mean(second["output"][0])) == (3, 6)
        assert second["input_kwargs"] == {"async_op": {"type": "bool", "value": True}}
        gathered = data["Distributed.all_gather.0.forward"]
        assert gathered["input_args"][0] is None and gathered["absent"]["input.0"]["code"] == "filtered"
        assert [mean(t) for t in gathered["output"][0]] == [6, 7]
        batch = data["Distributed.batch_isend_irecv.0.forward"]["output"][0]
        assert [(p["class_type"], p["op"], p["peer"], p["group_id"]) for p in batch] == [
            ("torch.distributed.P2POp", op, 1 - rank, group) for op in ("isend", "irecv")
        ]
        assert mean(batch[1]["tensor"]) == 6 + (1 - rank)
        assert not any("isend" in n or "irecv" in n for n in data if "batch" not in n)
        keywords = data["Distributed.all_reduce.2.forward"]["input_kwargs"]
        assert keywords["group"] == {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": group}
        assert keywords["op"]["type"] == "torch.distributed.ReduceOp"
