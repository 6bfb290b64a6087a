"""The protocol's values, version 1: what the master sends, checked; what is sent, built. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.errors import Refused, Unavailable

Json = dict[str, Any]
"""An object as in JSON."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")
"""What names of trainers and data sets look like."""
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
    """Which model an evaluation task is about."""

    @property
    def size(self) -> int:
        """Number of records."""
        return self.end - self.start

    @property
    def ref(self) -> Json:
        """How the protocol names it."""
        return {"task": self.task, "attempt": self.attempt}


@dataclass(frozen=True)
class Welcome:
    """The answer to a join."""

    job: str
    heartbeat_s: float
    state: str
    generation: int
    """Grows when another master takes over."""
    lost: tuple[str, ...]
    """Ids of tasks that were told as held, and that others have now."""
    term: int = 0
    """In which this process leads a group; 0 where it did not ask to."""


@dataclass(frozen=True)
class Work:
    """The answer to a call for work."""

    results: tuple[str, ...]
    leases: tuple[Lease, ...]
    state: str
    again_s: float | None
    generation: int
    safe: int | None
    """The newest call that even another master would know of; None where all are."""


@dataclass(frozen=True)
class Pulse:
    """The answer to a heartbeat."""

    lost: tuple[str, ...]
    """Ids of tasks whose lease is over."""
    state: str


@dataclass(frozen=True)
class Ticket:
    """The answer to who may save a checkpoint."""

    granted: bool
    ticket: str
    version: int
    again_s: float | None


@dataclass(frozen=True)
class Member:
    """One of those who train together."""

    trainer: str
    incarnation: str
    address: str
    """`host:port`, where the others reach it."""


@dataclass(frozen=True)
class Meeting:
    """The answer to who trains together: a round."""

    round: int
    members: tuple[Member, ...]
    """By rank."""
    formed: bool
    """Whether all of them were ready in it."""
    probe: int
    void: int
    """The newest round that can do nothing more."""


@dataclass
class Report:
    """What a call for work tells; results come back in the order done, failed, back."""

    done: list[Json] = field(default_factory=list)
    failed: list[Json] = field(default_factory=list)
    back: list[Json] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.done or self.failed or self.back)

    def lists(self) -> Json:
        """As in a call's body."""
        return {"done": self.done, "failed": self.failed, "back": self.back}


def welcome(body: Mapping[str, Any]) -> Welcome:
    """Reads the answer to a join."""
    return Welcome(
        _text(body, "job"),
        _number(body, "heartbeat_s", least=0.01),
        str(body.get("state", "work")),
        int(_maybe_number(body, "generation") or 0),
        _tasks(body, "lost"),
        int(_maybe_number(body, "term") or 0),
    )


def term(body: Mapping[str, Any]) -> int:
    """Reads the answer to whoever begins a term."""
    return int(_number(body, "term", least=1))


def work(body: Mapping[str, Any]) -> Work:
    """Reads the answer to a call for work."""
    state = _text(body, "state")
    if state not in STATES:
        raise Unavailable(f"the master's state {state!r} is none of {', '.join(STATES)}")
    results = tuple(str(result) for result in _list(body, "results"))
    leases = tuple(_lease(item) for item in _list(body, "tasks"))
    generation, safe = _maybe_number(body, "generation"), _maybe_number(body, "safe")
    return Work(
        results,
        leases,
        state,
        _maybe_number(body, "again_s"),
        int(generation or 0),
        None if safe is None else int(safe),
    )


def pulse(body: Mapping[str, Any]) -> Pulse:
    """Reads the answer to a heartbeat."""
    return Pulse(_tasks(body, "lost"), _text(body, "state"))


def ticket(body: Mapping[str, Any]) -> Ticket:
    """Reads the answer to who may save."""
    granted = body.get("granted") is True
    return Ticket(
        granted,
        _text(body, "ticket") if granted else "",
        int(_number(body, "version", least=0)) if granted else 0,
        _maybe_number(body, "again_s"),
    )


def meeting(body: Mapping[str, Any]) -> Meeting:
    """Reads the answer to who trains together."""
    return Meeting(
        int(_number(body, "round", least=0)),
        tuple(_member(item) for item in _list(body, "members")),
        body.get("formed") is True,
        int(_number(body, "probe", least=0)),
        int(_maybe_number(body, "void") or 0),
    )


def refused(status: int, body: Mapping[str, Any]) -> Refused:
    """Reads the body of an answer of 400 to 499."""
    error = body.get("error")
    if not isinstance(error, dict):
        return Refused(status, "the master refused without saying why")
    named = error.get("field")
    return Refused(status, str(error.get("message", "no reason given")), named and str(named))


def _lease(item: object) -> Lease:
    if not isinstance(item, dict):
        raise _malformed("tasks", item)
    start, end = int(_number(item, "start", least=0)), int(_number(item, "end", least=0))
    if end <= start:
        raise _malformed("end", end)
    named, version = item.get("file"), _maybe_number(item, "model_version")
    return Lease(
        task=_text(item, "task"),
        attempt=int(_number(item, "attempt", least=0)),
        kind=_text(item, "kind"),
        dataset=_text(item, "dataset"),
        epoch=int(_number(item, "epoch", least=0)),
        start=start,
        end=end,
        file=None if named is None else str(named),
        lease_s=_maybe_number(item, "lease_s") or 0.0,
        model_version=None if version is None else int(version),
    )


def _member(item: object) -> Member:
    if not isinstance(item, dict):
        raise _malformed("members", item)
    return Member(_text(item, "trainer"), _text(item, "incarnation"), _text(item, "address"))


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise _malformed(name, value)
    return value


def _number(body: Mapping[str, Any], name: str, *, least: float) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
        raise _malformed(name, value)
    return value


def _maybe_number(body: Mapping[str, Any], name: str) -> float | None:
    return None if body.get(name) is None else _number(body, name, least=0)


def _list(body: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise _malformed(name, value)
    return value


def _tasks(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Ids of tasks, given as such or as objects that hold one."""
    found = _list(body, name)
    return tuple(str(item.get("task") if isinstance(item, dict) else item) for item in found)


def _malformed(name: str, value: object) -> Unavailable:
    """Counts as no answer: a proxy's page or a half-started server looks like this."""
    return Unavailable(f"the master's answer has {name} {value!r:.80}, which the protocol has not")
