"""Queries for records of the decision logs. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from policy.records import CLUSTER, ELSEWHERE, Record


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record of a namespace's decision log."""

    namespace: str
    record: Record


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A query for records; an empty field does not limit it."""

    namespace: str = ""
    job: str = ""
    about: str = ""
    before_s: float = float("inf")
    limit: int = 200

    def selects(self, record: Record) -> bool:
        """Returns whether a record matches the query."""
        if record.at_s >= self.before_s or (self.about and record.about != self.about):
            return False
        return not self.job or self.job == record.job or _gave(record, self.job)

    @property
    def text(self) -> str:
        """A text that the lines of all matching records contain."""
        return self.about or self.job

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces whose logs may have matching records; None for all."""
        if self.namespace:
            return frozenset({self.namespace})
        name = self.job or self.about.partition(" ")[2]
        return frozenset({name.partition("/")[0], CLUSTER}) if "/" in name else None


def _gave(record: Record, job: str) -> bool:
    """Returns whether the record is about a burst to which the job gave trainers."""
    return record.kind == "reclaim" and job in (record.figures.get("trainers") or {})


def merged(logged: Iterable[LoggedRecord]) -> list[LoggedRecord]:
    """Returns each record once; if there are two versions of it, returns the one with all names."""
    entries: dict[tuple[float, str, str, str], LoggedRecord] = {}
    for entry in logged:
        merge(entries, entry)
    return sorted(entries.values(), key=lambda entry: (entry.record.at_s, entry.record.about))


def merge(entries: dict[tuple[float, str, str, str], LoggedRecord], logged: LoggedRecord) -> None:
    """Adds a record to entries; see `merged`."""
    record = logged.record
    key = (round(record.at_s, 3), record.about, record.code, record.job)
    earlier = entries.get(key)
    if earlier is None or ELSEWHERE in earlier.record.figures.values():
        entries[key] = logged
