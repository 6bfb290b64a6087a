"""Decides which member has the newest state at a round's start, and which members need it (pure).

Members of a round may differ: newcomers have no state, one that was dropped and came back has an
old one, and where a member died in the middle of a collective call some survivors have made the
step and others have not.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from edl.master import protocol
from edl.sync.replica import State


@dataclass(frozen=True)
class StateReport:
    """A member's description of its state, sent to all members at the start of each round."""

    trainer: str
    term: int = 0
    """The newest term in which its state was equal to that of all others; 0: it has no state."""
    step: int = 0
    """Number of steps made."""
    digest: int = 0
    """Checksum of its state."""
    last_plan: str = ""
    """Plan of its newest step."""
    flight: str = ""
    """Plan of the step that it began and could not complete."""

    def json(self) -> protocol.Json:
        """Returns it as it is sent."""
        report = asdict(self)
        report["made"] = report.pop("last_plan")
        return report

    @classmethod
    def from_json(cls, report: protocol.Json) -> StateReport:
        """Reads a report that `json` returned."""
        fields = dict(report)
        return cls(last_plan=fields.pop("made"), **fields)


@dataclass(frozen=True)
class Agreement:
    """The decision that follows from all members' reports."""

    source: int
    """Rank of the member that has the newest state."""
    receivers: frozenset[int]
    """Ranks of the members that take over its progress and, if needed, its model."""
    model_needed: bool
    """Whether any of them has another model; otherwise only progress is sent."""
    initial: bool
    """Whether no member has a state yet: the source creates the first one."""


def digest(state: State) -> int:
    """Returns a checksum of everything in a state."""
    checksum = zlib.crc32(json.dumps(state.extra, sort_keys=True).encode())
    for name in sorted(state.arrays):
        flat = np.ascontiguousarray(state.arrays[name]).reshape(-1)
        checksum = zlib.crc32(flat.view(np.uint8).data, checksum)
    return checksum


def agree(reports: Sequence[StateReport]) -> Agreement:
    """Decides, with the same result in every member.

    The newest term wins, then the largest number of steps, then the lowest rank. A member of an
    older term takes over the progress even if it made the same steps: others have acknowledged,
    lost and leased tasks without it, so that its lease table is not the group's.
    """
    source = max(range(len(reports)), key=lambda rank: (_age(reports[rank]), -rank))
    newest = reports[source]
    if newest.term == 0:
        receivers = frozenset(range(1, len(reports)))
        return Agreement(0, receivers, model_needed=bool(receivers), initial=True)
    receivers = frozenset(
        rank for rank, report in enumerate(reports) if _progress_id(report) != _progress_id(newest)
    )
    model_needed = any(_model_id(report) != _model_id(newest) for report in reports)
    return Agreement(source, receivers, model_needed, initial=False)


def is_one_step_behind(own: StateReport, chosen: StateReport) -> bool:
    """Whether a member lacks nothing of the chosen state but the step that it had begun."""
    return bool(own.flight) and own.flight == chosen.last_plan and own.step + 1 == chosen.step


def _age(report: StateReport) -> tuple[int, int]:
    return report.term, report.step


def _progress_id(report: StateReport) -> tuple[int, int, int]:
    return report.term, report.step, report.digest


def _model_id(report: StateReport) -> tuple[bool, int, int]:
    return report.term > 0, report.step, report.digest
