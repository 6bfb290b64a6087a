"""Values in the master's protocol; parses and checks answers, and builds parts of requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edl.errors import Refused, Unavailable
from edl_protocol.master import MAX_WAIT_S

Json = dict[str, Any]
"""A JSON object."""
_MAX_NUMBER = 1 << 63
_MAX_PACE_S = 60.0
STATES = ("work", "wait", "done", "stop")


@dataclass(frozen=True)
class Lease:
    """A lease of a task: records [start, end) of a data set, or of one of its files."""

    task: str
    attempt: int
    kind: str
    dataset: str
    epoch: int
    start: int
    end: int
    file: str | None
    lease_s: float
    model_version: int | None = None
    """The model version that an evaluation task evaluates; None for other tasks."""

    @property
    def size(self) -> int:
        """Number of records."""
        return self.end - self.start

    @property
    def ref(self) -> Json:
        """The fields by which calls refer to the lease."""
        return {"task": self.task, "attempt": self.attempt}


@dataclass(frozen=True)
class JoinResponse:
    """The answer to a join."""

    job: str
    heartbeat_s: float
    state: str
    generation: int
    """Number that grows when another master takes over."""
    lost: tuple[str, ...]
    """Ids of tasks that this trainer reported as held although other trainers hold them now."""
    term: int = 0
    """The term in which this process leads a group; 0 if it did not ask to lead."""
    protocol: int = 1
    """The master's version of the protocol."""


@dataclass(frozen=True)
class WorkResponse:
    """The answer to a call for work."""

    results: tuple[str, ...]
    leases: tuple[Lease, ...]
    state: str
    again_s: float | None
    generation: int
    safe: int | None
    """Number of the newest call that even a new master would know; None if all calls are safe."""
    settling: bool = False
    """Whether a new master is still waiting for trainers to join, and leases nothing yet."""


@dataclass(frozen=True)
class HeartbeatResponse:
    """The answer to a heartbeat."""

    lost: tuple[str, ...]
    """Ids of tasks whose leases have ended."""
    state: str
    pace_s: float = 0.0
    """Minimum time until the next heartbeat; in a job with many trainers, each sends them less often."""


@dataclass(frozen=True)
class Ticket:
    """The answer to a request to save a checkpoint."""

    granted: bool
    ticket: str
    version: int
    again_s: float | None


@dataclass(frozen=True)
class Member:
    """One member of a round."""

    trainer: str
    incarnation: str
    address: str
    """`host:port` at which the other members reach this member."""
    extra: str = ""
    """Text from this member for the other members of the round; see `edl.Rounds`."""


@dataclass(frozen=True)
class Round:
    """A round as one of its members sees it: a fixed group of members that train together."""

    number: int
    rank: int
    """This member's rank; 0 is the oldest member."""
    members: tuple[Member, ...]
    """The members in the order of their ranks."""

    @property
    def world_size(self) -> int:
        """Number of members."""
        return len(self.members)


@dataclass(frozen=True)
class RoundView:
    """The answer to a poll of the rendezvous, which describes the newest round."""

    round: int
    members: tuple[Member, ...]
    """The members in the order of their ranks."""
    formed: bool
    """Whether all members have reported that they are ready in this round."""
    probe: int
    """Number that grows when the master probes for frozen members; each member repeats it in its calls."""
    void: int
    """The newest round that cannot continue."""
    has_members: bool = True
    """Whether the answer lists members; False if the caller knows them already."""
    asks_claim: bool | None = None
    """Whether the master needs the caller's claim because it does not know the caller's round.

    None from a master that never asks: every call must then have the claim.
    """
    wait_s: float | None = None
    """How long the next call should wait at the master; None if the master does not say."""
    suspicious_s: float | None = None
    """Length from which a wait for others is reported at once; None if the master does not say."""
    since: int | None = None
    """The round, known to the caller, to which the answer lists only the changes.

    `members` then come after that round's remaining members. None if the answer lists all members.
    """
    gone_ranks: frozenset[int] = frozenset()
    """Ranks in the round `since` of the members that are no longer in this round."""

    def completed(self, newest: RoundView) -> RoundView:
        """Returns this answer with all members; the caller's newest view is of an earlier or the same round.

        If the answer is older than this view, or has changes to another round, the result is the newest
        view with the answer's probe and void round. The next call is then answered at once.
        """
        void, is_same = max(self.void, newest.void), self.round == newest.round
        applies = self.since in (None, newest.round) or is_same
        if self.round < newest.round or not applies:
            return replace(newest, probe=self.probe, void=void)
        if self.has_members and self.since is None:
            return replace(self, void=void)
        if is_same or self.since is None:
            return replace(self, members=newest.members, since=None, void=void)
        remaining = [
            member for rank, member in enumerate(newest.members) if rank not in self.gone_ranks
        ]
        return replace(self, members=(*remaining, *self.members), since=None, void=void)

    def broken_off(self, number: int) -> RoundView:
        """Returns this view after its member has broken off a round, which therefore cannot continue."""
        return replace(self, void=max(self.void, number))

    def rank_of(self, trainer: str, incarnation: str) -> int | None:
        """Returns the rank of a process; None if it is not in the round."""
        identities = [(member.trainer, member.incarnation) for member in self.members]
        identity = trainer, incarnation
        return identities.index(identity) if identity in identities else None

    def reference(self, *, is_short: bool) -> Json:
        """Returns the fields by which a member's call refers to the round.

        The short form is for a master that knows the round; the long form is the claim.
        """
        return {"known": True, "void": self.void} if is_short else {"claim": self.claim()}

    def claim(self) -> Json:
        """Returns the round's number and members for a call; leaves out empty fields.

        Older masters do not know the field `extra`.
        """
        members = [{k: v for k, v in vars(member).items() if v} for member in self.members]
        return {"round": self.round, "members": members}


