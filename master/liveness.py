"""Who is alive, who makes progress, and what a loss would cost. Pure; time is passed in.

Nothing of this is in the journal: after a restart everybody gets a full time to be heard again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from master.bounds import capped

Json = dict[str, Any]

_SMOOTHING = 0.2
_STUCK_TIMES = 20.0
"""A trainer is stuck when it makes no progress for so many times what a task usually takes."""
LEAST_STUCK_S = 120.0
MOST_STUCK_S = 3_600.0


@dataclass(slots=True)
class Pulse:
    """What was last heard of a trainer."""

    seen_s: float
    progress_s: float
    """When it last trained or acknowledged something new."""
    acknowledged_s: float
    trained: dict[str, int] = field(default_factory=dict)
    """Task -> records of it that were trained, of those that are not acknowledged."""
    missed: dict[str, float] = field(default_factory=dict)
    """Tasks that it has by the books, but of which its heartbeats know nothing; since when."""


class Liveness:
    """Of all trainers of a job."""

    def __init__(self, heartbeat_s: float, missed: int = 3) -> None:
        """Trainers are gone once `missed` heartbeats in a row did not come."""
        self.heartbeat_s = heartbeat_s
        self._gone_s = heartbeat_s * missed
        self._pulses: dict[str, Pulse] = {}
        self.task_s: float | None = None
        """What a task usually takes, smoothed; None until one was done."""

    @property
    def lease_s(self) -> float:
        """How long a trainer may hold tasks without any progress."""
        usual_s = (self.task_s or 0.0) * _STUCK_TIMES
        return min(MOST_STUCK_S, max(LEAST_STUCK_S, usual_s))

    def heard(self, trainer: str, now_s: float) -> Pulse:
        """It called."""
        pulse = self._pulses.get(trainer)
        if pulse is None:
            pulse = self._pulses[trainer] = Pulse(now_s, now_s, now_s)
        pulse.seen_s = now_s
        return pulse

    def beat(
        self, trainer: str, held: list[Json], now_s: float, booked: Collection[str] = ()
    ) -> list[str]:
        """It told how far it is with each task.

        Args:
            trainer: Its name.
            held: What it told.
            now_s: When.
            booked: Tasks that it has by the books.

        Returns:
            Of these, those of which it knew nothing for as long as a trainer may be silent: an
            answer to a call that nobody waited for any more had leased them. Not sooner: answers
            take their time, and heartbeats come with every step.
        """
        pulse = self.heard(trainer, now_s)
        trained = {one["task"]: one.get("trained", 0) for one in held}
        if trained != pulse.trained:
            pulse.progress_s = now_s
        pulse.trained = trained
        missed = {task: pulse.missed.get(task, now_s) for task in booked if task not in trained}
        leaked = [task for task, since_s in missed.items() if now_s - since_s >= self._gone_s]
        pulse.missed = {task: since_s for task, since_s in missed.items() if task not in leaked}
        return sorted(leaked)

    def acknowledged(self, trainer: str, tasks: list[str], now_s: float) -> None:
        """Tasks of it were accepted."""
        pulse = self.heard(trainer, now_s)
        if not tasks:
            return
        took_s = (now_s - pulse.acknowledged_s) / len(tasks)
        usual_s = took_s if self.task_s is None else self.task_s
        self.task_s = usual_s + _SMOOTHING * (took_s - usual_s)
        pulse.acknowledged_s = pulse.progress_s = now_s
        for task in tasks:
            pulse.trained.pop(task, None)

    def leased(self, trainer: str, now_s: float, *, had_none: bool) -> None:
        """It got tasks; one that had none begins now."""
        pulse = self.heard(trainer, now_s)
        if had_none:
            pulse.acknowledged_s = pulse.progress_s = now_s

    def trained(self, trainer: str) -> dict[str, int]:
        """Records of its tasks that were trained and not acknowledged."""
        pulse = self._pulses.get(trainer)
        return {} if pulse is None else {t: n for t, n in pulse.trained.items() if n}

    def uncommitted(self, trainer: str, now_s: float) -> tuple[int, float]:
        """What would be lost with it: records, and seconds of work."""
        records = capped(sum(self.trained(trainer).values()))
        if not records:
            return 0, 0.0
        return records, max(0.0, now_s - self._pulses[trainer].acknowledged_s)

    def forget(self, trainer: str) -> None:
        """It left."""
        self._pulses.pop(trainer, None)

    def anew(self, trainers: list[str], now_s: float) -> None:
        """After a restart: everybody was heard just now."""
        self._pulses = {name: Pulse(now_s, now_s, now_s) for name in trainers}

    def due(self, holding: dict[str, bool], now_s: float) -> Json | None:
        """The command that ends what time has ended; None where there is nothing.

        Args:
            holding: Trainer -> whether it holds tasks.
            now_s: Of the same clock as all other times.
        """
        gone, stuck = {}, {}
        for name, holds in holding.items():
            pulse = self.heard(name, now_s) if name not in self._pulses else self._pulses[name]
            if now_s - pulse.seen_s > self._gone_s:
                gone[name] = self.trained(name)
            elif holds and now_s - pulse.progress_s > self.lease_s:
                stuck[name] = self.trained(name)
        if not gone and not stuck:
            return None
        return {"do": "expire", "trainers": gone, "stuck": stuck}

    def age_s(self, trainer: str, now_s: float) -> float:
        """Since when nothing was heard of it."""
        pulse = self._pulses.get(trainer)
        return 0.0 if pulse is None else max(0.0, now_s - pulse.seen_s)
