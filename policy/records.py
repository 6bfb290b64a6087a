"""Records: what was decided or observed, as it is kept for later questions (docs/decisions/0059).

A record is a `Decision` in words and JSON values, so that it can be read without the version of EDL
that has written it. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from policy.decisions import Decision, Figures, plain
from policy.names import SYSTEM_NAMESPACE
from policy.reasons import Observation

CLUSTER = SYSTEM_NAMESPACE
"""The namespace whose records are about the whole cluster, with the names of all namespaces."""
ELSEWHERE = "another namespace"
"""Stands in a namespace's records for names of other namespaces."""
_NAMES = ("service", "job", "to", "of")
"""Figures that may name an object of another namespace, as namespace/name."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        at_s: When, in seconds since the epoch.
        about: A kind in lower case, a space, and namespace/name or a name: `job ml/digits`.
        code: A stable code (docs/reasons.md).
        text: In words; "" where the code says all.
        figures: Names -> JSON values; amounts as Kubernetes writes them.
        job: The job that it concerns, namespace/name; "" for none.
        since_s: Since when this code has held; `at_s` for what has just happened.
    """

    at_s: float
    about: str
    code: str
    text: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""
    since_s: float = 0.0

    @property
    def name(self) -> str:
        """What it is about, without the kind."""
        return self.about.partition(" ")[2]

    @property
    def kind(self) -> str:
        """The kind of what it is about: job, pod, node, reclaim, objective."""
        return self.about.partition(" ")[0]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, without what is empty."""
        values = {
            "at": round(self.at_s, 3),
            "about": self.about,
            "code": self.code,
            "text": self.text,
            "figures": dict(self.figures),
            "job": self.job,
            "since": round(self.since_s, 3),
        }
        return {name: value for name, value in values.items() if value}


def of_decision(decision: Decision, job: str, since_s: float) -> Record:
    """The record of a decision that concerns `job`, whose code has held since `since_s`."""
    figures = {name: plain(figure) for name, figure in decision.figures.items()}
    code = str(decision.code)
    return Record(decision.at_s, decision.about, code, decision.text, figures, job, since_s)


def from_json(values: Mapping[str, Any]) -> Record:
    """The record that `to_json` has written, of any version.

    Raises:
        KeyError, TypeError, ValueError: no such object.
    """
    at_s = float(values["at"])
    return Record(
        at_s,
        str(values["about"]),
        str(values["code"]),
        str(values.get("text", "")),
        dict(values.get("figures", {})),
        str(values.get("job", "")),
        float(values.get("since", at_s)),
    )


def for_namespace(decision: Decision, namespace: str) -> Decision:
    """The decision without names of other namespaces; itself where it has none."""
    figures = masked(decision.figures, namespace)
    return decision if figures is decision.figures else replace(decision, figures=figures)


def masked(figures: Figures, namespace: str) -> Figures:
    """Figures without names of other namespaces; the same object where there are none."""
    foreign = {
        name: ELSEWHERE
        for name in _NAMES
        if isinstance(figure := figures.get(name), str) and figure.partition("/")[0] != namespace
    }
    return {**figures, **foreign} if foreign else figures


def merged(records: Iterable[Record]) -> list[Record]:
    """The records in order of time, each once; the one with all names where there are two."""
    best: dict[tuple[float, str, str, str], Record] = {}
    for record in records:
        key = (round(record.at_s, 3), record.about, record.code, record.job)
        known = best.get(key)
        if known is None or ELSEWHERE in known.figures.values():
            best[key] = record
    return sorted(best.values(), key=lambda record: (record.at_s, record.about))


def newest_of_jobs(records: Iterable[Record]) -> dict[str, Record]:
    """Job key -> the newest record about the job itself, of records in order of time."""
    return {record.job: record for record in records if record.kind == "job"}


def newest_of_bursts(records: Iterable[Record]) -> list[Record]:
    """The newest record of each burst, in order of their beginnings; of records in order of time."""
    newest = {record.about: record for record in records if record.kind == "reclaim"}
    return sorted(newest.values(), key=lambda record: record.since_s)


def burst_to_json(record: Record) -> dict[str, Any]:
    """A burst for programs."""
    return {
        "id": record.name,
        "over": record.code == Observation.RECLAIMED,
        "since": record.since_s,
        "until": record.at_s,
        "text": record.text,
        **record.figures,
    }
