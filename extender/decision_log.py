"""Stores the newest decisions about each pod, and serves them to callers on the same host.

A decision record explains the present state; the log is not an archive. It is bounded in pods
and in decisions for each pod; evicted decisions are counted.
"""

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from flask import Response, request
from werkzeug.exceptions import BadRequest, NotFound

from policy.decisions import Decision
from runtime import web

MAX_SUBJECTS = 5_000
MAX_PER_SUBJECT = 32
_UPDATE_S = 60.0
"""If only figures change, a new entry is made this often; in between the newest is updated.

Otherwise the changing shares of a busy minute would evict all other decisions.
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A decision and the series that it continues."""

    series: str
    decision: Decision
    created_s: float
    """When this entry was created."""
    since_s: float
    """Since when the series has had this code."""

    def to_json(self) -> dict[str, object]:
        return {**self.decision.to_json(), "since": self.since_s}


class DecisionLog:
    """A bounded log of decisions by subject; thread-safe."""

    def __init__(
        self, max_subjects: int = MAX_SUBJECTS, max_per_subject: int = MAX_PER_SUBJECT
    ) -> None:
        """Creates a log of the newest `max_per_subject` decisions on the newest `max_subjects`."""
        self._max_subjects = max_subjects
        self._max_per_subject = max_per_subject
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, deque[_Entry]] = OrderedDict()
        self.dropped = 0
        """The number of evicted decisions."""

    def record(self, subject: str, decision: Decision, series: str = "") -> bool:
        """Records a decision; one equal to the newest of its series is ignored.

        Args:
            subject: The subject to record it under.
            decision: The decision.
            series: The key of its series, if there are several decisions about one thing at a
                time; by default what the decision is about.

        Returns:
            Whether it is a new entry: neither ignored, nor other figures of the newest.
        """
        series = series or decision.about
        with self._lock:
            entries = self._entries.setdefault(subject, deque())
            self._entries.move_to_end(subject)
            indexes = range(len(entries) - 1, -1, -1)
            index = next((i for i in indexes if entries[i].series == series), None)
            since_s = decision.at_s
            if index is not None:
                last = entries[index]
                if _same(last.decision, decision):
                    return False
                if last.decision.code is decision.code:
                    since_s = last.since_s
                if _updates(last, decision):
                    entries[index] = replace(last, decision=decision)
                    return False
            entries.append(_Entry(series, decision, decision.at_s, since_s))
            self._trim(entries)
            return True

    def _trim(self, entries: deque[_Entry]) -> None:
        if len(entries) > self._max_per_subject:
            entries.popleft()
            self.dropped += 1
        if len(self._entries) > self._max_subjects:
            _, oldest = self._entries.popitem(last=False)
            self.dropped += len(oldest)

    def about(self, subject: str) -> list[dict[str, object]]:
        """The decisions about a subject as JSON, oldest first; empty if it is unknown."""
        with self._lock:
            entries = tuple(self._entries.get(subject, ()))
        return [entry.to_json() for entry in entries]

    def newest(self) -> dict[str, dict[str, object]]:
        """The newest decision about each subject as JSON."""
        with self._lock:
            newest = {
                subject: _newest(subject, entries) for subject, entries in self._entries.items()
            }
        return {subject: newest[subject].to_json() for subject in sorted(newest)}


def _same(first: Decision, second: Decision) -> bool:
    return (first.about, first.code, first.figures) == (second.about, second.code, second.figures)


def _updates(last: _Entry, decision: Decision) -> bool:
    """Whether a decision only changes figures of a recent entry."""
    old = last.decision
    same_target = (old.code, old.figures.get("target")) == (
        decision.code,
        decision.figures.get("target"),
    )
    return same_target and decision.at_s - last.created_s < _UPDATE_S


def _newest(subject: str, entries: deque[_Entry]) -> _Entry:
    """The newest decision about the subject itself; else the newest about one of its parts."""
    own = (entry for entry in reversed(entries) if entry.decision.about.endswith(f" {subject}"))
    return next(own, entries[-1])


def add_decisions_route(app: web.WebApp, log: DecisionLog) -> None:
    """Adds `GET /decisions`, and `GET /decisions?pod=namespace/name`.

    A private route: the cluster's RBAC decides who may use `kubectl port-forward`
    (docs/decisions/0005).

    Args:
        app: From `web.application`.
        log: The log to serve.
    """

    def decisions() -> Response:
        unknown = request.args.keys() - {"pod"}
        if unknown:
            raise BadRequest(f"{', '.join(sorted(unknown))}: the parameter here is pod")
        name = request.args.get("pod")
        if name is None:
            return web.reply({"newest": log.newest(), "dropped": log.dropped})
        decisions_json = log.about(name)
        if not decisions_json:
            raise NotFound(
                f"pod: there are no decisions about {name!r}; write namespace/name, "
                "or omit the parameter to list all"
            )
        return web.reply({"pod": name, "decisions": decisions_json})

    app.private("/decisions", decisions)
