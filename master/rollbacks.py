"""Work that was lost in rollbacks of the model's state: totals and the newest events. Pure.

Parameter servers that restore a checkpoint lose batches of many trainers. Each live trainer knows
exactly which of its batches are lost, and reports them as its share. The share of a trainer that
has left is unknown, but trainers that were answered later saw a version of the model that contained
its batches. So the cost of an event is the larger of two numbers: the sum of all shares, and the
number of versions that the servers lost minus the pushes in flight, which are sent again.

The newest 20 events are open, and trainers add shares to them. A report on an older, closed event
does not count, because it may have been counted before.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b

from master.bounds import capped
from master.commands import LostShare, Rollback
from runtime.call_checks import Json

_MAX_OPEN = 20
_MAX_CLOSED = 1024
"""Number of closed events that are recognised in repeated reports; older ones are forgotten."""
_MAX_HOLDERS = 128
"""Number of holders whose shares of an event are stored separately; all other shares are added
up."""
_LONGEST_HOLDER = 64
"""Maximum length of a holder's name; longer names are stored as digests."""
_UNITS = ("steps", "records")
_NUMBERS = (*_UNITS, *(f"pending_{unit}" for unit in _UNITS))
"""The fields of a share."""


@dataclass(slots=True)
class JobRollbacks:
    """The rollbacks of one job. All numbers are from 0 to 2^53."""

    count: int = 0
    """Number of events."""
    steps: int = 0
    records: int = 0
    newest: list[Json] = field(default_factory=list)
    """Open events, the newest last."""
    shares: dict[str, Json] = field(default_factory=dict)
    """Open event -> its shares. `most` is the largest cost of the whole event that a trainer reported,
    `by` has the shares by holder, `rest` is the sum of all other shares."""
    closed: list[str] = field(default_factory=list)
    """Digests of closed events, the newest last."""

    def add(self, report: Rollback, redone: int = 0) -> None:
        """Adds a report to its event, and opens the event if it is new. Repeated reports count once.

        Args:
            report: The report.
            redone: Records that are trained again because the data was set back with the model.
        """
        name = report.event
        if _digest(name) in self.closed:
            return
        event = next((event for event in self.newest if event["event"] == name), None)
        if event is None:
            event = {
                "by": report.trainer,
                "event": name,
                "reason": report.reason,
                "steps": 0,
                "records": 0,
            }
            self._open(event)
        if redone:
            event["redone"] = capped(event.get("redone", 0) + redone)
        cost = _add_report(self.shares[name], report)
        self.steps = capped(self.steps + cost["steps"] - event["steps"])
        self.records = capped(self.records + cost["records"] - event["records"])
        event.update(cost)

    def to_json(self) -> Json:
        """Returns the rollbacks for the status."""
        return {name: getattr(self, name) for name in ("count", *_UNITS, "newest")}

    def dump(self) -> Json:
        """Returns the rollbacks for a snapshot."""
        return deepcopy({**self.to_json(), "shares": self.shares, "closed": self.closed})

    @classmethod
    def load(cls, dumped: Json | None) -> "JobRollbacks":
        """Returns the rollbacks that `dump` wrote.

        Older snapshots have no rollbacks, no shares, or only the shares of the newest three events.
        The other events have a known cost, but no known holders.
        """
        rollbacks = cls() if dumped is None else cls(**deepcopy(dumped))
        for event in rollbacks.newest:
            shares = rollbacks.shares.setdefault(event["event"], _new_shares(event))
            shares.setdefault("rest", _empty_share())
        return rollbacks

    def _open(self, event: Json) -> None:
        """Opens an event, and closes the oldest one if there are too many."""
        self.count += 1
        self.newest.append(event)
        self.shares[event["event"]] = _new_shares(event)
        if len(self.newest) > _MAX_OPEN:
            oldest = self.newest.pop(0)["event"]
            del self.shares[oldest]
            self.closed = [*self.closed[1 - _MAX_CLOSED :], _digest(oldest)]


def _new_shares(event: Json) -> Json:
    """Returns the shares of an event whose cost is known, but not its holders."""
    return {"most": {unit: event[unit] for unit in _UNITS}, "by": {}, "rest": _empty_share()}


def _empty_share() -> Json:
    """Returns a share without losses."""
    return dict.fromkeys(_NUMBERS, 0)


def _add_report(shares: Json, report: Rollback) -> Json:
    """Adds one more report to the shares of an event.

    Returns:
        The cost of the event: steps and records.
    """
    most = shares["most"]
    most.update({unit: max(most[unit], getattr(report, unit)) for unit in _UNITS})
    if report.share is not None:
        _put_share(shares, report.share)
    all_shares = [*shares["by"].values(), shares["rest"]]
    cost = {}
    for unit in _UNITS:
        lost = sum(share[unit] for share in all_shares)
        pending = sum(share[f"pending_{unit}"] for share in all_shares)
        cost[unit] = capped(max(lost, most[unit] - pending))
    return cost


def _put_share(shares: Json, share: LostShare) -> None:
    """Replaces the share of a holder; adds it to `rest` if there are too many holders."""
    holder, numbers = share.holder, {name: getattr(share, name) for name in _NUMBERS}
    if len(holder) > _LONGEST_HOLDER:
        holder = _digest(holder)
    by_holder, remainder = shares["by"], shares["rest"]
    if holder in by_holder or len(by_holder) < _MAX_HOLDERS:
        by_holder[holder] = numbers
    else:
        remainder.update({name: capped(remainder[name] + numbers[name]) for name in _NUMBERS})


def _digest(name: str) -> str:
    """Returns a digest of eight bytes for a name of any length."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
