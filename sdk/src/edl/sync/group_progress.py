"""How far the group is, as one member has it; every member keeps it, so that any can lead next.

A step's records are entered in the lease table one collective call later than the step is made:
only then is it certain that every member has made it, and that no acknowledged record can be
missing in the model.
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
        """The newest term in which this member's state was equal to that of all others; 0: none."""
        self.step = 0
        """Number of steps made."""
        self.records = 0
        self.data = DataPosition()
        """Which records the model contains, those of the newest step too."""
        self.skipped = 0
        self.lineage = 0
        """What the state was made of: a random number for its origin, and each step with the round
        in which it was made. Members with the same lineage have the same state, as all apply the
        same gradient; so no state is read to compare it."""
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

    def state_report(self, trainer: str, before: int = 0, *, parts: int = 0) -> StateReport:
        """Returns this member's report for the start of a round.

        Args:
            trainer: Its name.
            before: The lineage before the newest step, if this member has that step's gradient.
            parts: Bytes of its state, where others can get it in parts; or 0.
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
        """Records that the state is a new one, if it is not known of what it was made."""
        self.lineage = self.lineage or 1 + secrets.randbits(_LINEAGE_BITS)

    def advance(
        self, metrics: Mapping[str, float], *, round_number: int = 0, skipped: bool = False
    ) -> None:
        """Records that the step in flight was made by this member, in that round."""
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
        if not skipped:  # those of a step that is left out say nothing of the model
            self.metrics = dict(metrics)
        self.flight = None
        self._pending = ([span.portion for span in plan.spans], _finite(metrics))

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

    def undo(self) -> Callable[[], None]:
        """Returns a function that brings back the progress of now, and its term."""
        before, term = self.dump(), self.term

        def bring_back() -> None:
            self.load(before)
            self.term = term

        return bring_back

    def position_json(self) -> protocol.Json:
        """Returns it without the lease table, for newcomers and checkpoints."""
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
        """Loads what another member dumped; the lease table stays the same object."""
        self.load_position(state)
        self.data.load(state.get("data"))
        self.lease_table.load(state["book"])
        self.flight = self._pending = None
        self._last_settled = set()

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Loads what `position_json` returned, but not the data's position nor the lease table."""
        self.step, self.records = int(state["step"]), int(state["records"])
        self.skipped, self.skipped_in_a_row = int(state["skipped"]), int(state["in_a_row"])
        self.last_plan, self.metrics = str(state["made"]), dict(state["metrics"])
        self.lineage = int(state.get("lineage", 0))  # checkpoints of older releases have none
        self.start_lineage()

    def settle(self, tasks: Iterable[str]) -> None:
        """Stops tracking tasks that the leader sent as settled."""
        self._last_settled = set(tasks)
        self.lease_table.discard(self._last_settled)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
