"""Makes the collective calls of one round over a torch process group, without blocking inside torch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from edl.collective import bundle
from edl.errors import RoundOver, one_line
from edl.overriding import override
from edl.sync.link import Link
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.commands import Announcer, Broadcast, HandOver, SingleProcess

T = TypeVar("T")

_LENGTH = struct.Struct("!Q")
_SENT_BY_GLOO = ("cpu", "cuda")
"""Devices whose tensors gloo can sum; it copies tensors on a GPU to the host and back."""
_BLOCK_BYTES = 4_096
"""Payloads up to this length are gathered in one call."""


class GroupLink(Link):
    """An `edl.sync.link.Link` over gloo; for one thread. Members make the same calls in the same order."""

    def __init__(
        self,
        group: Any,
        rank: int,
        world_size: int,
        waiting: Waiting,
        announcer: Announcer | None = None,
    ) -> None:
        """Makes no call.

        Args:
            group: A process group of torch; None for one member.
            rank: This member's rank.
            world_size: Number of members.
            waiting: Its waits end with the round.
            announcer: Makes the other processes of a pod send or receive their parts of a state, too.
        """
        self._announcer = SingleProcess() if announcer is None else announcer
        self._group, self.rank, self.world_size = group, rank, world_size
        self._waiting = waiting
        self._is_over = False
        self.exchanged_bytes = 0
        """Bytes of tensors that this member has summed, sent or received."""
        self.works: list[Any] = []
        """Started operations, which may still run when the round ends; the list keeps their tensors
        alive."""

    def begin_sum(self, tensor: Any) -> Any:
        """Begins to sum a tensor over all members, in place; returns the work.

        Raises:
            RoundOver: A member is lost.
        """
        if tensor.device.type in _SENT_BY_GLOO:
            return self._guard(lambda: self._begin(lambda group: group.allreduce([tensor]), tensor))
        host = tensor.detach().to("cpu")
        work = self._guard(lambda: self._begin(lambda group: group.allreduce([host]), host))
        return _HostSum(work, host, tensor)

    def wait_for(self, works: Sequence[Any]) -> None:
        """Waits until operations have ended.

        Raises:
            RoundOver: A member is lost.
        """
        for work in works:
            self._guard(partial(self._waiting.wait_for, work))
        self.works.clear()

    @override
    def gather(self, payload: bytes) -> list[bytes]:
        block = _LENGTH.pack(len(payload)) + payload[:_BLOCK_BYTES]
        blocks = self._gather_blocks(block, _LENGTH.size + _BLOCK_BYTES)
        lengths = [_LENGTH.unpack_from(raw)[0] for raw in blocks]
        if max(lengths) > _BLOCK_BYTES:
            blocks = self._gather_blocks(payload, max(lengths))
            return [raw[:length] for raw, length in zip(blocks, lengths)]
        return [raw[_LENGTH.size :][:length] for raw, length in zip(blocks, lengths)]

    @override
    def barrier(self) -> None:
        if self.world_size > 1:
            tensor = torch.zeros(1, device="cpu")
            self._run(lambda group: group.allreduce([tensor]), tensor)
        self.check()

    @override
    def broadcast(
        self, arrays: Sequence[Any] | None, meta: bytes, source: int
    ) -> tuple[bytes, list[Any]]:
        is_source = source == self.rank
        own = list(arrays or ())
        if self.world_size == 1:
            self.check()
            return meta, own

        def move(tensor: Any) -> None:
            self._run(lambda group: group.broadcast(tensor, source), tensor)

        meta, received = self._move(own, meta, move, sends=is_source)
        if received:
            self._announcer.repeat(Broadcast(source))
        return meta, received

    @override
    def receive(self, source: int) -> tuple[bytes, list[Any]]:
        """Receives another member's broadcast."""
        return self.broadcast(None, b"", source)

    @override
    def hand_over(
        self, arrays: Sequence[Any] | None, meta: bytes, receivers: Collection[int]
    ) -> tuple[bytes, list[Any]]:
        """Sends to some members; receivers with adjacent ranks all receive from the member before them."""
        if self.rank in receivers:
            source = self.rank
            while source in receivers:
                source = (source - 1) % self.world_size

            def take(tensor: Any) -> None:
                self._run_apart(lambda group: group.recv([tensor], source, 0), tensor)

            meta, received = self._move([], b"", take, sends=False)
            if received:
                self._announcer.repeat(HandOver(sorted(receivers)))
            return meta, received
        target = (self.rank + 1) % self.world_size
        while target in receivers:

            def give(tensor: Any, target: int = target) -> None:
                self._run_apart(lambda group: group.send([tensor], target, 0), tensor)

            self._move(list(arrays or ()), meta, give, sends=True)
            target = (target + 1) % self.world_size
        if arrays:
            self._announcer.repeat(HandOver(sorted(receivers)))
        return b"", []

    @property
    def has_pending(self) -> bool:
        """Whether a started operation has not ended."""
        return not all(work.is_completed() for work in self.works)

    @property
    def is_over(self) -> bool:
        """Whether `check` would raise; cheap enough for every micro-batch."""
        return self._is_over or self._waiting.is_over

    @override
    def check(self) -> None:
        """Raises `RoundOver` if it is known that the round is over; does not send or wait."""
        if self._is_over:
            raise RoundOver("this round is over")
        self._waiting.check()

    def close(self) -> None:
        """Ends the link; later calls raise `RoundOver`."""
        self._is_over, self._group = True, None

    def _move(
        self, arrays: list[Any], meta: bytes, move: Callable[[Any], None], *, sends: bool
    ) -> tuple[bytes, list[Any]]:
        """Sends or receives a length, a header with bytes, and arrays."""
        header = bundle.encode_header(meta, arrays) + meta if sends else b""
        length = torch.tensor([len(header)], dtype=torch.int64, device="cpu")
        move(length)
        text = _tensor(header) if sends else _empty(int(length[0]))
        move(text)
        if not sends:
            meta, arrays = bundle.decode_header(text.numpy().tobytes())
        for array in arrays:
            if array.size:
                flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                move(torch.from_numpy(flat))
        return meta, arrays

    def _gather_blocks(self, payload: bytes, size: int) -> list[bytes]:
        if self.world_size == 1:
            self.check()
            return [payload]
        own = _tensor(payload.ljust(size, b"\0"))
        all_blocks = [_empty(size) for _ in range(self.world_size)]
        self._run(lambda group: group.allgather([all_blocks], [own]), (own, all_blocks))
        return [block.numpy().tobytes() for block in all_blocks]

    def _run(self, begin: Callable[[Any], Any], tensors: Any) -> None:
        """Begins an operation, and waits until it is done."""
        self._guard(lambda: self._waiting.wait_for(self._begin(begin, tensors)))
        self.works.clear()

    def _run_apart(self, begin: Callable[[Any], Any], tensors: Any) -> None:
        """Runs gloo's send or recv on another thread, because a wait for them cannot be repeated."""
        self._guard(lambda: self._waiting.call(lambda: self._begin(begin, tensors).wait()))
        self.works.clear()

    def _begin(self, begin: Callable[[Any], Any], tensors: Any) -> Any:
        self.check()
        work = begin(self._group)
        first = tensors[0] if isinstance(tensors, tuple) else tensors
        self.exchanged_bytes += first.numel() * first.element_size()
        self.works.append(_KeptWork(work, tensors))
        return work

    def _guard(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RoundOver:
            self._is_over = True
            raise
        except RuntimeError as error:
            self._is_over = True
            raise RoundOver(one_line(error)) from error


class _HostSum:
    """A sum on the host, because gloo cannot send from the tensor's device."""

    def __init__(self, work: Any, host: Any, target: Any) -> None:
        self._work, self._host, self._target = work, host, target

    def wait(self, timeout: timedelta) -> None:
        """Waits for the sum, and copies it to the device."""
        self._work.wait(timeout)
        self._target.copy_(self._host)

    def is_completed(self) -> bool:
        """Returns whether the sum has ended; it may not yet be copied to the device."""
        return bool(self._work.is_completed())


class _KeptWork:
    """An operation and the tensors that it reads and writes."""

    def __init__(self, work: Any, tensors: Any) -> None:
        self._work, self._tensors = work, tensors

    def is_completed(self) -> bool:
        """Returns whether the operation has ended."""
        return bool(self._work.is_completed())


def _empty(size: int) -> Any:
    """Returns a buffer of bytes on the host, whatever the program's default device is."""
    return torch.empty(size, dtype=torch.uint8, device="cpu")


def _tensor(payload: bytes) -> Any:
    return torch.from_numpy(np.frombuffer(payload, np.uint8).copy())
