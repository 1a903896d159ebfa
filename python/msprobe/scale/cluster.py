"""The Ray cluster that work goes to."""

from __future__ import annotations

import importlib
import logging
import os
import socket
from typing import Any

from msprobe.errors import ErrorCode, MsprobeError

RETRIES = 2  # of an item whose worker was lost; Ray does it
_PATIENCE = 10.0  # seconds for a cluster to answer


def import_ray() -> Any:
    """Ray, or an error that says how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as e:
        raise MsprobeError(
            ErrorCode.UNSUPPORTED,
            f"--engine ray: Ray cannot be imported ({e}); install it with: pip install 'msprobe-native[ray]'",
        ) from None


def connect(address: str, workers: int) -> Any:
    """Ray, connected: to what this process is connected to already, `address`, RAY_ADDRESS or a cluster of its own.

    Raises:
        MsprobeError: There is no Ray, or no cluster answers.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    where = address or os.environ.get("RAY_ADDRESS", "")
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        if where:
            _knock(where)
            ray.init(address=where, **quiet)
        else:
            ray.init(address="local", num_cpus=workers or os.cpu_count(), include_dashboard=False, **quiet)
    except Exception as e:
        first = str(e).strip().splitlines()
        reason = first[0] if first else type(e).__name__
        raise MsprobeError(
            ErrorCode.NOT_FOUND,
            f"--ray-address: no Ray cluster answers at {where or 'this machine'}: {reason}; "
            "start one with: ray start --head (one that wants a token: set RAY_AUTH_MODE=token)",
        ) from None
    return ray


def _knock(address: str) -> None:
    """Raise at once where nothing listens: Ray would try for many minutes.

    Raises:
        OSError: Nothing listens there, or there is no such host.
        ValueError: No address.
    """
    if address in ("auto", "local"):
        return
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError("it has the form host:port, or is auto")
    hosts = [host.strip("[]")]
    if hosts[0] in ("127.0.0.1", "localhost"):  # Ray takes these for the address of this machine on its network
        hosts.append(str(import_ray().util.get_node_ip_address()))
    for at, name in enumerate(hosts):
        try:
            socket.create_connection((name, int(port)), _PATIENCE).close()
            return
        except OSError:
            if at + 1 == len(hosts):
                raise


def died(ray: Any, error: BaseException) -> bool:
    """Was it the worker that was lost, not the work that raised?"""
    return not isinstance(error, ray.exceptions.RayTaskError)


def reason(ray: Any, error: BaseException) -> str:
    """Why an item was given up, in one clause."""
    first = (str(error).strip().splitlines() or [""])[0]
    if died(ray, error):
        kind = type(error).__name__
        return f"its worker was lost each of the {RETRIES + 1} times it was tried ({kind})"
    cause = getattr(error, "cause", None)
    last = (str(cause or first).strip().splitlines() or [first])[-1]
    return f"its worker refused it: {last}"
