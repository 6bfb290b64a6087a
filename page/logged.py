"""Records with the namespace whose log has them, and questions about them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from policy.records import CLUSTER, ELSEWHERE, Record


@dataclass(frozen=True, slots=True)
class Logged:
    """A record, and the namespace whose log has it."""

    namespace: str
    record: Record


@dataclass(frozen=True, slots=True)
class Question:
    """Which records are asked for."""

    namespace: str = ""
    job: str = ""
    about: str = ""
    before_s: float = float("inf")
    limit: int = 200

    def selects(self, record: Record) -> bool:
        """Whether a record is one of them."""
        if record.at_s >= self.before_s or (self.about and record.about != self.about):
            return False
        return not self.job or self.job == record.job or _gave(record, self.job)

    @property
    def text(self) -> str:
        """What the lines of these records contain."""
        return self.about or self.job

    @property
    def places(self) -> frozenset[str] | None:
        """The namespaces that may have them; None for any."""
        if self.namespace:
            return frozenset({self.namespace})
        name = self.job or self.about.partition(" ")[2]
        return frozenset({name.partition("/")[0], CLUSTER}) if "/" in name else None


def _gave(record: Record, job: str) -> bool:
    """Whether it is a burst to which a job gave trainers."""
    return record.kind == "reclaim" and job in (record.figures.get("trainers") or {})


def merged(logged: Iterable[Logged]) -> list[Logged]:
    """Each record once, with all names where there are two."""
    entries: dict[tuple[float, str, str, str], Logged] = {}
    for entry in logged:
        merge(entries, entry)
    return sorted(entries.values(), key=lambda entry: (entry.record.at_s, entry.record.about))


def merge(entries: dict[tuple[float, str, str, str], Logged], logged: Logged) -> None:
    """Takes in a record; see `merged`."""
    record = logged.record
    key = (round(record.at_s, 3), record.about, record.code, record.job)
    earlier = entries.get(key)
    if earlier is None or ELSEWHERE in earlier.record.figures.values():
        entries[key] = logged
