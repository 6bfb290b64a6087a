"""How far the group is, as one member has it; every member keeps it, so that any can lead next.

A step's records are entered in the lease table one collective call later than the step is made:
only then is it certain that every member has made it, and that no acknowledged record can be
missing in the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from edl.master import protocol
from edl.master.leases import LeaseTable, Portion
from edl.sync.agreement import StateReport
from edl.sync.plans import Plan


class GroupProgress:
    """One member's copy of the group's progress; only its lease table is used by other threads."""

    def __init__(self) -> None:
        self.lease_table = LeaseTable()
        self.term = 0
        """The newest term in which this member's state was equal to that of all others; 0: none."""
        self.step = 0
        """Number of steps made."""
        self.records = 0
        self.skipped = 0
        self.last_plan = ""
        """Plan of the newest step."""
        self.metrics: dict[str, float] = {}
        """Of the newest step."""
        self.flight: Plan | None = None
        """The step that was begun and is not complete."""
        self._pending: tuple[list[Portion], dict[str, float]] | None = None
        """The newest step, as long as it is not in the lease table."""
        self.skipped_in_a_row = 0
        """Number of newest steps that were all skipped."""
        self._announced: set[str] = set()
        """Tasks that other members may track: those tracked when the leader last sent plans."""
        self._last_settled: set[str] = set()
        """Tasks sent as settled the last time, which some members may not have received."""

    def state_report(self, trainer: str, digest: int) -> StateReport:
        """Returns this member's report for the start of a round."""
        flight = "" if self.flight is None else self.flight.name
        return StateReport(trainer, self.term, self.step, digest, self.last_plan, flight)

    def advance(self, metrics: Mapping[str, float], *, skipped: bool = False) -> None:
        """Records that the step in flight was made by this member."""
        plan = self.flight
        if plan is None:
            return
        self.commit()
        self.step += 1
        self.records += plan.size
        self.skipped += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
        self.last_plan, self.metrics = plan.name, dict(metrics)
        self.flight = None
        self._pending = ([span.portion for span in plan.spans], self._finite_metrics())

    @property
    def pending(self) -> bool:
        """Whether the newest step is not in the lease table yet."""
        return self._pending is not None

    def commit(self) -> bool:
        """Enters the newest step, which all members have made; whether it completed a task."""
        pending, self._pending = self._pending, None
        return pending is not None and self.lease_table.record_step(*pending)

    def start_leading(self) -> None:
        """Records that this member leads from now on: others may track the tasks it tracks."""
        self._announced = self.lease_table.tracked_tasks()

    def newly_settled(self) -> list[str]:
        """Returns tasks to send as settled: those no longer tracked since the last call.

        Each is sent twice: the first message may reach some members only.
        """
        tracked = self.lease_table.tracked_tasks()
        settled = self._announced - tracked
        repeated = self._last_settled
        self._last_settled, self._announced = settled, tracked
        return sorted((settled | repeated) - tracked)

    def dump(self) -> protocol.Json:
        """Returns it for newcomers, as it will be once all members have made the newest step."""
        lease_table = LeaseTable()
        lease_table.load(self.lease_table.dump())
        if self._pending is not None:
            lease_table.record_step(*self._pending)
        return {**self.position_json(), "book": lease_table.dump()}

    def position_json(self) -> protocol.Json:
        """Returns it without the lease table, for newcomers and checkpoints."""
        return {
            "step": self.step,
            "records": self.records,
            "skipped": self.skipped,
            "in_a_row": self.skipped_in_a_row,
            "made": self.last_plan,
            "metrics": self.metrics,
        }

    def load(self, state: protocol.Json) -> None:
        """Loads what another member dumped; the lease table stays the same object."""
        self.load_position(state)
        self.lease_table.load(state["book"])
        self.flight = self._pending = None
        self._last_settled = set()

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Loads what `position_json` returned; the lease table does not change."""
        self.step, self.records = int(state["step"]), int(state["records"])
        self.skipped, self.skipped_in_a_row = int(state["skipped"]), int(state["in_a_row"])
        self.last_plan, self.metrics = str(state["made"]), dict(state["metrics"])

    def settle(self, tasks: Iterable[str]) -> None:
        """Stops tracking tasks that the leader sent as settled."""
        self._last_settled = set(tasks)
        self.lease_table.discard(self._last_settled)

    def _finite_metrics(self) -> dict[str, float]:
        return {name: value for name, value in self.metrics.items() if math.isfinite(value)}