@dataclass
class Report:
    """The tasks that a call for work reports; results come in the order done, failed, back."""

    done: list[Json] = field(default_factory=list)
    failed: list[Json] = field(default_factory=list)
    back: list[Json] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.done or self.failed or self.back)

    def lists(self) -> Json:
        """Returns the report's fields in the body of a call."""
        return {"done": self.done, "failed": self.failed, "back": self.back}


def parse_join(body: Mapping[str, Any]) -> JoinResponse:
    """Parses the answer to a join."""
    return JoinResponse(
        _text(body, "job"),
        _number(body, "heartbeat_s", minimum=0.01),
        str(body.get("state", "work")),
        int(_maybe_number(body, "generation") or 0),
        _tasks(body, "lost"),
        int(_maybe_number(body, "term") or 0),
        int(_maybe_number(body, "protocol") or 1),
    )


def parse_term(body: Mapping[str, Any]) -> int:
    """Parses the answer to a call that begins a term."""
    return int(_number(body, "term", minimum=1))


def parse_work(body: Mapping[str, Any]) -> WorkResponse:
    """Parses the answer to a call for work."""
    state = _text(body, "state")
    if state not in STATES:
        raise Unavailable(f"the master's state {state!r} is not one of {', '.join(STATES)}")
    results = tuple(str(result) for result in _list(body, "results"))
    leases = tuple(_lease(item) for item in _list(body, "tasks"))
    generation, safe = _maybe_number(body, "generation"), _maybe_number(body, "safe")
    return WorkResponse(
        results,
        leases,
        state,
        _maybe_number(body, "again_s"),
        int(generation or 0),
        None if safe is None else int(safe),
        body.get("settling") is True,
    )


def parse_heartbeat(body: Mapping[str, Any]) -> HeartbeatResponse:
    """Parses the answer to a heartbeat."""
    pace_s = _maybe_number(body, "pace_s") or 0.0
    return HeartbeatResponse(_tasks(body, "lost"), _text(body, "state"), min(pace_s, _MAX_PACE_S))


def parse_ticket(body: Mapping[str, Any]) -> Ticket:
    """Parses the answer to a request to save."""
    granted = body.get("granted") is True
    return Ticket(
        granted,
        _text(body, "ticket") if granted else "",
        int(_number(body, "version", minimum=0)) if granted else 0,
        _maybe_number(body, "again_s"),
    )


def parse_round(body: Mapping[str, Any]) -> RoundView:
    """Parses the answer to a poll of the rendezvous."""
    wait_s, since = _maybe_number(body, "wait_s"), _maybe_number(body, "since")
    suspicious_s = _maybe_number(body, "suspicious_s")
    return RoundView(
        int(_number(body, "round", minimum=0)),
        tuple(_member(item) for item in _list(body, "members")),
        body.get("formed") is True,
        int(_number(body, "probe", minimum=0)),
        int(_maybe_number(body, "void") or 0),
        "members" in body,
        body["claim"] is True if "claim" in body else None,
        None if wait_s is None else min(wait_s, MAX_WAIT_S),
        None if suspicious_s is None else min(suspicious_s, MAX_WAIT_S),
        None if since is None else int(since),
        frozenset(_rank(item) for item in _list(body, "gone")),
    )


def parse_refusal(status: int, body: Mapping[str, Any]) -> Refused:
    """Parses the body of an answer with an error status, such as 400 to 499."""
    error = body.get("error")
    if not isinstance(error, dict):
        return Refused(status, "the master refused without giving a reason")
    field_name = error.get("field")
    message = str(error.get("message", "no reason given"))
    return Refused(status, message, field_name and str(field_name))


def _lease(item: object) -> Lease:
    if not isinstance(item, dict):
        raise _malformed("tasks", item)
    start, end = int(_number(item, "start", minimum=0)), int(_number(item, "end", minimum=0))
    if end <= start:
        raise _malformed("end", end)
    file, version = item.get("file"), _maybe_number(item, "model_version")
    return Lease(
        task=_text(item, "task"),
        attempt=int(_number(item, "attempt", minimum=0)),
        kind=_text(item, "kind"),
        dataset=_text(item, "dataset"),
        epoch=int(_number(item, "epoch", minimum=0)),
        start=start,
        end=end,
        file=None if file is None else str(file),
        lease_s=_maybe_number(item, "lease_s") or 0.0,
        model_version=None if version is None else int(version),
    )


def _member(item: object) -> Member:
    if not isinstance(item, dict):
        raise _malformed("members", item)
    identity = _text(item, "trainer"), _text(item, "incarnation"), _text(item, "address")
    return Member(*identity, str(item.get("extra", "")))


def _rank(item: object) -> int:
    if isinstance(item, bool) or not isinstance(item, int):
        raise _malformed("gone", item)
    return item


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise _malformed(name, value)
    return value


def _number(body: Mapping[str, Any], name: str, *, minimum: float) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < minimum:
        raise _malformed(name, value)
    if not value <= _MAX_NUMBER:  # also refuses NaN
        raise _malformed(name, value)
    return value


def _maybe_number(body: Mapping[str, Any], name: str) -> float | None:
    return None if body.get(name) is None else _number(body, name, minimum=0)


def _list(body: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise _malformed(name, value)
    return value


def _tasks(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Returns the ids of tasks that are given as strings or as objects with an id."""
    tasks = _list(body, name)
    return tuple(str(task.get("task") if isinstance(task, dict) else task) for task in tasks)


def _malformed(name: str, value: object) -> Unavailable:
    """Returns an error that counts as no answer, because a proxy or a starting server may have answered."""
    return Unavailable(
        f"the master's answer has {name} {value!r:.80}, which the protocol does not allow"
    )
