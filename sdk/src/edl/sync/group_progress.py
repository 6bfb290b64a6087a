"""The group's progress; every member keeps a copy, so that any member can lead next.

A member records a step in the lease table one collective call after it made the step. Only then is it
certain that every member has made the step, and that the model contains all acknowledged records.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edl.master import protocol
from edl.master.leases import LeaseTable, Portion
from edl.sync.agreement import StateReport
from edl.sync.data_position import DataPosition
from edl.sync.plans import Plan

_LINEAGE_BITS = 62


class GroupProgress:
    """One member's copy of the group's progress; only its lease table is used by other threads."""

    def __init__(self) -> None:
        self.lease_table = LeaseTable()
        self.term = 0
        """The newest term in which this member had the same state as all others; 0 before the
        first."""
        self.step = 0
        """Number of steps made."""
        self.records = 0
        self.data = DataPosition()
        """The records that the model contains, including those of the newest step."""
        self.skipped = 0
        self.lineage = 0
        """Hash of the state's random origin, its steps and the rounds in which they were made. Members
        with the same lineage have the same state, because all apply the same gradients; so lineages
        are compared instead of states."""
        self.last_plan = ""
        """Name of the plan of the newest step."""
        self.metrics: dict[str, float] = {}
        """Metrics of the newest step that was not skipped."""
        self.flight: Plan | None = None
        """Plan of the step that has started and is not complete."""
        self._pending: tuple[list[Portion], dict[str, float]] | None = None
        """Records and metrics of the newest step, until they are in the lease table."""
        self.skipped_in_a_row = 0
        """Number of consecutive skipped steps, up to the newest one."""
        self._announced: set[str] = set()
        """Tasks that this leader tracked when it last sent plans; other members may still track
        them."""
        self._last_settled: set[str] = set()
        """Tasks that were last sent as settled; some members may not have received the message."""

    def state_report(self, trainer: str, before: int = 0, *, parts: int = 0) -> StateReport:
        """Returns this member's report for the start of a round.

        Args:
            trainer: This trainer's name.
            before: The lineage before the newest step if this member has that step's gradient,
                otherwise 0.
            parts: Bytes of the state if it can be sent in parts, otherwise 0.
        """
        flight = "" if self.flight is None else self.flight.name
        lineage = self.lineage if self.term else 0
        return StateReport(
            trainer,
            self.term,
            self.step,
            lineage,
            self.last_plan,
            flight,
            before=before,
            parts=parts,
        )

    def start_lineage(self) -> None:
        """Gives the state a random lineage, if its lineage is not known."""
        self.lineage = self.lineage or 1 + secrets.randbits(_LINEAGE_BITS)

    def advance(
        self, metrics: Mapping[str, float], *, round_number: int = 0, skipped: bool = False
    ) -> None:
        """Records that this member has made the step in flight, in the round `round_number`."""
        plan = self.flight
        if plan is None:
            return
        self.commit()
        self.step += 1
        made = f"{self.lineage} {round_number} {plan.name} {skipped:d}".encode()
        self.lineage = 1 + int.from_bytes(hashlib.sha256(made).digest(), "big") % (
            1 << _LINEAGE_BITS
        )
        self.records += plan.size
        self.data.train(plan.spans)
        self.skipped += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
        self.last_plan = plan.name
        if not skipped:  # metrics of a skipped step do not describe the model
            self.metrics = dict(metrics)
        self.flight = None
        self._pending = ([span.portion for span in plan.spans], _finite(metrics))

    @property
    def pending(self) -> bool:
        """Whether the newest step is still missing in the lease table."""
        return self._pending is not None

    def commit(self) -> bool:
        """Records the newest step, which all members have made; returns whether it completed a task."""
        pending, self._pending = self._pending, None
        return pending is not None and self.lease_table.record_step(*pending)

    def start_leading(self) -> None:
        """Notes that this member leads now: other members may track the tasks that it tracks."""
        self._announced = self.lease_table.tracked_tasks()

    def newly_settled(self) -> list[str]:
        """Returns the tasks to send as settled: those that were tracked at the last call and no longer are.

        Two consecutive calls return each task, because the first message may not reach all members.
        """
        tracked = self.lease_table.tracked_tasks()
        settled = self._announced - tracked
        repeated = self._last_settled
        self._last_settled, self._announced = settled, tracked
        return sorted((settled | repeated) - tracked)

    def dump(self) -> protocol.Json:
        """Returns the progress for newcomers, as if all members had made the newest step."""
        lease_table = LeaseTable()
        lease_table.load(self.lease_table.dump())
        if self._pending is not None:
            lease_table.record_step(*self._pending)
        return {**self.position_json(), "book": lease_table.dump()}

    def undo(self) -> Callable[[], None]:
        """Returns a function that restores the current progress and term."""
        before, term = self.dump(), self.term

        def restore() -> None:
            self.load(before)
            self.term = term

        return restore

    def position_json(self) -> protocol.Json:
        """Returns the progress without the lease table, for newcomers and checkpoints."""
        return {
            "step": self.step,
            "records": self.records,
            "skipped": self.skipped,
            "in_a_row": self.skipped_in_a_row,
            "made": self.last_plan,
            "lineage": self.lineage,
            "metrics": self.metrics,
            "data": self.data.dump(),
        }

    def load(self, state: protocol.Json) -> None:
        """Loads the progress that another member dumped; the lease table stays the same object."""
        self.load_position(state)
        self.data.load(state.get("data"))
        self.lease_table.load(state["book"])
        self.flight = self._pending = None
        self._last_settled = set()

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Loads the fields of `position_json` except for the position in the data."""
        self.step, self.records = int(state["step"]), int(state["records"])
        self.skipped, self.skipped_in_a_row = int(state["skipped"]), int(state["in_a_row"])
        self.last_plan, self.metrics = str(state["made"]), dict(state["metrics"])
        self.lineage = int(state.get("lineage", 0))  # checkpoints of older releases have none
        self.start_lineage()

    def settle(self, tasks: Iterable[str]) -> None:
        """Stops tracking the tasks that the leader sent as settled."""
        self._last_settled = set(tasks)
        self.lease_table.discard(self._last_settled)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
