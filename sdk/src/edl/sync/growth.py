"""Adds members to a round while it trains: newcomers get the state in parts (decision 0048).

Several other members send the parts. Until a newcomer has all parts, it computes no gradient: it
contributes zeros to each sum. It applies each step, so the parts that it has stay up to date.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edl import clock
from edl.collective import Interrupt, Ring
from edl.collective.transport import OnWait
from edl.errors import CheckpointError, one_line
from edl.master.protocol import Round
from edl.sync.link import Link
from edl.sync.parts import PartedReplica, as_parted
from edl.sync.replica import GroupModel, State
from edl.sync.state_stream import SourceShare, StateReceiver, StateSender
from edl.sync.step_flags import SOURCES, StepFlags

log = logging.getLogger("edl")

_HOLD_S = 20.0
"""How long a later round waits for the newcomers of the current round. The master drops members that
do not join a later round within 60 s."""


class Streams(NamedTuple):
    """Connects the rings that carry the parts of a state."""

    interrupt: Interrupt
    """Ends all calls on the rings."""
    connect: Callable[[Sequence[int], int], Ring]
    """Connects members in the ring of a channel, given their ranks and the channel's number (from 1)."""


@dataclass(frozen=True)
class GrowthReport:
    """What a process still has to do before it has the state."""

    lacking: bool
    """Whether it lacks parts of the state."""
    saving: bool
    """Whether it is still copying its previous state."""


Connecting = Callable[[Collection[int]], AbstractContextManager[object]]


