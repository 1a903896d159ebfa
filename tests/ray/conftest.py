"""A Ray cluster of two nodes on this machine, for the whole session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Its address. Two nodes with one CPU each; the second offers a custom accelerator."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Workers of the nodes find what this process finds.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=1, resources={"NPU": 1})
        nodes.wait_for_nodes()
        yield nodes.address
    finally:
        nodes.shutdown()
        if before is None:
            os.environ.pop("PYTHONPATH")
        else:
            os.environ["PYTHONPATH"] = before
