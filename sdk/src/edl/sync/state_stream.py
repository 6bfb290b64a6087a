"""Sends and receives a state in parts, each in a thread (decision 0048).

Each source has a ring with all receivers, and sends every n-th part. Only the training thread reads and
writes the model; the threads here send and receive.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple

import numpy as np

from edl import clock
from edl.collective import Ring
from edl.collective.transport import OnWait
from edl.errors import RoundOver, one_line
from edl.master import protocol
from edl.sync.parts import PartedReplica, Slice, cut, state_bytes
from edl.sync.replica import State

_PART_BYTES = 4 << 20
_STATE_DIVISOR, _MIN_STEP_BYTES, _MAX_STEP_BYTES = 16, 32 << 20, 256 << 20
"""Sources send at most 1/16 of a state between two steps, within these bounds in bytes."""
_POLL_S = 0.05
_REPORT_AFTER_S = 0.25

Message = tuple[bytes, "list[np.ndarray]"]


class SourceShare(NamedTuple):
    """The parts that a source sends: every `sources`-th part, beginning with part `number`."""

    number: int
    """Number of this source, from 0."""
    sources: int


class StateSender:
    """A source's connection to the receivers. The state does not change while a step is computed."""

    part_bytes = _PART_BYTES
    """Approximate size of a message."""

    def __init__(
        self, replica: PartedReplica, stream: Ring, receivers: Collection[int], share: SourceShare
    ) -> None:
        self._replica, self._stream, self._receivers = replica, stream, receivers
        self.share = share
        groups = replica.groups()
        self._parts = islice(cut(groups, self.part_bytes), share.number, None, share.sources)
        self._next: list[Slice] | None = next(self._parts, None)
        step_bytes = max(_MIN_STEP_BYTES, state_bytes(groups) // _STATE_DIVISOR)
        self._max_bytes = min(_MAX_STEP_BYTES, step_bytes) // share.sources
        self._allowed_bytes = self.part_bytes
        self._count = 0
        """Number of messages that are sent or queued."""
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._unsent = 0
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="edl-state-sender", daemon=True)
        self._thread.start()

    def offer(self) -> int:
        """Copies the next parts, if all earlier ones are sent; called between two steps.

        Returns:
            The number of messages that the receivers must have before their next step.

        Raises:
            RoundOver: A receiver is lost.
        """
        if self._error is not None:
            raise RoundOver(f"the state cannot be handed over: {one_line(self._error)}")
        if self._unsent:
            self._allowed_bytes = max(self.part_bytes, self._allowed_bytes // 2)
            return self._count
        if not self._count:
            self._send_first()
        copied_bytes = 0
        while self._next is not None and copied_bytes < self._allowed_bytes:
            copied_bytes += self._send_part(self._next)
        self._allowed_bytes = min(self._max_bytes, 2 * self._allowed_bytes)
        return self._count

    def close(self) -> None:
        """Waits for the thread, which ends when the stream is interrupted or all messages are sent."""
        self._messages.put(None)
        self._thread.join()

    def _send_first(self) -> None:
        """Sends the state outside the parts; receivers take it before the parts of other sources."""
        header: protocol.Json = {"last": self._next is None}
        arrays: list[np.ndarray] = []
        if self.share.number == 0:
            rest = self._replica.rest()
            header |= {"rest": list(rest.arrays), "extra": rest.extra}
            arrays = [np.array(array, order="C") for array in rest.arrays.values()]
        self._send(header, arrays)

    def _send_part(self, part: list[Slice]) -> int:
        """Copies a part; returns its size in bytes."""
        arrays = [self._replica.read_slice(name, s.start, s.stop) for s in part for name in s.names]
        self._next = next(self._parts, None)
        self._send({"slices": part, "last": self._next is None}, arrays)
        return sum(array.nbytes for array in arrays)

    def _send(self, header: protocol.Json, arrays: list[np.ndarray]) -> None:
        with self._lock:
            self._unsent += 1
        self._count += 1
        self._messages.put((json.dumps(header).encode(), arrays))

    def _run(self) -> None:
        try:
            for header, arrays in iter(self._messages.get, None):
                self._stream.hand_over(arrays, header, self._receivers)
                with self._lock:
                    self._unsent -= 1
        except Exception as error:  # noqa: BLE001 - `offer` reports it on the training thread
            self._error = error


class StateReceiver:
    """A receiver's connection to one source."""

    def __init__(self, replica: PartedReplica, stream: Ring, receivers: Collection[int]) -> None:
        self._replica, self._stream, self._receivers = replica, stream, receivers
        self._messages: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        """Messages that have arrived; if an error occurs, it is the last entry."""
        self._count = 0
        """Number of messages that were written into the replica."""
        self.is_complete = False
        """Whether the replica has all parts of this source."""
        self._thread = threading.Thread(target=self._run, name="edl-state-receiver", daemon=True)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether the replica has the state outside the parts, on which all steps depend."""
        return self._count > 0

    def take(self, count: int, check: Callable[[], None], on_wait: OnWait | None) -> None:
        """Writes messages into the replica until it has `count` of them.

        Args:
            count: The number that the sender's `offer` returned.
            check: Raises if the round is over.
            on_wait: Called in the same way as by `edl.collective.Ring.connect`.

        Raises:
            RoundOver: The sender is lost.
        """
        since_s, is_reported = clock.monotonic_s(), False
        while self._count < count:
            try:
                message = self._messages.get(timeout=_POLL_S)
            except queue.Empty:
                check()
                is_long = clock.monotonic_s() - since_s > _REPORT_AFTER_S
                if on_wait is not None and is_long and not is_reported:
                    is_reported = True
                    on_wait(since_s)
                continue
            if isinstance(message, Exception):
                raise RoundOver(f"the state does not arrive: {one_line(message)}")
            self._write(*message)
        if on_wait is not None and is_reported:
            on_wait(None)

    def close(self) -> None:
        """Waits for the thread, which ends when the stream is interrupted or all messages have arrived."""
        self._thread.join()

    def _write(self, raw: bytes, arrays: list[np.ndarray]) -> None:
        header = json.loads(raw)
        if "rest" in header:
            self._replica.load_rest(State(dict(zip(header["rest"], arrays)), header["extra"]))
        remaining = iter(arrays)
        for names, start, _ in header.get("slices", ()):
            for name in names:
                self._replica.write_slice(name, start, next(remaining))
        self._count += 1
        self.is_complete = header["last"]

    def _run(self) -> None:
        try:
            last = False
            while not last:
                header, arrays = self._stream.hand_over(None, b"", self._receivers)
                last = json.loads(header)["last"]
                self._messages.put((header, arrays))
        except Exception as error:  # noqa: BLE001 - `take` reports it on the training thread
            self._messages.put(error)
