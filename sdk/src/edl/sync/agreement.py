"""Decides which member has the newest state at a round's start, and which members need it (pure).

Members of a round may differ. Newcomers have no state. A member that was dropped and came back has
an old state. After a member died in a collective call, some survivors have made the step and others
have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from edl.master import protocol


class Needs(Enum):
    """The kinds of state that a member can lack."""

    PROGRESS = "progress"
    """Only the progress: these members already have the model."""
    GRADIENT = "gradient"
    """The gradient of the newest step: these members have the model from before that step."""
    STATE = "state"
    """The whole state."""


@dataclass(frozen=True)
class StateReport:
    """A member's description of its state, sent to all members at the start of each round."""

    trainer: str
    term: int = 0
    """The newest term in which this member had the same state as all others; 0 without a state."""
    step: int = 0
    """Number of steps made."""
    lineage: int = 0
    """Identifies the steps that its state contains (`GroupProgress.lineage`); equal for equal states."""
    last_plan: str = ""
    """Name of the plan of its newest step."""
    flight: str = ""
    """Name of the plan of a step that the member started but could not complete, or ""."""
    before: int = 0
    """Its lineage before the newest step if it still has that step's gradient, otherwise 0."""
    parts: int = 0
    """Bytes of its state if the state is large and can be sent in parts, otherwise 0."""

    def json(self) -> protocol.Json:
        """Returns the report as JSON, to send it."""
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
    """The result of comparing all members' reports."""

    source: int
    """Rank of the member that has the newest state."""
    receivers: frozenset[int]
    """Ranks of the members that take over its progress and, if needed, its model."""
    needs: Needs
    """All receivers get the same: the largest need among them."""
    initial: bool
    """Whether no member has a state yet, so that the source creates the first one."""
    in_parts: bool = False
    """Whether the receivers get the state while the others train (`edl.sync.growth`)."""


def agree(reports: Sequence[StateReport]) -> Agreement:
    """Returns which member sends its state to which others; the same result in every member.

    The newest term wins, then the largest number of steps, then the lowest rank. A member of an
    older term takes over the progress even if it made the same steps: its lease table is outdated,
    because others have acknowledged, lost and leased tasks without it.
    """
    source = max(range(len(reports)), key=lambda rank: (_age(reports[rank]), -rank))
    newest = reports[source]
    if newest.term == 0:
        receivers = frozenset(range(1, len(reports)))
        return Agreement(0, receivers, Needs.STATE, initial=True)
    receivers = frozenset(
        rank for rank, report in enumerate(reports) if _progress_id(report) != _progress_id(newest)
    )
    lacking = [report for report in reports if _model_id(report) != _model_id(newest)]
    holders = [report for rank, report in enumerate(reports) if rank not in receivers]
    needs = Needs.STATE if lacking else Needs.PROGRESS
    if lacking and all(_lacks_only_gradient(report, holders) for report in lacking):
        needs = Needs.GRADIENT if len(lacking) == len(receivers) else Needs.STATE
    first = len(reports) - len(receivers)
    are_last = receivers == frozenset(range(first, len(reports)))  # newcomers always are
    # if most members lack the state, waiting for them is faster than training with few members
    are_few = 2 * len(receivers) <= len(reports)
    # every member with the state sends a share of the parts, so all must cut the state alike
    can_be_cut = all(report.parts for report in reports) and len({h.parts for h in holders}) == 1
    in_parts = needs is Needs.STATE and can_be_cut and are_last and are_few
    return Agreement(source, receivers, needs, initial=False, in_parts=in_parts)


def _lacks_only_gradient(own: StateReport, holders: Sequence[StateReport]) -> bool:
    """Returns whether a member lacks only the newest step and all holders have that step's gradient."""
    return own.lineage > 0 and all(
        own.term == holder.term and own.lineage == holder.before and is_one_step_behind(own, holder)
        for holder in holders
    )


def is_one_step_behind(own: StateReport, chosen: StateReport) -> bool:
    """Returns whether the step that a member had started would bring it to the chosen state."""
    return bool(own.flight) and own.flight == chosen.last_plan and own.step + 1 == chosen.step


def _age(report: StateReport) -> tuple[int, int]:
    return report.term, report.step


def _progress_id(report: StateReport) -> tuple[int, int, int]:
    return report.term, report.step, report.lineage


def _model_id(report: StateReport) -> tuple[bool, int, int]:
    return report.term > 0, report.step, report.lineage
