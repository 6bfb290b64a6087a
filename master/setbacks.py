"""Work that was lost together with the model's state: sums, and the newest of it. Pure.

Parameter servers that go back to a checkpoint lose batches of many trainers. Each trainer that is
still there knows exactly which of its own are lost, and tells that as its share. Of those that have
left nobody knows it; but all who were answered later saw a version of the model that held their
batches too. So what is lost is what the shares add up to, or, if that is more, the versions that
were gone back by without those pushes that were still on their way: they come again.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_MOST_SHOWN = 20
_MOST_OPEN = 3
"""Setbacks whose shares are known one by one; later words on older ones are merged by the most."""
_UNITS = ("steps", "records")


@dataclass(slots=True)
class Setbacks:
    """Of one job."""

    count: int = 0
    steps: int = 0
    records: int = 0
    newest: list[Json] = field(default_factory=list)
    shares: dict[str, Json] = field(default_factory=dict)
    """Event -> the most that was told of all of it, and the shares by who holds them."""

    def add(self, trainer: str, told: Json) -> None:
        """One more, or more of one that is known: each trainer knows only its own part at first.

        Args:
            trainer: Who tells it.
            told: The event, its reason, how many steps and records it cost in all as far as is
                known, and perhaps the teller's `share`; told twice it counts once.
        """
        event = told["event"]
        known = next((one for one in self.newest if one["event"] == event), None)
        if known is None:
            known = {"by": trainer, "event": event, "reason": told["reason"]}
            known.update(steps=0, records=0)
            self.count += 1
            self.newest = [*self.newest[1 - _MOST_SHOWN :], known]
            self.shares[event] = {"most": {"steps": 0, "records": 0}, "by": {}}
            while len(self.shares) > _MOST_OPEN:
                del self.shares[next(iter(self.shares))]
        lost = self._merged(known, told)
        self.steps += lost["steps"] - known["steps"]
        self.records += lost["records"] - known["records"]
        known.update(lost)

    def shown(self) -> Json:
        """For the status."""
        return {name: getattr(self, name) for name in ("count", *_UNITS, "newest")}

    def dump(self) -> Json:
        """As JSON."""
        return deepcopy({**self.shown(), "shares": self.shares})

    @classmethod
    def load(cls, dumped: Json | None) -> "Setbacks":
        """Those that `dump` wrote; older books have none, or no shares."""
        return cls() if dumped is None else cls(**deepcopy(dumped))

    def _merged(self, known: Json, told: Json) -> Json:
        """What an event cost, with one more word on it."""
        share, shares = told.get("share"), self.shares.get(known["event"])
        if shares is None:
            own = share or {}
            return {unit: max(known[unit], told[unit], own.get(unit, 0)) for unit in _UNITS}
        most = {unit: max(shares["most"][unit], told[unit]) for unit in _UNITS}
        shares["most"] = most
        if share is not None:
            shares["by"][share["holder"]] = {k: v for k, v in share.items() if k != "holder"}
        held = shares["by"].values()
        return {
            unit: max(
                sum(one[unit] for one in held),
                most[unit] - sum(one[f"pending_{unit}"] for one in held),
            )
            for unit in _UNITS
        }
