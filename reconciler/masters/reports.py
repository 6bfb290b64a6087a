"""Parses the reports of masters about their jobs. Pure.

The sources are `GET /v1/status` of a master (protocol version 1) and the key `outcome` of the ConfigMap
with its snapshots. Both are written by users' pods, so invalid parts are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

import orjson

from policy.admission import unstructured
from policy.cluster.live_trainers import MAX_UNCOMMITTED_S

_MAX_REASON_CHARS = 500
_MAX_TRAINERS = 10_000
_PREFIX = "trainer-"


class ReportedState(StrEnum):
    """The state of a job as reported by its master."""

    WORK = "work"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MasterReport:
    """A master's report about its job."""

    state: ReportedState
    at_s: float
    """When the master was polled, in seconds since the epoch."""
    reason: str = ""
    """Why the job failed; one line."""
    uncommitted: Mapping[int, float] = field(default_factory=dict)
    """Trainer id -> seconds of training that would be lost with it."""
    leader: int | None = None
    """Id of the trainer of rank 0, for synchronous jobs whose master reports it."""

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self.state is not ReportedState.WORK


def parse_status_page(body: bytes, at_s: float) -> MasterReport | None:
    """Returns the report in a status page, or None if the page is not valid."""
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(page, dict) or not isinstance(page.get("state"), str):
        return None
    state = page["state"]
    if state not in (ReportedState.DONE, ReportedState.FAILED):
        state = ReportedState.WORK
    uncommitted, leader = _trainers(page.get("trainers"))
    return MasterReport(ReportedState(state), at_s, _line(page.get("reason")), uncommitted, leader)


def parse_outcome(data: Mapping[str, str], at_s: float) -> MasterReport | None:
    """Returns the final report in a ConfigMap's data, or None if the job has not ended."""
    state, _, reason = data.get("outcome", "").partition(":")
    if state not in (ReportedState.DONE, ReportedState.FAILED):
        return None
    return MasterReport(ReportedState(state), at_s, _line(reason))


def _line(text: object) -> str:
    """Returns a user's text as one line of at most `_MAX_REASON_CHARS` characters."""
    return " ".join(text.split())[:_MAX_REASON_CHARS] if isinstance(text, str) else ""


def _trainers(trainers: Any) -> tuple[dict[int, float], int | None]:
    """Returns trainer id -> uncommitted seconds, and the id of the leader."""
    if not isinstance(trainers, dict) or len(trainers) > _MAX_TRAINERS:
        return {}, None
    uncommitted: dict[int, float] = {}
    leader: int | None = None
    for name, page in trainers.items():
        trainer_id = unstructured.number(name.removeprefix(_PREFIX))
        if trainer_id < 0 or not isinstance(page, dict):
            continue
        seconds = page.get("uncommitted_s")
        if isinstance(seconds, int | float) and isfinite(seconds):
            uncommitted[trainer_id] = min(max(0.0, float(seconds)), MAX_UNCOMMITTED_S)
        if page.get("rank") is not False and page.get("rank") == 0:
            leader = trainer_id
    return uncommitted, leader
