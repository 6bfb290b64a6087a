"""The step functions of a run: the input of figures, criteria and the picture (pure)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from e2e.measure.level import Level, WeightedSpan
from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Timeline

PATIENCE_S = 1.0
"""A pod that waits no longer than this is not called pending: creation itself takes time."""


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Curves:
    """Views of one timeline, each made once, when first asked for."""

    timeline: Timeline

    def of(self, kind: Kind) -> Iterator[PodLifetime]:
        """The lifetimes of one kind of pod."""
        return (lifetime for lifetime in self.timeline.lifetimes if lifetime.kind is kind)

    @cached_property
    def cpu_millis(self) -> Level:
        """Requests of pods in phase Running, terminating ones included."""
        return self._running(lambda lifetime: lifetime.cpu_millis)

    @cached_property
    def asked_millis(self) -> Level:
        """Limits of pods in phase Running, or requests of pods without a limit, as users set them."""
        return self._running(lambda lifetime: lifetime.limit_millis)

    def _running(self, millis: Callable[[PodLifetime], int]) -> Level:
        return Level.of(
            WeightedSpan(lifetime.running_s, lifetime.ended_s, millis(lifetime))
            for lifetime in self.timeline.lifetimes
            if lifetime.running_s is not None
        )

    @cached_property
    def trainer_limits(self) -> Level:
        """Limits of trainers that exist and are not terminating, as quotas count them; in thousandths of a CPU."""
        return Level.of(
            WeightedSpan(lifetime.created_s, lifetime.leaves_s, lifetime.limit_millis)
            for lifetime in self.of(Kind.TRAINER)
        )

    @cached_property
    def services_wanted(self) -> Level:
        """As the steps ask for them."""
        steps = self.timeline.steps
        ends = [step.at_s for step in steps[1:]] + [None]
        return Level.of(
            WeightedSpan(step.at_s, end, step.services)
            for step, end in zip(steps, ends, strict=True)
        )

    @cached_property
    def services(self) -> Level:
        """Service pods at work."""
        return Level.of(_work(self.of(Kind.SERVICE)))

    @cached_property
    def services_waiting(self) -> Level:
        """Service pods that do not run yet."""
        return Level.of(waiting(lifetime) for lifetime in self.of(Kind.SERVICE))

    @cached_property
    def surplus_at_work(self) -> Level:
        """Surplus trainers that run and are not terminating."""
        return Level.of(_work(self.of(Kind.TRAINER), lambda lifetime: lifetime.surplus))

    @cached_property
    def trainers(self) -> dict[str, Level]:
        """Job -> trainers at work; every submitted job is there."""
        return {
            job: Level.of(
                _work(self.of(Kind.TRAINER), lambda lifetime, job=job: lifetime.job == job)  # type: ignore[misc] # mypy cannot type a lambda's default
            )
            for job in self.timeline.submitted_s
        }

    @cached_property
    def trainers_wanted(self) -> Level:
        """Trainer pods that exist and are not terminating."""
        return Level.of(
            WeightedSpan(lifetime.created_s, lifetime.leaves_s)
            for lifetime in self.of(Kind.TRAINER)
        )

    @cached_property
    def surplus_pending(self) -> Level:
        """Surplus trainers that have waited for longer than `PATIENCE_S`."""
        spans = (waiting(lifetime) for lifetime in self.of(Kind.TRAINER) if lifetime.surplus)
        return Level.of(WeightedSpan(span.start_s + PATIENCE_S, span.end_s) for span in spans)

    @cached_property
    def killed(self) -> Level:
        """Trainers killed so far."""
        times = (lifetime.killed_s for lifetime in self.timeline.lifetimes)
        return Level.of(WeightedSpan(time_s) for time_s in times if time_s is not None)


def waiting(lifetime: PodLifetime) -> WeightedSpan:
    """From a pod's creation until it runs or is given up."""
    ends = [time for time in (lifetime.running_s, lifetime.leaves_s) if time is not None]
    return WeightedSpan(lifetime.created_s, min(ends, default=None))


def _work(
    lifetimes: Iterator[PodLifetime], keep: Callable[[PodLifetime], bool] = lambda _: True
) -> Iterator[WeightedSpan]:
    return (
        WeightedSpan(lifetime.running_s, lifetime.leaves_s)
        for lifetime in lifetimes
        if lifetime.running_s is not None and keep(lifetime)
    )
