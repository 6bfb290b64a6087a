"""Work that was lost together with the model's state: sums, and the newest of it. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]

_MOST_SHOWN = 20


@dataclass(slots=True)
class Setbacks:
    """Of one job."""

    count: int = 0
    steps: int = 0
    records: int = 0
    newest: list[Json] = field(default_factory=list)

    def add(self, trainer: str, told: Json) -> None:
        """One more.

        Args:
            trainer: Who tells it.
            told: Its reason, and how many steps and records are to do again.
        """
        entry = {"by": trainer, **{name: told[name] for name in ("reason", "steps", "records")}}
        self.count += 1
        self.steps += entry["steps"]
        self.records += entry["records"]
        self.newest = [*self.newest[1 - _MOST_SHOWN :], entry]

    def dump(self) -> Json:
        """As JSON."""
        return asdict(self)

    @classmethod
    def load(cls, dumped: Json | None) -> "Setbacks":
        """Those that `dump` wrote; older books have none."""
        return cls() if dumped is None else cls(**dumped)
