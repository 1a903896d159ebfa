"""What the C side cannot read by itself: unusual tensors and values (dump.md 11.3). Nothing here is on the hot path.

`plain_tensor` answers `(type, dtype, shape, requires_grad, memory, extra, reason)`: `memory` is a plain CPU tensor
whose memory is the value, or None for no statistics; `extra` is JSON text of further members; a `reason` makes the
whole leaf absent.
"""

from __future__ import annotations

import json
import sys
import zlib
from typing import Any

import torch

from msprobe.pytorch import _storage

_NESTED = "torch.nested._internal.nested_tensor.NestedTensor"
_FAKE = "torch._subclasses.fake_tensor.FakeTensor"
_ASYNC = "torch.distributed._functional_collectives.AsyncCollectiveTensor"
_DTENSOR = "torch.distributed.tensor.DTensor"

Answer = tuple[str, str, tuple[int, ...], bool, Any, str, "str | None"]

# Set once by the capture layer: whether the C side reads memory through the exchange table.
has_exchange = True


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(n) for n in tensor.shape)


def _readable(data: torch.Tensor) -> Any:
    """Memory that the C side can read: on the host, strided, without lazy bits. None: there is none."""
    data = _unwrapped(data.detach())
    if data.device.type == "meta" or _storage.is_freed(data):
        return None
    if data.layout != torch.strided:
        data = data.to_dense()
    if data.device.type != "cpu":
        data = data.cpu()
    data = _unwrapped(data.resolve_conj().resolve_neg())  # inside a transform every result is wrapped
    if has_exchange:
        return data
    return (data.data_ptr(), tuple(data.shape), tuple(data.stride()), str(data.dtype), data)


def _answer(
    tensor: torch.Tensor,
    memory: Any,
    kind: str = "torch.Tensor",
    shape: tuple[int, ...] | None = None,
    extra: str = "",
) -> Answer:
    return (
        kind,
        str(tensor.dtype),
        _shape(tensor) if shape is None else shape,
        bool(tensor.requires_grad),
        memory,
        extra,
        None,
    )


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _unwrap_functorch(tensor: torch.Tensor) -> Answer | None:
    functorch = torch._C._functorch
    if not functorch.is_functorch_wrapped_tensor(tensor):
        return None
    batched = functorch.is_batchedtensor(tensor)
    kind = "BatchedTensor" if batched else "GradTrackingTensor"
    return _answer(tensor, _readable(_unwrapped(tensor)), kind)


def _distributed_tensor(tensor: Any) -> Answer:
    local = tensor._local_tensor
    placements = []
    for p in tensor.placements:
        if p.is_shard():
            placements.append({"Shard": {"dim": p.dim}})
        elif p.is_replicate():
            placements.append({"Replicate": {}})
        else:
            placements.append({"Partial": {"reduce_op": str(getattr(p, "reduce_op", ""))}})
    mesh = tensor.device_mesh.mesh.tolist()
    extra = f'"device_mesh": {json.dumps(mesh)}, "placements": {json.dumps(placements)}'
    return _answer(tensor, _readable(local), _DTENSOR, _shape(local), extra)


def _has_own_dispatch(cls: type) -> bool:
    dispatch = getattr(cls, "__torch_dispatch__", None)
    return dispatch is not None and dispatch is not torch.Tensor.__torch_dispatch__


def _describe(tensor: Any) -> Answer:
    cls = type(tensor)
    name = _qualified(cls)
    wrapped = _unwrap_functorch(tensor)
    if wrapped is not None:
        return wrapped
    if name == _FAKE:
        return _answer(tensor, None, _FAKE, tuple(n if type(n) is int else -1 for n in tensor.shape))
    if name == _ASYNC:
        return _answer(tensor, None, _ASYNC)
    if cls.__name__ == "DTensor":
        return _distributed_tensor(tensor)
    if tensor.is_nested:
        values = tensor.values()
        kind = _NESTED if cls is not torch.Tensor else "torch.Tensor"
        return _answer(tensor, _readable(values), kind, _shape(values), '"nested": true')
    if tensor.is_quantized:
        return _answer(tensor, _readable(tensor.dequantize()), extra='"quantized": true')
    if tensor.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        values = tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
        extra = f'"layout": "{tensor.layout}", "nnz": {int(tensor._nnz())}'
        return _answer(tensor, _readable(values), extra=extra)
    if cls not in (torch.Tensor, torch.nn.Parameter) and _has_own_dispatch(cls):
        # A subclass that computes for itself: only it knows what its memory means.
        return _answer(tensor, None, extra=f'"class": {json.dumps(name)}')
    if tensor.device.type == "meta":
        return _answer(tensor, None, extra='"device": "meta"')  # no values by nature: comparison knows it by this
    return _answer(tensor, _readable(tensor))


