"""The storage of a tensor, looked at without becoming one of its owners.

`tensor.untyped_storage()` leaves a Python object behind that counts as an owner for as long as the storage lives
(PyTorch 2.13; earlier releases differ). PyTorch then no longer adds gradients in place and keeps memory longer: the
step becomes slower and needs more of it. So a storage is looked at through a carrier: an object of ours that borrows it
for the moment. In releases in which the storage's own object does no harm that one is used; where neither works,
nothing is known of storages.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

_C: Any = torch._C
_Storage: Any = torch.UntypedStorage
_kept: list[Any] = []  # carriers, which live as long as the process; probes that a foreign release of PyTorch spoilt


def _carrier() -> Any:
    """An UntypedStorage whose own memory has two more owners, so that it may be borrowed out and come back."""
    memory = torch.empty(1)
    storage = memory.untyped_storage()
    _kept.append((memory, memory[:], storage))
    return storage


def _owners(tensor: torch.Tensor) -> int:
    return int(_C._storage_Use_Count(_C._storage_address(tensor)))


@functools.cache
def _carrier_works() -> bool:
    """Whether a borrowed storage has as many owners afterwards as before, and a weak reference sees its end."""
    probe = torch.empty(1)
    alias = probe[:]  # a release in which the carrier took over an owner's share would free the memory otherwise
    try:
        address = _C._storage_address(probe)
        before, borrower = _owners(probe), _carrier()
        own = borrower._cdata
        borrower._set_cdata(address)
        weak = borrower._weak_ref()
        borrower._set_cdata(own)
        if before != 2 or _owners(probe) != 2 or weak != address:
            _kept.append((probe, alias))
            return False
        alive = not _Storage._expired(weak)
        del probe, alias
        gone = _Storage._expired(weak)
        _Storage._free_weak_ref(weak)
        return bool(alive and gone)
    except (AttributeError, TypeError, RuntimeError):
        return False


def _own_object_works() -> bool:
    """Whether a storage has one owner after its Python object is gone."""
    probe = torch.empty(1)
    storage = probe.untyped_storage()
    address = storage._cdata
    del storage
    count = getattr(_C, "_storage_Use_Count", None)
    return count is None or count(address) == 1


def objects() -> dict[str, Any]:
    """What the C side needs: the address of a tensor's storage, and a carrier of its own."""
    if _carrier_works():
        _borrower()  # now: inside a transform of functorch no tensor could be made that has a storage
        return {"storage_address": _C._storage_address, "storage_carrier": _carrier()}
    if _own_object_works():
        return {"storage_address": _own_address, "storage_carrier": None}
    return {"storage_address": _no_address, "storage_carrier": None}


def _own_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _no_address(_: torch.Tensor) -> int:
    return 0


_lock = threading.Lock()


@functools.cache
def _borrower() -> Any:
    return _carrier()


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether the storage was resized to nothing under a tensor that has elements, as FSDP does between uses.

    Raises:
        NotImplementedError: Tensors of this kind have no storage (sparse ones, those inside a transform).
    """
    if tensor.numel() == 0:
        return False
    if not _carrier_works():
        return tensor.untyped_storage().size() == 0
    with _lock:
        borrower = _borrower()
        own = borrower._cdata
        borrower._set_cdata(_C._storage_address(tensor))
        try:
            return int(borrower.size()) == 0
        finally:
            borrower._set_cdata(own)
