"""Ways to make groups of ranks, sum in them and end them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Protocol

import torch
import torch.distributed as dist
from edl.overriding import override

from e2e.gpu.nccl.library import UNIQUE_ID_BYTES, Communicator, Library

_CONNECT_S, _POLL_S = 10.0, 0.0002
_NEVER = timedelta(hours=1)
"""The time-out of torch's groups: no wait here ends by it."""


class Way(Protocol):
    """Makes one group after another; `form` ends the group before."""

    ends_sums: ClassVar[bool]
    """Whether the sums of a group have ended when `abort` returns."""

    def __init__(self, store: Any, rank: int, device: Any) -> None:
        """Connects nothing yet.

        Args:
            store: A store of torch that all ranks share.
            rank: This rank's number, the same in all groups.
            device: The torch device of the tensors.
        """
        ...

    def form(self, number: int, ranks: Sequence[int]) -> None:
        """Makes a group; all its ranks call this.

        Args:
            number: Another one for each group.
            ranks: The numbers of its ranks, the same list everywhere.
        """
        ...

    def begin(self, tensor: Any) -> Any:
        """Begins to sum a float32 tensor in place and returns the work for `is_done`."""
        ...

    def is_done(self, work: Any) -> bool:
        """Returns whether a work has ended, without waiting for it."""
        ...

    def abort(self) -> None:
        """Ends the group even if a sum runs and a rank is lost."""
        ...


class Gloo(Way):
    """Fresh gloo groups: sums of CPU tensors, or of CUDA tensors through the host."""

    ends_sums: ClassVar[bool] = False

    def __init__(self, store: Any, rank: int, device: Any) -> None:
        self._store, self._rank = store, rank
        self._group: Any = None
        self._left: list[Any] = []
        """Groups whose destructors would wait for sums that never end."""
        del device

    @override
    def form(self, number: int, ranks: Sequence[int]) -> None:
        self.abort()
        store = dist.PrefixStore(f"group/{number}", self._store)
        self._group = dist.ProcessGroupGloo(store, ranks.index(self._rank), len(ranks), _NEVER)

    @override
    def begin(self, tensor: Any) -> Any:
        return self._group.allreduce([tensor])

    @override
    def is_done(self, work: Any) -> bool:
        if work.is_completed():
            work.wait()  # returns at once: raises the work's error, orders the current stream
            return True
        return False

    @override
    def abort(self) -> None:
        """Leaves the group behind: gloo has no way to end its sums."""
        self._left.append(self._group)
        self._group = None


class Legacy(Way):
    """A fresh `ProcessGroupNCCL` of torch for each group, non-blocking; `form` includes a first sum."""

    ends_sums: ClassVar[bool] = True

    def __init__(self, store: Any, rank: int, device: Any) -> None:
        self._store, self._rank, self._device = store, rank, device
        self._group: Any = None
        self._aborted: list[Any] = []
        """Kept: a destructor joins threads of the group."""

    @override
    def form(self, number: int, ranks: Sequence[int]) -> None:
        self.abort()
        options = dist.ProcessGroupNCCL.Options()
        options.config.blocking = 0
        options._timeout = _NEVER  # noqa: SLF001 - torch's own interface
        store = dist.PrefixStore(f"group/{number}", self._store)
        index, size = ranks.index(self._rank), len(ranks)
        self._group = dist.ProcessGroupNCCL(store, index, size, options)
        ones = torch.ones(1, device=self._device)
        await_work(self, self.begin(ones), _CONNECT_S)  # NCCL connects in the first sum

    @override
    def begin(self, tensor: Any) -> Any:
        work = self._group.allreduce([tensor])
        work.wait()  # without a time-out, it orders the current stream behind the sum
        event = torch.cuda.Event()
        event.record()
        return work, event

    @override
    def is_done(self, work: Any) -> bool:
        # `is_completed` is true as soon as an error is noticed, while sums continue
        return bool(work[1].query())

    @override
    def abort(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            self._aborted.append(group)
            group.abort()


class Raw(Way):
    """Communicators of NCCL itself, each ended by `ncclCommAbort`."""

    ends_sums: ClassVar[bool] = True

    def __init__(self, store: Any, rank: int, device: Any) -> None:
        self._store, self._rank = store, rank
        self._library = Library()
        self._stream = torch.cuda.Stream(device)
        self._communicator: Communicator | None = None
        self._ranks: list[int] = []

    @override
    def form(self, number: int, ranks: Sequence[int]) -> None:
        self._release()
        key = f"unique-id/{number}"
        if self._rank == ranks[0]:
            self._store.set(key, self._library.unique_id())
        unique_id = bytes(self._store.get(key))
        assert len(unique_id) == UNIQUE_ID_BYTES
        index, size = ranks.index(self._rank), len(ranks)
        self._communicator = self._library.form(unique_id, index, size)
        self._ranks = list(ranks)

    @override
    def begin(self, tensor: Any) -> Any:
        assert self._communicator is not None
        self._stream.wait_stream(torch.cuda.current_stream())
        self._library.begin_sum(self._communicator, tensor, self._stream.cuda_stream)
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    @override
    def is_done(self, work: Any) -> bool:
        return bool(work.query())

    @override
    def abort(self) -> None:
        self._release()

    def _release(self) -> None:
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            self._library.abort(communicator)


class RawShrink(Raw):
    """As `Raw`, but after a loss `form` shrinks the communicator; NCCL 2.27."""

    ends_sums: ClassVar[bool] = False

    def __init__(self, store: Any, rank: int, device: Any) -> None:
        """Loads NCCL.

        Args:
            store: A store of torch that all ranks share.
            rank: This rank's number, the same in all groups.
            device: The torch device of the tensors.

        Raises:
            NotImplementedError: This NCCL has no `ncclCommShrink`.
        """
        super().__init__(store, rank, device)
        _require(self._library, "ncclCommShrink")

    @override
    def form(self, number: int, ranks: Sequence[int]) -> None:
        # shrinks unless a rank is new
        parent = self._communicator
        lost = [index for index, rank in enumerate(self._ranks) if rank not in ranks]
        if parent is None or not lost or not set(ranks) <= set(self._ranks):
            super().form(number, ranks)
            return
        self._communicator = self._library.shrink(parent, lost)
        self._ranks = list(ranks)
        self._library.abort(parent)

    @override
    def abort(self) -> None:
        """Leaves the end of the sums to `form`."""


def await_work(way: Way, work: Any, limit_s: float) -> None:
    """Waits until a sum has ended.

    Raises:
        TimeoutError: It has not ended in time.
    """
    await_(lambda: way.is_done(work), "the end of a sum", limit_s)


def await_(holds: Callable[[], bool], what: str, limit_s: float) -> None:
    """Polls until something holds.

    Raises:
        TimeoutError: It has not held in time.
    """
    until_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not come within {limit_s:g} s")
        time.sleep(_POLL_S)


def _require(library: Library, name: str) -> None:
    if not library.has(name):
        raise NotImplementedError(f"this NCCL has no {name}")


WAYS: dict[str, Callable[[Any, int, Any], Way]] = {
    "gloo": Gloo,
    "legacy": Legacy,
    "raw": Raw,
    "raw-shrink": RawShrink,
}
"""The ways by name; each is called with the store, the rank and the device."""
