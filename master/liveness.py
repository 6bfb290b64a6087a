"""Which trainers are alive and make progress, and what their loss would cost.

Pure; time is passed in. The journal does not contain this state: after a restart, each trainer gets
the full time to call again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from master.bounds import capped
from master.commands import Expire

_MIN_PACE_S = 0.25
"""Shortest time between two heartbeats of a trainer, in seconds."""
_MAX_MISSED = 3
"""A trainer is dead after this many missed heartbeats in a row."""
_HEARTBEATS_PER_S = 250.0
"""Limit for all trainers together: trainers of a large job send heartbeats less often."""
_SMOOTHING = 0.2
_STUCK_TIMES = 20.0
"""A trainer counts as stuck only if it makes no progress for this many times a task's usual
duration."""
_LONGEST_TIMES = 3.0
"""A trainer counts as stuck only if it makes no progress for this many times a task's longest
duration."""
FIRST_STUCK_S = 900.0
"""Limit while no task of a kind has been completed: the first step may compile for minutes."""
MIN_STUCK_S = 120.0
MAX_STUCK_S = 3_600.0
"""Upper limit of `_STUCK_TIMES` times the usual duration."""


@dataclass(slots=True)
class TrainerActivity:
    """The newest calls and progress of one trainer."""

    last_call_s: float
    progress_s: float
    """When the trainer last trained or acknowledged something new."""
    acknowledged_s: float
    trained: dict[str, int] = field(default_factory=dict)
    """Task -> number of its trained records, for tasks that are not acknowledged."""
    unreported: dict[str, float] = field(default_factory=dict)
    """Leased task that the trainer's heartbeats do not list -> since when they have not listed
    it."""


@dataclass(slots=True)
class TaskTimes:
    """Durations of tasks of one kind."""

    usual_s: float
    """Smoothed duration: each completed task moves it by a fifth of the difference."""
    longest_s: float

    def add(self, took_s: float) -> None:
        """Adds the duration of a completed task."""
        self.usual_s += _SMOOTHING * (took_s - self.usual_s)
        self.longest_s = max(self.longest_s, took_s)

    @property
    def limit_s(self) -> float:
        """How long a trainer may hold such a task without any progress."""
        usual_s = min(MAX_STUCK_S, _STUCK_TIMES * self.usual_s)
        return max(MIN_STUCK_S, usual_s, _LONGEST_TIMES * self.longest_s)


class Liveness:
    """Heartbeats and progress of all trainers of a job."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._activities: dict[str, TrainerActivity] = {}
        self.task_times: dict[str, TaskTimes] = {}
        """Kind of task -> its durations: evaluations and training take different times."""

    @property
    def pace_s(self) -> float:
        """The shortest time between two heartbeats of a trainer, even if its steps are shorter."""
        min_s = min(_MIN_PACE_S, self.heartbeat_s)
        return max(min_s, len(self._activities) / _HEARTBEATS_PER_S)

    @property
    def _timeout_s(self) -> float:
        return _MAX_MISSED * max(self.heartbeat_s, self.pace_s)

    def lease_s(self, kinds: Iterable[str]) -> float:
        """Returns how long a trainer may hold tasks of these kinds without progress, in seconds."""
        times = (self.task_times.get(kind) for kind in kinds)
        return max((FIRST_STUCK_S if t is None else t.limit_s for t in times), default=0.0)

    def record_call(self, trainer: str, now_s: float) -> TrainerActivity:
        """Records a call of a trainer."""
        activity = self._activities.get(trainer)
        if activity is None:
            activity = self._activities[trainer] = TrainerActivity(now_s, now_s, now_s)
        activity.last_call_s = now_s
        return activity

    def record_heartbeat(
        self,
        trainer: str,
        trained: Mapping[str, int],
        now_s: float,
        leased_tasks: Collection[str] = (),
    ) -> list[str]:
        """Records a heartbeat, which reports the progress of each task.

        Args:
            trainer: The trainer.
            trained: Task -> number of its trained records, as the heartbeat reports them.
            now_s: The time of the heartbeat.
            leased_tasks: Tasks that the trainer leases according to the ledger.

        Returns:
            The tasks with leaked leases, whose grant never reached the trainer: its heartbeats have
            not listed these tasks for as long as a trainer may be silent. Shorter gaps are normal,
            because answers take time and each step sends a heartbeat.
        """
        activity = self.record_call(trainer, now_s)
        if trained != activity.trained:
            activity.progress_s = now_s
        activity.trained = dict(trained)
        unreported = {
            task: activity.unreported.get(task, now_s)
            for task in leased_tasks
            if task not in trained
        }
        leaked = [
            task for task, since_s in unreported.items() if now_s - since_s >= self._timeout_s
        ]
        activity.unreported = {
            task: since_s for task, since_s in unreported.items() if task not in leaked
        }
        return sorted(leaked)

    def record_acknowledged(self, trainer: str, tasks: Mapping[str, str], now_s: float) -> None:
        """Records that acknowledgements of a trainer were accepted.

        Args:
            trainer: The trainer.
            tasks: Task -> kind.
            now_s: The time of the call.
        """
        activity = self.record_call(trainer, now_s)
        if not tasks:
            return
        took_s = (now_s - activity.acknowledged_s) / len(tasks)
        for kind in set(tasks.values()):
            self.task_times.setdefault(kind, TaskTimes(took_s, took_s)).add(took_s)
        activity.acknowledged_s = activity.progress_s = now_s
        for task in tasks:
            activity.trained.pop(task, None)

    def record_leased(self, trainer: str, now_s: float, *, had_none: bool) -> None:
        """Records that a trainer got leases; if it had no leases before, its progress starts now."""
        activity = self.record_call(trainer, now_s)
        if had_none:
            activity.acknowledged_s = activity.progress_s = now_s

    def trained_records(self, trainer: str) -> dict[str, int]:
        """Returns task -> number of records that a trainer has trained and not acknowledged."""
        activity = self._activities.get(trainer)
        return {} if activity is None else {t: n for t, n in activity.trained.items() if n}

    def uncommitted(self, trainer: str, now_s: float) -> tuple[int, float]:
        """Returns what would be lost with a trainer: records, and seconds of work."""
        records = capped(sum(self.trained_records(trainer).values()))
        if not records:
            return 0, 0.0
        return records, max(0.0, now_s - self._activities[trainer].acknowledged_s)

    def forget(self, trainer: str) -> None:
        """Forgets a trainer that has left."""
        self._activities.pop(trainer, None)

    def reset(self, trainers: list[str], now_s: float) -> None:
        """Starts again after a restart, as if each trainer had just called."""
        self._activities = {name: TrainerActivity(now_s, now_s, now_s) for name in trainers}

    def expiry_command(
        self, held_kinds: Mapping[str, Collection[str]], now_s: float
    ) -> Expire | None:
        """Returns the command that expires dead and stuck trainers; None if there are none.

        Args:
            held_kinds: Trainer -> kinds of its leased tasks.
            now_s: The time, by the same clock as in all other calls.
        """
        dead, stuck = {}, {}
        for name, kinds in held_kinds.items():
            activity = self._activities.get(name) or self.record_call(name, now_s)
            if now_s - activity.last_call_s > self._timeout_s:
                dead[name] = self.trained_records(name)
            elif kinds and now_s - activity.progress_s > self.lease_s(kinds):
                stuck[name] = self.trained_records(name)
        if not dead and not stuck:
            return None
        return Expire(dead, stuck)

    def silence_s(self, trainer: str, now_s: float) -> float:
        """Returns the seconds since the last call of a trainer."""
        activity = self._activities.get(trainer)
        return 0.0 if activity is None else max(0.0, now_s - activity.last_call_s)
