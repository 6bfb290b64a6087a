"""Tracks a model's position in the data: which records the model contains (pure).

A position consists of a position in the master's ledger and the records that were trained after it
was read. Checkpoints contain both parts, so that the data is set back together with the model
(decision 0032).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl.master import protocol
from edl.sync.plans import Span

_MOST = 1 << 16
"""Largest number of listed tasks; with more, the position becomes unknown. Older masters never
renew it."""
RENEWED_AT = 512
"""A position that lists this many tasks is renewed, which keeps checkpoints small."""


class DataPosition:
    """A model's records: all before the ledger's position, and parts of the listed tasks."""

    def __init__(self) -> None:
        """Creates the position of a model that was never trained."""
        self.is_known = True
        """False if an earlier version saved the model, or if too many tasks would have to be
        listed."""
        self._ledger: protocol.Json | None = None
        """The ledger's position, as the master returned it; None at the beginning of the data."""
        self._remaining: dict[str, int] = {}
        """Task -> untrained records at its end, for tasks started after the ledger's position."""
        self._steps: dict[str, int] = {}
        """Task -> number of steps that started in it. The master counts a task's steps when the
        task is done."""

    @property
    def tasks(self) -> list[str]:
        """The tasks that are listed."""
        return list(self._remaining)

    def train(self, spans: Iterable[Span]) -> None:
        """Adds the records of a step."""
        for index, span in enumerate(spans):
            task = span.lease.task
            self._remaining[task] = span.lease.end - span.start - span.count
            self._steps[task] = self._steps.get(task, 0) + (index == 0)
        if len(self._remaining) > _MOST:
            self._remaining, self._steps, self.is_known = {}, {}, False

    def renew(self, answer: Mapping[str, protocol.Json]) -> None:
        """Continues from the ledger's current position, which the model contains.

        Args:
            answer: The master's answer, to a call that named all `tasks`.
        """
        self._ledger, self.is_known = answer["position"], True
        for task in answer["settled"]:
            self._remaining.pop(task, None)
            self._steps.pop(task, None)

    def dump(self) -> protocol.Json | None:
        """Returns the position as JSON, or None if it is not known."""
        if not self.is_known:
            return None
        remaining, steps = dict(self._remaining), dict(self._steps)
        return {"ledger": self._ledger, "remaining": remaining, "steps": steps}

    def load(self, dumped: protocol.Json | None) -> None:
        """Replaces the position with a position that `dump` returned.

        Raises:
            TypeError: `dumped` is not a position.
            ValueError: A field of `dumped` is not a number.
        """
        fields = {"remaining": {}} if dumped is None else dumped
        ledger, remaining, steps = (
            fields.get("ledger"),
            fields["remaining"],
            fields.get("steps", {}),
        )
        is_ledger = isinstance(ledger, (dict, type(None)))
        if not (is_ledger and isinstance(remaining, dict) and isinstance(steps, dict)):
            raise TypeError(f"data is {dumped!r:.80}, which is not a position")
        self._remaining = {str(task): int(records) for task, records in remaining.items()}
        self._steps = {str(task): int(count) for task, count in steps.items()}
        self._ledger, self.is_known = ledger, dumped is not None

    def target(self) -> protocol.Json:
        """Returns the fields of a call that sets the data back to this position."""
        ledger = self._ledger
        if ledger is not None and isinstance(ledger.get("steps"), int):
            ledger = {**ledger, "steps": ledger["steps"] + sum(self._steps.values())}
        return {"position": ledger, "remaining": dict(self._remaining)}