def plain_tensor(tensor: torch.Tensor) -> Answer:
    """Describe a tensor that is not a plain one in host memory."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), torch.no_grad(), _disable_current_modes():
        return _describe(tensor)


def _json(value: Any) -> str | None:
    if isinstance(value, bool | int | float | str):
        return json.dumps(value)
    return None


def _group_text(group: Any) -> tuple[list[int] | None, str | None]:
    try:
        import torch.distributed as dist

        ranks = [int(r) for r in dist.get_process_group_ranks(group)]
    except Exception:
        return None, None
    return ranks, f"{zlib.crc32(str(ranks).encode()):08x}"


def _process_group(group: Any) -> str:
    ranks, group_id = _group_text(group)
    if ranks is None:
        return '{"type": "torch.ProcessGroup"}'
    return json.dumps({"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": group_id})


def _point_to_point(op: Any) -> tuple[str, list[tuple[str, str | None, Any]]]:
    _, group_id = _group_text(op.group) if op.group is not None else _group_text(None)
    members: list[tuple[str, Any, Any]] = [
        ("class_type", '"torch.distributed.P2POp"', None),
        ("tensor", ... if getattr(op.op, "__name__", "") == "irecv" else None, op.tensor),
        ("op", json.dumps(getattr(op.op, "__name__", str(op.op))), None),
        ("peer", json.dumps(op.peer), None),
        ("tag", json.dumps(op.tag), None),
        ("group_id", json.dumps(group_id), None),
    ]
    return "object", members


def _array(array: Any) -> Answer:
    """A NumPy array, read where it lies."""
    name = str(array.dtype)
    known = array.dtype.kind in "biufc" and array.dtype.isnative and name != "longdouble" and array.size > 0
    memory = None
    if known and all(s % array.itemsize == 0 for s in array.strides):
        strides = tuple(s // array.itemsize for s in array.strides)
        memory = (array.ctypes.data, tuple(array.shape), strides, f"torch.{name}", array)
    return ("numpy.ndarray", name, tuple(array.shape), False, memory, "", None)


def other_leaf(value: Any) -> Any:
    """JSON text, an array answer, `("object", members)`, or None for what has no leaf form."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.generic):
            kind = {"bool": "bool_", "str": "str_"}.get(type(value).__name__, type(value).__name__)
            text = _json(value.item())
            return None if text is None else f'{{"type": {json.dumps(kind)}, "value": {text}}}'
        if isinstance(value, numpy.ndarray):
            return _array(value)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available():
        if isinstance(value, distributed.ProcessGroup):
            return _process_group(value)
        if isinstance(value, distributed.P2POp):
            return _point_to_point(value)
        if isinstance(value, distributed.ReduceOp) or type(value).__name__ == "RedOpType":
            return json.dumps({"type": "torch.distributed.ReduceOp", "value": str(value)})
    return None


def leaf_edge(tensor: torch.Tensor) -> Any:
    """The node that accumulates the gradient of a leaf tensor."""
    return torch.autograd.graph.get_gradient_edge(tensor).node


def add_gradients(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The sum of two shares of a gradient, outside the graph."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return torch.add(first, second)


_peek: Any = getattr(torch.autograd, "_get_sequence_nr", None)
_probe: torch.Tensor | None = None


def next_sequence() -> int | None:
    """The number that the next autograd node of this thread gets; None inside torch.func and while a graph is traced.

    0 on a torch whose nodes have no numbers: what a call made is then told by the edges of its arguments alone.
    """
    if torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    return int(_peek()) if _peek is not None else _made_sequence()


def _made_sequence() -> int | None:
    """The same by making a node, which uses a number up."""
    global _probe
    if _probe is None:
        _probe = torch.zeros((), device="cpu", requires_grad=True)
    node: Any = _probe.view_as(_probe).grad_fn
    return None if node is None else int(node._sequence_nr()) if hasattr(node, "_sequence_nr") else 0
