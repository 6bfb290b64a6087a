"""When each job's master is asked next, and whose answers count. Pure.

Who calls: `reconciler.polls`, on its thread.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass

EVERY_S = 2.0
"""One job is asked at most this often."""
LAST_PAUSE_S = 30.0
"""The longest wait between two questions to a master that does not answer."""
MOST_STARTED = 10
"""Questions begun at one time: at most 100 a second in all."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask. One that differs from the one before is asked at once."""

    namespace: str
    config_map: str
    address: str
    """IP address of the pod that carries the master; "" where none does."""
    token: str
    turn: int = 0
    """Grows whenever news is expected."""

    def __repr__(self) -> str:
        """Without the token, which must not get into logs."""
        return f"Target({self.namespace}/{self.config_map} at {self.address!r})"


@dataclass(slots=True, eq=False)
class Turn:
    """The questions to one target of one job."""

    uid: str
    """Of the job."""
    target: Target
    at_s: float
    """When it is asked next."""
    pause_s: float = EVERY_S
    open: bool = False
    """Whether a question is under way."""


class Turns:
    """The turns of all jobs."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    def begin(
        self, targets: Mapping[str, Target], now_s: float, free: int, over: Container[str]
    ) -> list[Turn]:
        """The questions to ask now, those that have waited longest first; they count as open.

        Args:
            targets: Job uid -> whom to ask. Jobs that are not in it are forgotten.
            now_s: On a monotonic clock.
            free: How many questions may be begun, besides `MOST_STARTED`.
            over: Uids of jobs whose last word is known: they are not asked again.
        """
        for uid in self._turns.keys() - targets.keys():
            del self._turns[uid]
        for uid, target in targets.items():
            turn = self._turns.get(uid)
            if turn is None or turn.target != target:
                self._turns[uid] = Turn(uid, target, now_s)
        due = [
            turn
            for turn in self._turns.values()
            if turn.at_s <= now_s and not turn.open and turn.uid not in over
        ]
        due.sort(key=lambda turn: turn.at_s)
        begun = due[: max(0, min(MOST_STARTED, free))]
        for turn in begun:
            turn.open = True
        return begun

    def end(self, turn: Turn, now_s: float, *, answered: bool) -> bool:
        """Ends a question; whether its answer counts, which that of a target of before does not.

        Args:
            turn: As `begin` gave it.
            now_s: On a monotonic clock.
            answered: Whether the master itself did; one that did not waits twice as long.
        """
        turn.open = False
        turn.pause_s = EVERY_S if answered else min(LAST_PAUSE_S, turn.pause_s * 2)
        turn.at_s = now_s + turn.pause_s
        return self._turns.get(turn.uid) is turn
