"""The step functions of a run: what figures, bars and the picture are made of (pure)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from e2e.measure.level import Level, Span
from e2e.measure.pods import Kind
from e2e.measure.record import Life, Timeline

PATIENCE_S = 1.0
"""A pod that waits no longer than this is not called pending: creation itself takes time."""


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Curves:
    """Views of one timeline, each made once, when first asked for."""

    timeline: Timeline

    def of(self, kind: Kind) -> Iterator[Life]:
        """The lives of one kind of pod."""
        return (life for life in self.timeline.lives if life.kind is kind)

    @cached_property
    def cpu_millis(self) -> Level:
        """Requests of pods in phase Running, terminating ones included."""
        return Level.of(
            Span(life.running_s, life.ended_s, life.cpu_millis)
            for life in self.timeline.lives
            if life.running_s is not None
        )

    @cached_property
    def services_wanted(self) -> Level:
        """As the steps ask for them."""
        steps = self.timeline.steps
        ends = [step.at_s for step in steps[1:]] + [None]
        return Level.of(
            Span(step.at_s, end, step.services) for step, end in zip(steps, ends, strict=True)
        )

    @cached_property
    def services(self) -> Level:
        """Service pods at work."""
        return Level.of(_work(self.of(Kind.SERVICE)))

    @cached_property
    def services_waiting(self) -> Level:
        """Service pods that do not run yet."""
        return Level.of(waiting(life) for life in self.of(Kind.SERVICE))

    @cached_property
    def surplus_at_work(self) -> Level:
        """Surplus trainers that run and were not told to stop."""
        return Level.of(_work(self.of(Kind.TRAINER), lambda life: life.surplus))

    @cached_property
    def trainers(self) -> dict[str, Level]:
        """Job -> trainers at work; every submitted job is there."""
        return {
            job: Level.of(_work(self.of(Kind.TRAINER), lambda life, job=job: life.job == job))  # type: ignore[misc] # mypy cannot type a lambda's default
            for job in self.timeline.submitted_s
        }

    @cached_property
    def trainers_wanted(self) -> Level:
        """Trainer pods that exist and were not told to stop."""
        return Level.of(Span(life.created_s, life.leaves_s) for life in self.of(Kind.TRAINER))

    @cached_property
    def surplus_pending(self) -> Level:
        """Surplus trainers that have waited for longer than `PATIENCE_S`."""
        spans = (waiting(life) for life in self.of(Kind.TRAINER) if life.surplus)
        return Level.of(Span(span.start_s + PATIENCE_S, span.end_s) for span in spans)

    @cached_property
    def killed(self) -> Level:
        """Trainers killed so far."""
        times = (life.killed_s for life in self.timeline.lives)
        return Level.of(Span(time_s) for time_s in times if time_s is not None)


def waiting(life: Life) -> Span:
    """From a pod's creation until it runs or is given up."""
    ends = [time for time in (life.running_s, life.leaves_s) if time is not None]
    return Span(life.created_s, min(ends, default=None))


def _work(lives: Iterator[Life], keep: Callable[[Life], bool] = lambda _: True) -> Iterator[Span]:
    return (
        Span(life.running_s, life.leaves_s)
        for life in lives
        if life.running_s is not None and keep(life)
    )
