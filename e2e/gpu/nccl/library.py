"""NCCL itself, called through ctypes: communicators without torch's groups, watchdog and streams."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

UNDEFINED = -(1 << 31)
"""`NCCL_CONFIG_UNDEF_INT`: NCCL chooses."""
UNIQUE_ID_BYTES = 128
_MAGIC, _VERSION = 0xCAFEBEEF, 22809
"""NCCL 2.28.9. A newer NCCL leaves later fields at their defaults, an older one ignores the rest."""
_SUCCESS, _IN_PROGRESS = 0, 7
_FLOAT32, _SUM = 7, 0
_SHRINK_ABORT = 1
_POLL_S = 0.0002
_SETTLE_S = 30.0

Communicator = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`: how the ranks of a communicator find each other."""

    _fields_ = (("internal", ctypes.c_byte * UNIQUE_ID_BYTES),)


class Config(ctypes.Structure):
    """`ncclConfig_v22800`, in the order of nccl.h."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cgaClusterSize", ctypes.c_int),
        ("minCTAs", ctypes.c_int),
        ("maxCTAs", ctypes.c_int),
        ("netName", ctypes.c_char_p),
        ("splitShare", ctypes.c_int),
        ("trafficClass", ctypes.c_int),
        ("commName", ctypes.c_char_p),
        ("collnetEnable", ctypes.c_int),
        ("CTAPolicy", ctypes.c_int),
        ("shrinkShare", ctypes.c_int),
        ("nvlsCTAs", ctypes.c_int),
        ("nChannelsPerNetPeer", ctypes.c_int),
        ("nvlinkCentricSched", ctypes.c_int),
    )


def nonblocking_config() -> Config:
    """Returns `NCCL_CONFIG_INITIALIZER` with `blocking` off."""
    integers = [name for name, kind in Config._fields_ if kind is ctypes.c_int]
    config = Config(**dict.fromkeys(integers, UNDEFINED))
    config.size, config.magic, config.version = ctypes.sizeof(Config), _MAGIC, _VERSION
    config.blocking = 0
    return config


class Library:
    """The NCCL that torch has loaded. All communicators are non-blocking."""

    def __init__(self) -> None:
        """Finds the library by the name under which torch loads it; import torch first."""
        self._nccl = ctypes.CDLL("libnccl.so.2")
        self._nccl.ncclGetLastError.restype = ctypes.c_char_p
        self._declare("ncclGetUniqueId", ctypes.POINTER(UniqueId))
        self._declare(
            "ncclCommInitRankConfig",
            ctypes.POINTER(Communicator),
            ctypes.c_int,
            UniqueId,
            ctypes.c_int,
            ctypes.POINTER(Config),
        )
        self._declare(
            "ncclAllReduce",
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            Communicator,
            ctypes.c_void_p,
        )
        self._declare("ncclCommGetAsyncError", Communicator, ctypes.POINTER(ctypes.c_int))
        self._declare("ncclCommAbort", Communicator)
        self._declare("ncclGetLastError", Communicator)
        if self.has("ncclCommShrink"):
            self._declare(
                "ncclCommShrink",
                Communicator,
                ctypes.POINTER(ctypes.c_int),
                ctypes.c_int,
                ctypes.POINTER(Communicator),
                ctypes.POINTER(Config),
                ctypes.c_int,
            )

    def has(self, name: str) -> bool:
        """Returns whether this version of NCCL exports a function."""
        return hasattr(self._nccl, name)

    def unique_id(self) -> bytes:
        """Returns a new unique id, whose bootstrap root is a thread of this process."""
        identity = UniqueId()
        self._check("ncclGetUniqueId", self._nccl.ncclGetUniqueId(ctypes.byref(identity)))
        return bytes(identity)

    def form(self, unique_id: bytes, rank: int, size: int) -> Communicator:
        """Returns a new communicator once it is connected; all its ranks call this.

        Raises:
            NcclError: NCCL refuses, or 30 s have passed.
        """
        communicator, config = Communicator(), nonblocking_config()
        code = self._nccl.ncclCommInitRankConfig(
            ctypes.byref(communicator),
            size,
            UniqueId.from_buffer_copy(unique_id),
            rank,
            ctypes.byref(config),
        )
        self._check("ncclCommInitRankConfig", code)
        self._check("ncclCommInitRankConfig", self._settle(communicator))
        return communicator

    def begin_sum(self, communicator: Communicator, tensor: Any, stream: int) -> None:
        """Enqueues the sum of a float32 tensor, in place.

        Args:
            communicator: Of all ranks that add.
            tensor: Contiguous; kept by the caller until the sum has ended.
            stream: The CUDA stream, as torch's `cuda_stream`.

        Raises:
            NcclError: NCCL refuses.
        """
        address = tensor.data_ptr()
        code = self._nccl.ncclAllReduce(
            address, address, tensor.numel(), _FLOAT32, _SUM, communicator, stream
        )
        self._check("ncclAllReduce", code)
        self._check("ncclAllReduce", self._settle(communicator))

    def abort(self, communicator: Communicator) -> None:
        """Ends the operations of a communicator and frees it; returns when that is done.

        Raises:
            NcclError: NCCL refuses.
        """
        self._check("ncclCommAbort", self._nccl.ncclCommAbort(communicator))

    def shrink(self, communicator: Communicator, lost: Sequence[int]) -> Communicator:
        """Ends the operations of a communicator and returns a communicator of the remaining ranks.

        Args:
            communicator: The parent, which the caller aborts afterwards.
            lost: Ranks of the parent that do not call this.

        Raises:
            NcclError: NCCL refuses, or 30 s have passed.
        """
        child, ranks = Communicator(), (ctypes.c_int * len(lost))(*lost)
        code = self._nccl.ncclCommShrink(
            communicator, ranks, len(lost), ctypes.byref(child), None, _SHRINK_ABORT
        )
        self._check("ncclCommShrink", code)
        code = self._settle(communicator)  # `child` is set when the parent has settled
        if child.value is None:
            self._check("ncclCommShrink", code)
            raise NcclError("ncclCommShrink made no communicator")
        self._check("ncclCommShrink", self._settle(child))
        return child

    def _declare(self, name: str, *arguments: Any) -> None:
        getattr(self._nccl, name).argtypes = arguments

    def _settle(self, communicator: Communicator) -> int:
        """Waits until an operation is no longer in progress; returns its result."""
        until_s = time.monotonic() + _SETTLE_S
        state = ctypes.c_int(_IN_PROGRESS)
        while True:
            code = self._nccl.ncclCommGetAsyncError(communicator, ctypes.byref(state))
            self._check("ncclCommGetAsyncError", code)
            if state.value != _IN_PROGRESS:
                return state.value
            if time.monotonic() > until_s:
                raise NcclError(f"NCCL is still in progress after {_SETTLE_S:g} s")
            time.sleep(_POLL_S)

    def _check(self, call: str, code: int) -> None:
        if code not in (_SUCCESS, _IN_PROGRESS):
            last = (self._nccl.ncclGetLastError(None) or b"").decode(errors="replace").strip()
            raise NcclError(f"{call} returned {code}; last error: {last or 'none'}")


class NcclError(Exception):
    """A call of NCCL failed."""