class Growth:
    """One process's part in the growth of one round; does nothing if all members have the state."""

    def __init__(
        self,
        replica: GroupModel,
        ring: Link,
        round_: Round,
        streams: Streams | None,
        on_wait: OnWait | None = None,
        *,
        connecting: Connecting = contextlib.nullcontext,
    ) -> None:
        """Makes no call.

        Args:
            replica: The replica of this process, or its part of one.
            ring: The connections of the round.
            round_: The round.
            streams: Connects the rings that carry the parts; None if newcomers get the state at
                once.
            on_wait: Called in the same way as by `edl.collective.Ring.connect`.
            connecting: Returns a context in which the rings are connected, given the receivers'
                ranks. The first process of a pod uses it to make the other processes connect their
                rings.
        """
        self._replica, self._ring, self._round = replica, ring, round_
        self._streams, self._on_wait, self._connecting = streams, on_wait, connecting
        self.workers = round_.world_size
        """Number of members that compute, those of the lowest ranks; the same number in all
        members."""
        self._receivers: frozenset[int] = frozenset()
        self._is_under_way = False
        self._rings: list[Ring] = []
        """A source has one ring; a receiver has the rings of all sources."""
        self._sender: StateSender | None = None
        self._inflows: list[StateReceiver] = []
        """One receiver for each source; the first one also receives the state outside the parts."""
        self._undo: Callable[[], None] | None = None
        """Restores the progress that a member without the state had before the round."""
        self._saved_state: State | None = None
        self._saving: threading.Thread | None = None
        self._error: Exception | None = None
        self._may_begin = False
        """Whether all receivers have copied their previous states."""
        self._member_report: GrowthReport | None = None
        """The newest report for all processes of this member; None if it has only one."""
        self._began_s = 0.0

    # -- the start of a round ----------------------------------------------------------------

    def plan(self, receivers: Collection[int], undo: Callable[[], None]) -> None:
        """Sets the members that get the state during the round; called before they load any state.

        Args:
            receivers: Ranks of these members; they are the last ranks of the round.
            undo: Called if this member lacks the state at the end of the round.
        """
        self._receivers = frozenset(receivers)
        self.workers = self._round.world_size - len(receivers)
        if self._round.rank in receivers:
            self._undo = undo

    def cancel(self) -> None:
        """Cancels the plan, because all members got a state in another way."""
        self._receivers, self._undo = frozenset(), None
        self.workers = self._round.world_size

    def start(self) -> None:
        """Connects each source with the receivers, and starts the threads that send and receive."""
        replica = as_parted(self._replica)
        if not self._receivers or replica is None or self._streams is None:
            return
        self._is_under_way, self._began_s = True, clock.monotonic_s()
        with self._connecting(self._receivers):
            self._connect(replica, self._streams)

    def _connect(self, replica: PartedReplica, streams: Streams) -> None:
        sources, receivers = range(self.workers)[-SOURCES:], sorted(self._receivers)
        for channel, source in enumerate(sources, 1):
            if self._round.rank in (source, *receivers):
                self._rings.append(streams.connect((source, *receivers), channel))
                self._rings[-1].on_wait = None  # only the ring's threads wait, not the program
        places = range(1, 1 + len(receivers))
        if self._round.rank in self._receivers:
            self._inflows = [StateReceiver(replica, ring, places) for ring in self._rings]
            self._saving = threading.Thread(target=self._save, name="edl-state-saver", daemon=True)
            self._saving.start()
        elif self._round.rank in sources:
            share = SourceShare(sources.index(self._round.rank), len(sources))
            self._sender = StateSender(replica, self._rings[0], places, share)

    # -- each step ---------------------------------------------------------------------------

    def report(self) -> GrowthReport:
        """Returns the report of this process."""
        return GrowthReport(
            lacking=not all(inflow.is_complete for inflow in self._inflows),
            saving=self._saving is not None and self._saving.is_alive(),
        )

    def adopt(self, reports: Iterable[GrowthReport]) -> None:
        """Makes this process report for its member, which lacks parts while any of its processes does.

        Args:
            reports: The reports of all processes of this member.
        """
        own = list(reports)
        self._member_report = GrowthReport(
            lacking=any(report.lacking for report in own),
            saving=any(report.saving for report in own),
        )

    @property
    def is_complete(self) -> bool:
        """Whether this member has the state."""
        is_pod_complete = self._member_report is None or not self._member_report.lacking
        return is_pod_complete and not self.report().lacking

    @property
    def applies(self) -> bool:
        """Whether this member applies steps; a receiver does so once it has the first message."""
        return not self._inflows or self._inflows[0].has_begun

    @property
    def holds_round(self) -> bool:
        """Whether a later round waits, so that newcomers of this round do not have to start again."""
        return self._is_under_way and clock.monotonic_s() - self._began_s < _HOLD_S

    def write_flags(self, flags: StepFlags) -> None:
        """Sets this member's flags before a sum; a source also copies the next parts to send.

        Raises:
            CheckpointError: This trainer has too little memory for a copy of its previous state.
            RoundOver: A receiver is lost.
        """
        if self._error is not None:
            raise CheckpointError(
                "this trainer cannot keep its state while it receives the state of the others: "
                f"{one_line(self._error)}: it needs memory for both"
            ) from self._error
        report = self.report() if self._member_report is None else self._member_report
        flags.lacking = float(report.lacking and not flags.leaving)
        flags.saving = float(report.saving)
        if self._sender is not None and self._may_begin:
            flags.parts[self._sender.share.number] = float(self._sender.offer())

    def take_parts(self, flags: StepFlags) -> None:
        """Writes the announced parts, which belong to the model's current step, into the model.

        Raises:
            RoundOver: A source is lost.
        """
        for inflow, count in zip(self._inflows, flags.parts):
            inflow.take(int(count), self._ring.check, self._on_wait)

    def read_flags(self, flags: StepFlags) -> None:
        """Takes the announced parts, and ends the growth once all members have all parts.

        Raises:
            RoundOver: A source is lost.
        """
        if not self._is_under_way:
            return
        self.take_parts(flags)
        self._may_begin = not flags.saving
        if not flags.lacking:
            seconds = clock.monotonic_s() - self._began_s
            log.info("%d newcomers got the state in %.1f s", len(self._receivers), seconds)
            self.workers = self._round.world_size
            self._close_rings()
            self._undo = self._saved_state = None

    # -- the end of a round ------------------------------------------------------------------

    def close(self, *, is_leaving: bool = False) -> None:
        """Ends the threads; a member that lacks parts of the state restores its previous state.

        Args:
            is_leaving: Whether this member leaves and needs no state.
        """
        self._close_rings()
        undo, self._undo = self._undo, None
        if undo is None or is_leaving:
            return
        if self._saved_state is not None:
            self._replica.load(self._saved_state)
        undo()

    def _close_rings(self) -> None:
        if not self._is_under_way or self._streams is None:
            return
        self._is_under_way = False
        self._streams.interrupt.set()
        for end in (self._sender, *self._inflows):
            if end is not None:
                end.close()
        if self._saving is not None:
            self._saving.join()
        for ring in self._rings:
            ring.close()
        self._sender = self._saving = None

    def _save(self) -> None:
        """Copies the state that this member has, in case the others are lost."""
        try:
            state = self._replica.state()
            arrays = {name: np.array(array) for name, array in state.arrays.items()}
            self._saved_state = State(arrays, state.extra)
        except Exception as error:  # noqa: BLE001 - `write_flags` raises it on the training thread
            self._error = error
