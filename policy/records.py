"""Records of decisions and observations in the decision log (docs/decisions/0059). Pure.

A record is a `Decision` as a sentence and JSON values, so that other versions of EDL can read it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from policy.decisions import Decision, Figures, plain
from policy.names import SYSTEM_NAMESPACE
from policy.reasons import Observation

CLUSTER = SYSTEM_NAMESPACE
"""The namespace that stores the records of the whole cluster; these may name objects of any namespace."""
ELSEWHERE = "another namespace"
"""Replaces names of other namespaces in the records of a namespace."""
_NAMES = ("service", "job", "to", "of")
"""Figures that may name an object of another namespace, as namespace/name."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        at_s: Time of the record, in seconds since the epoch.
        about: Kind and name of the object: a kind in lower case, a space, and namespace/name or a
            name, such as `job ml/digits`.
        code: A stable code (docs/reasons.md).
        text: The sentence; "" if the code alone is enough.
        figures: Name -> JSON value; amounts are Kubernetes quantities.
        job: The job that the record concerns, as namespace/name; "" if there is none.
        since_s: When this code began to apply; `at_s` for events.
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
        """The name of the object, without its kind."""
        return self.about.partition(" ")[2]

    @property
    def kind(self) -> str:
        """The kind of the object: job, pod, node, reclaim or objective."""
        return self.about.partition(" ")[0]

    def to_json(self) -> dict[str, Any]:
        """Returns the record as a JSON object, without empty values."""
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
    """Returns the record of a decision.

    Args:
        decision: The decision.
        job: The job that it concerns, as namespace/name; "" if there is none.
        since_s: When the code began to apply, in seconds since the epoch.
    """
    figures = {name: plain(figure) for name, figure in decision.figures.items()}
    code = str(decision.code)
    return Record(decision.at_s, decision.about, code, decision.text, figures, job, since_s)


def from_json(values: Mapping[str, Any]) -> Record:
    """Returns the record that `to_json` of any version wrote.

    Raises:
        KeyError, TypeError, ValueError: The values are not a record.
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
    """Returns the decision without names of other namespaces."""
    figures = masked(decision.figures, namespace)
    return decision if figures is decision.figures else replace(decision, figures=figures)


def masked(figures: Figures, namespace: str) -> Figures:
    """Returns figures without names of other namespaces; the same object if there are none."""
    foreign = {
        name: ELSEWHERE
        for name in _NAMES
        if isinstance(figure := figures.get(name), str) and figure.partition("/")[0] != namespace
    }
    return {**figures, **foreign} if foreign else figures


def merged(records: Iterable[Record]) -> list[Record]:
    """Returns the records in order of time, without duplicates.

    If a record exists with and without masked names, the copy with all names is kept.
    """
    best: dict[tuple[float, str, str, str], Record] = {}
    for record in records:
        key = (round(record.at_s, 3), record.about, record.code, record.job)
        known = best.get(key)
        if known is None or ELSEWHERE in known.figures.values():
            best[key] = record
    return sorted(best.values(), key=lambda record: (record.at_s, record.about))


def newest_of_jobs(records: Iterable[Record]) -> dict[str, Record]:
    """Returns job -> its newest record, for records of jobs in order of time."""
    return {record.job: record for record in records if record.kind == "job"}


def newest_of_bursts(records: Iterable[Record]) -> list[Record]:
    """Returns the newest record of each burst, in order of the bursts' beginning.

    The given records must be in order of time.
    """
    newest = {record.about: record for record in records if record.kind == "reclaim"}
    return sorted(newest.values(), key=lambda record: record.since_s)


def burst_to_json(record: Record) -> dict[str, Any]:
    """Returns a burst as JSON for programs."""
    return {
        "id": record.name,
        "over": record.code == Observation.RECLAIMED,
        "since": record.since_s,
        "until": record.at_s,
        "text": record.text,
        **record.figures,
    }
