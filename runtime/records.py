"""Keeps the newest decisions about each subject, and shows them to those who may see them.

A decision record answers "why": it is for people who look now, not an archive. What is kept is
bounded in subjects and in decisions for each; what makes room for newer ones is counted.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, NotFound, ServiceUnavailable

from policy.decisions import Decision
from runtime import web

MOST_SUBJECTS = 5_000
MOST_EACH = 32
_MEND_S = 60.0
"""Figures that move under one code make a new record this often; in between the newest is mended.

Else the shares of a busy minute would push out all that was worth to be remembered.
"""


@dataclass(frozen=True, slots=True)
class _Record:
    """One decision, and which line of decisions it continues."""

    strand: str
    decision: Decision
    begun_s: float
    """When this record was made."""
    since_s: float
    """Since when its code has held."""

    def shown(self) -> dict[str, object]:
        return {**self.decision.shown(), "since": self.since_s}


class Records:
    """Thread-safe."""

    def __init__(self, most_subjects: int = MOST_SUBJECTS, most_each: int = MOST_EACH) -> None:
        """Keeps `most_each` decisions about each of `most_subjects`, the newest of both."""
        self._most_subjects = most_subjects
        self._most_each = most_each
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, deque[_Record]] = OrderedDict()
        self.dropped = 0
        """Decisions that made room for newer ones."""

    def note(self, subject: str, decision: Decision, strand: str = "") -> None:
        """Keeps a decision; one that says the same as the newest of its strand is not news.

        Args:
            subject: Whom it is kept under.
            decision: What was decided.
            strand: What it continues, where several things are decided about one at a time; by
                default what the decision is about.
        """
        strand = strand or decision.about
        with self._lock:
            kept = self._kept.setdefault(subject, deque())
            self._kept.move_to_end(subject)
            places = range(len(kept) - 1, -1, -1)
            place = next((i for i in places if kept[i].strand == strand), None)
            since_s = decision.at_s
            if place is not None:
                last = kept[place]
                if _same(last.decision, decision):
                    return
                if last.decision.code is decision.code:
                    since_s = last.since_s
                if _mends(last, decision):
                    kept[place] = replace(last, decision=decision)
                    return
            kept.append(_Record(strand, decision, decision.at_s, since_s))
            self._trim(kept)

    def _trim(self, kept: deque[_Record]) -> None:
        if len(kept) > self._most_each:
            kept.popleft()
            self.dropped += 1
        if len(self._kept) > self._most_subjects:
            _, oldest = self._kept.popitem(last=False)
            self.dropped += len(oldest)

    def forget(self, subject: str) -> None:
        """A subject that is gone; unknown ones are fine."""
        with self._lock:
            self._kept.pop(subject, None)

    def about(self, subject: str) -> list[dict[str, object]]:
        """What is kept about a subject, the oldest first, for JSON; empty for an unknown one."""
        with self._lock:
            kept = tuple(self._kept.get(subject, ()))
        return [record.shown() for record in kept]

    def newest(self) -> dict[str, dict[str, object]]:
        """Subject -> the newest decision about it, for JSON."""
        with self._lock:
            kept = {subject: _newest(subject, records) for subject, records in self._kept.items()}
        return {subject: kept[subject].shown() for subject in sorted(kept)}


def _same(one: Decision, other: Decision) -> bool:
    return (one.about, one.code, one.figures) == (other.about, other.code, other.figures)


def _mends(last: _Record, decision: Decision) -> bool:
    """Whether a decision only moves figures of a record that is new."""
    old = last.decision
    told = (old.code, old.figures.get("target")) == (decision.code, decision.figures.get("target"))
    return told and decision.at_s - last.begun_s < _MEND_S


def _newest(subject: str, records: deque[_Record]) -> _Record:
    """The newest that is about the subject itself, where some are about its parts."""
    own = (record for record in reversed(records) if record.decision.about.endswith(f" {subject}"))
    return next(own, records[-1])


def routes(
    app: Flask, records: Records, subject: str, absent: Callable[[], str] = lambda: ""
) -> None:
    """Adds `GET /decisions`, and `GET /decisions?<subject>=namespace/name`.

    A private route: who may use `kubectl port-forward` is the cluster's own RBAC to say
    (docs/decisions/0005).

    Args:
        app: From `web.application`.
        records: What to show.
        subject: What records are about: "job" or "pod".
        absent: Why this process has none to show now (503), "" where it has.
    """

    def decisions() -> Response:
        reason = absent()
        if reason:
            raise ServiceUnavailable(reason)
        unknown = request.args.keys() - {subject}
        if unknown:
            raise BadRequest(f"{', '.join(sorted(unknown))}: the parameter here is {subject}")
        name = request.args.get(subject)
        if name is None:
            return web.reply({"newest": records.newest(), "dropped": records.dropped})
        kept = records.about(name)
        if not kept:
            raise NotFound(
                f"{subject}: nothing is known of {name!r}; write namespace/name, "
                "or leave it out to see all"
            )
        return web.reply({subject: name, "decisions": kept})

    web.private(app, "/decisions", decisions)
