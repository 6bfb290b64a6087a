"""Work that was lost together with the model's state: sums, and the newest of it. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]

_MOST_SHOWN = 20
_TOLD = ("event", "reason", "steps", "records")


@dataclass(slots=True)
class Setbacks:
    """Of one job."""

    count: int = 0
    steps: int = 0
    records: int = 0
    newest: list[Json] = field(default_factory=list)

    def add(self, trainer: str, told: Json) -> None:
        """One more, or more of one that is known: each trainer knows only its own part at first.

        Args:
            trainer: Who tells it.
            told: The event, its reason, and how many steps and records are to do again in all, as
                far as is known: told twice it counts once.
        """
        entry = {"by": trainer, **{name: told[name] for name in _TOLD}}
        known = next((one for one in self.newest if one["event"] == entry["event"]), None)
        if known is None:
            known = {**entry, "steps": 0, "records": 0}
            self.count += 1
            self.newest = [*self.newest[1 - _MOST_SHOWN :], known]
        self.steps += max(0, entry["steps"] - known["steps"])
        self.records += max(0, entry["records"] - known["records"])
        known["steps"] = max(entry["steps"], known["steps"])
        known["records"] = max(entry["records"], known["records"])

    def dump(self) -> Json:
        """As JSON."""
        return asdict(self)

    @classmethod
    def load(cls, dumped: Json | None) -> "Setbacks":
        """Those that `dump` wrote; older books have none."""
        return cls() if dumped is None else cls(**dumped)
