"""Stores the newest decisions about each pod, and serves them to callers on the same host.

The log explains the present state and is not an archive. The numbers of pods and of decisions per pod
are limited; dropped decisions are counted.
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
"""If only figures change, a new entry is added at most this often; until then, the newest entry is updated.

Without this limit, the changing shares of a busy minute would evict all other decisions.
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A decision, with the time since which its series has had the same code."""

    series: str
    decision: Decision
    created_s: float
    """When this entry was created."""
    since_s: float
    """When the series got its current code."""

    def to_json(self) -> dict[str, object]:
        return {**self.decision.to_json(), "since": self.since_s}


class DecisionLog:
    """A limited log of decisions by subject. Thread-safe."""

    def __init__(
        self, max_subjects: int = MAX_SUBJECTS, max_per_subject: int = MAX_PER_SUBJECT
    ) -> None:
        """Initializes a log of the `max_subjects` newest subjects, with `max_per_subject` decisions each."""
        self._max_subjects = max_subjects
        self._max_per_subject = max_per_subject
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, deque[_Entry]] = OrderedDict()
        self.dropped = 0
        """Number of evicted decisions."""

    def record(self, subject: str, decision: Decision, series: str = "") -> bool:
        """Records a decision, unless it equals the newest decision of its series.

        Args:
            subject: The subject under which the decision is recorded.
            decision: The decision.
            series: A name that distinguishes simultaneous decisions about the same object; the default is
                `decision.about`.

        Returns:
            Whether the decision became a new entry: it was neither ignored nor merged into the newest one.
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
        """Returns the decisions about a subject as JSON, oldest first; empty for an unknown subject."""
        with self._lock:
            entries = tuple(self._entries.get(subject, ()))
        return [entry.to_json() for entry in entries]

    def newest(self) -> dict[str, dict[str, object]]:
        """Returns the newest decision about each subject as JSON."""
        with self._lock:
            newest = {
                subject: _newest(subject, entries) for subject, entries in self._entries.items()
            }
        return {subject: newest[subject].to_json() for subject in sorted(newest)}


def _same(first: Decision, second: Decision) -> bool:
    return (first.about, first.code, first.figures) == (second.about, second.code, second.figures)


def _updates(last: _Entry, decision: Decision) -> bool:
    """Returns whether a decision only changes the figures of a recent entry."""
    old = last.decision
    same_target = (old.code, old.figures.get("target")) == (
        decision.code,
        decision.figures.get("target"),
    )
    return same_target and decision.at_s - last.created_s < _UPDATE_S


def _newest(subject: str, entries: deque[_Entry]) -> _Entry:
    """Returns the newest decision about the subject itself; if there is none, about one of its parts."""
    matching = (
        entry for entry in reversed(entries) if entry.decision.about.endswith(f" {subject}")
    )
    return next(matching, entries[-1])


def add_decisions_route(app: web.WebApp, log: DecisionLog) -> None:
    """Adds `GET /decisions`, and `GET /decisions?pod=namespace/name`.

    The route is only reachable from the same host, so the cluster's RBAC for `kubectl port-forward` decides
    who may use it (docs/decisions/0005).

    Args:
        app: The application, created by `web.application`.
        log: The log to serve.
    """

    def decisions() -> Response:
        unknown = request.args.keys() - {"pod"}
        if unknown:
            raise BadRequest(
                f"{', '.join(sorted(unknown))}: unknown parameter, only pod is allowed"
            )
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
