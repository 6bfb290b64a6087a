"""Who of a rendezvous is there, and who was not heard for too long. Pure; time is passed in."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = dict[str, Any]
Who = tuple[str, str]
"""Trainer and incarnation."""

SILENT_S = 3.0
"""A member that was not heard for so long is dropped; polls wait 1 s."""
PROBE_S = 1.0
"""Within this time all members are to answer a probe."""
HUNG_UP_S = 0.3
"""A member whose poll was cut off is to call again within this time: a killed process does not."""
SUSPICIOUS_S = 0.75
"""Whoever waits so long for the others may wait for one that is frozen."""
_BETWEEN_PROBES_S = 2.0
"""For waiting alone: steps may take as long."""
_MOST_LIMIT_S = 30.0
_SLACK_S = 2.0
_MOST_REMEMBERED = 1024


class Seat(NamedTuple):
    """One place in a round."""

    trainer: str
    incarnation: str
    address: str

    @property
    def who(self) -> Who:
        """Which process has it."""
        return self.trainer, self.incarnation


@dataclass(slots=True)
class Member:
    """A process that is there."""

    seat: Seat
    heard_s: float
    patience: float = 1.0
    """By how much its limits are longer: it was dropped before, and was not dead."""
    poll_s: float = 1.0
    at: int = 0
    """The round its main thread has reached."""
    ready_at: int = 0
    busy_s: float = float("-inf")
    """When it last said that it does something that takes its time, such as an evaluation."""
    broken_at: int = 0
    """The newest round in which it could do nothing more."""
    waiting_s: float | None = None
    """As it said when it called last; None while only others have told of it."""
    probe: int = 0
    """The newest probe it has answered."""
    hung_up_s: float | None = None
    """Since when it has no connection; None where it has one, or none was cut."""
    told_formed: int = 0
    """The newest round of which it was told that it has formed."""

    def hear(self, call: Json, probe: int, now_s: float) -> None:
        """It calls; two of its calls may come in the wrong order, so nothing goes back.

        Args:
            call: As in the protocol.
            probe: The number that answers the probe under way.
            now_s: When.
        """
        self.heard_s, self.hung_up_s = now_s, None
        if call["wait_s"]:
            self.poll_s = call["wait_s"]
        at = call["at"]
        self.at = max(self.at, at)
        if call["ready"]:
            self.ready_at = max(self.ready_at, at)
        if call["broken"]:
            self.broken_at = max(self.broken_at, at)
        self.waiting_s = call["waiting_s"]
        if call["busy"]:
            self.busy_s = now_s
        if call["probe"] == probe:
            self.probe = probe

    def gone_s(self, probe: "Probe") -> float:
        """When it counts as gone if it does not call before."""
        found_s = self.heard_s + self._limit(max(SILENT_S, self.poll_s + _SLACK_S))
        if self.hung_up_s is not None:
            found_s = min(found_s, self.hung_up_s + self._limit(HUNG_UP_S))
        if probe.awaits(self):
            found_s = min(found_s, probe.since_s + self._limit(PROBE_S))
        return found_s

    def why(self, probe: "Probe", now_s: float) -> str:
        """Why it counts as gone, for the log."""
        if self.hung_up_s is not None:
            return "hung up and did not call again"
        if probe.awaits(self) and now_s >= probe.since_s + self._limit(PROBE_S):
            return f"did not answer within {self._limit(PROBE_S):g} s"
        return f"was not heard for {now_s - self.heard_s:.1f} s"

    def _limit(self, limit_s: float) -> float:
        return max(limit_s, min(_MOST_LIMIT_S, limit_s * self.patience))


class Probe:
    """All members are asked to call at once, because one of them may be frozen."""

    def __init__(self) -> None:
        self.number = 0
        self.since_s = 0.0
        """Since when answers are awaited."""
        self._open = False
        """Whether any are."""
        self._wanted = False
        self._newest_s = float("-inf")

    @property
    def under_way(self) -> bool:
        """Whether it is not known yet who is there."""
        return self._wanted or self._open

    def awaits(self, member: Member) -> bool:
        """Whether this one has not answered yet."""
        return self._open and member.probe != self.number

    def want(self) -> None:
        """Somebody can do nothing more: asks now, or again after the answers to what is asked."""
        self._wanted = True

    def suspect(self, waiting_s: float, now_s: float) -> None:
        """Somebody has waited for so long."""
        rested = now_s >= self._newest_s + _BETWEEN_PROBES_S
        if waiting_s >= SUSPICIOUS_S and rested and not self.under_way:
            self._wanted = True

    def advance(self, members: Collection[Member], now_s: float) -> None:
        """Ends when all who are left have answered; begins where one is wanted."""
        if self._open and not any(map(self.awaits, members)):
            self._open = False
        if self._wanted and not self._open:
            self.number += 1
            self.since_s = self._newest_s = now_s
            self._open, self._wanted = True, False


class Remembered:
    """Processes of the past with something about each; the oldest are forgotten."""

    def __init__(self) -> None:
        self._found: dict[Who, Any] = {}

    def __contains__(self, who: Who) -> bool:
        return who in self._found

    def get(self, who: Who, default: Any = None) -> Any:
        """What is remembered of it."""
        return self._found.get(who, default)

    def add(self, who: Who, about: Any = True) -> None:
        """Remembers it."""
        self._found.pop(who, None)
        self._found[who] = about
        if len(self._found) > _MOST_REMEMBERED:
            del self._found[next(iter(self._found))]

    def forget(self, who: Who) -> None:
        """It is of no interest any more."""
        self._found.pop(who, None)


def earliest(times_s: Iterable[float | None]) -> float | None:
    """The first of some times; None where there is none."""
    return min((one for one in times_s if one is not None), default=None)
