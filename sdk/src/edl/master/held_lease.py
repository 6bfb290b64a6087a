"""A leased task and its progress, with the entries by which it is reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from edl.master import protocol
from edl.master.protocol import Lease

_DIVISIBLE = ("training", "evaluation")
"""Kinds of tasks that two trainers may do a part of each; outputs are written by task."""


@dataclass
class HeldLease:
    """A lease and the progress of its task."""

    lease: Lease
    trained: int = 0
    before: int = 0
    """Records before those of the lease that the model has already: others have trained them."""
    steps: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Metric -> its sum over records."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> number of records in its sum."""

    @property
    def done(self) -> bool:
        """Whether all its records were trained."""
        return self.trained >= self.lease.size

    @property
    def ref(self) -> protocol.Json:
        """Its entry in a heartbeat."""
        return {**self.lease.ref, "trained": self.trained}

    def done_entry(self) -> protocol.Json:
        """Its entry in `done`."""
        return {**self.lease.ref, "records": self.trained, **self._results()}

    def back_entry(self) -> protocol.Json:
        """Its entry in `back`: what was trained is counted, where a task can be cut.

        All of it is counted by an acknowledgement only.
        """
        counted = self.before + min(self.trained, self.lease.size - 1)
        if counted <= 0 or self.lease.kind not in _DIVISIBLE:
            return self.ref
        return {**self.ref, "counted": counted, **self._results()}

    def _results(self) -> protocol.Json:
        """Returns what its records were trained with and showed."""
        means = {name: self.sums[name] / self.weights[name] for name in self.sums}
        return {"steps": self.steps, **({"metrics": means} if means else {})}
