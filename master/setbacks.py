"""Work that was lost together with the model's state: sums, and the newest of it. Pure.

Parameter servers that go back to a checkpoint lose batches of many trainers. Each trainer that is
still there knows exactly which of its own batches are lost, and tells that as its share. Nobody
knows the share of a trainer that has left; but every trainer that was answered later saw a version
of the model that held those batches too. So an event costs what the shares add up to, or, if that
is more, the versions that servers went back by, less the pushes that were on their way: those come
again.

The newest 20 events are open: trainers add shares to them. Older events are closed: a word on a
closed event counts nothing, because nobody can tell whether it was counted before.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from master.bounds import capped

Json = dict[str, Any]

_MOST_OPEN = 20
_MOST_CLOSED = 1024
"""Closed events that are recognised; the oldest are forgotten."""
_MOST_HOLDERS = 128
"""Holders of an event whose shares are kept one by one; shares of all others are kept as a sum."""
_LONGEST_HOLDER = 64
"""Characters of a holder's name; a longer name is kept as its digest."""
_UNITS = ("steps", "records")
_NUMBERS = (*_UNITS, *(f"pending_{unit}" for unit in _UNITS))
"""Of a share."""


@dataclass(slots=True)
class Setbacks:
    """Of one job. All numbers are in 0 to 2^53."""

    count: int = 0
    """Events."""
    steps: int = 0
    records: int = 0
    newest: list[Json] = field(default_factory=list)
    """Open events, the newest last."""
    shares: dict[str, Json] = field(default_factory=dict)
    """Open event -> `most`, the largest number that a trainer told of the whole event; `by`, the
    shares by holder; `rest`, the sum of the shares of all other holders."""
    closed: list[str] = field(default_factory=list)
    """Digests of closed events, the newest last."""

    def add(self, trainer: str, word: Json) -> None:
        """Counts an event, or adds to an open one: each trainer knows only its own part at first.

        Args:
            trainer: Who says it.
            word: The event, its reason, how many steps and records it cost in all as far as the
                trainer knows, and perhaps the trainer's `share`. A word that is repeated counts
                once.
        """
        name = word["event"]
        if _digest(name) in self.closed:
            return
        event = next((event for event in self.newest if event["event"] == name), None)
        if event is None:
            event = {
                "by": trainer,
                "event": name,
                "reason": word["reason"],
                "steps": 0,
                "records": 0,
            }
            self._open(event)
        cost = _cost(self.shares[name], word)
        self.steps = capped(self.steps + cost["steps"] - event["steps"])
        self.records = capped(self.records + cost["records"] - event["records"])
        event.update(cost)

    def shown(self) -> Json:
        """For the status."""
        return {name: getattr(self, name) for name in ("count", *_UNITS, "newest")}

    def dump(self) -> Json:
        """As JSON."""
        return deepcopy({**self.shown(), "shares": self.shares, "closed": self.closed})

    @classmethod
    def load(cls, dumped: Json | None) -> "Setbacks":
        """Those that `dump` wrote.

        Older books have no setbacks, no shares, or shares of the newest three events only; of all
        other events the cost is known, but not who holds it.
        """
        setbacks = cls() if dumped is None else cls(**deepcopy(dumped))
        for event in setbacks.newest:
            setbacks.shares.setdefault(event["event"], _shares(event)).setdefault("rest", _share())
        return setbacks

    def _open(self, event: Json) -> None:
        """Shows an event, and closes the oldest one where that makes too many."""
        self.count += 1
        self.newest.append(event)
        self.shares[event["event"]] = _shares(event)
        if len(self.newest) > _MOST_OPEN:
            oldest = self.newest.pop(0)["event"]
            del self.shares[oldest]
            self.closed = [*self.closed[1 - _MOST_CLOSED :], _digest(oldest)]


def _shares(event: Json) -> Json:
    """The shares of an event of which only the cost is known."""
    return {"most": {unit: event[unit] for unit in _UNITS}, "by": {}, "rest": _share()}


def _share() -> Json:
    """Of somebody who lost nothing."""
    return dict.fromkeys(_NUMBERS, 0)


def _cost(shares: Json, word: Json) -> Json:
    """Adds one more word to the shares of an event.

    Returns:
        What the event cost: steps and records.
    """
    most, share = shares["most"], word.get("share")
    most.update({unit: max(most[unit], word[unit]) for unit in _UNITS})
    if share is not None:
        _keep(shares, share)
    kept = [*shares["by"].values(), shares["rest"]]
    cost = {}
    for unit in _UNITS:
        lost = sum(share[unit] for share in kept)
        pending = sum(share[f"pending_{unit}"] for share in kept)
        cost[unit] = capped(max(lost, most[unit] - pending))
    return cost


def _keep(shares: Json, share: Json) -> None:
    """Replaces the holder's share. Beyond the most holders it adds to the sum, however often."""
    holder, numbers = share["holder"], {name: share[name] for name in _NUMBERS}
    if len(holder) > _LONGEST_HOLDER:
        holder = _digest(holder)
    by, rest = shares["by"], shares["rest"]
    if holder in by or len(by) < _MOST_HOLDERS:
        by[holder] = numbers
    else:
        rest.update({name: capped(rest[name] + numbers[name]) for name in _NUMBERS})


def _digest(name: str) -> str:
    """Eight bytes that stand for a name of any length."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
