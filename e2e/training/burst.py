"""A synchronous job on a real node during a burst of services, and its remaining trainers."""

from dataclasses import dataclass
from pathlib import Path

from e2e.environment import IsolatedNamespace
from e2e.training import traces
from e2e.training.fixture import Program, services, sleep_s, submit
from e2e.training.observer import Observations, observe
from e2e.training.traces import TrainerTrace, TrainingStep
from e2e.waiting import until
from kube import request
from kube.request import PODS
from policy.names import LABEL_TRAINER_ID
from runtime import clock

_SERVICE_CPU = "500m"
"""Two trainers of four must go before two services have room on two cores."""
_BEFORE_S = 8.0
_END_S = 300.0


@dataclass(frozen=True, slots=True)
class Burst:
    """A job and the services that want its room."""

    least: int
    """Trainers that services never take."""
    most: int
    services: int
    seconds: float
    """How long they run."""
    start_s: float
    """How long the first start of all trainers may take."""


@dataclass(frozen=True, slots=True)
class Run:
    """The observations of a run."""

    traces: list[TrainerTrace]
    steps: list[TrainingStep]
    observations: Observations
    burst: tuple[float, float]
    services_s: float
    """From their creation until both ran."""
    restarts: dict[str, int]
    """Container restarts by trainer, for trainers present at the end."""
    members: int
    """Before and after the burst."""

    @property
    def preempted(self) -> list[TrainerTrace]:
        """Traces of the trainers stopped during the burst; a finished job stops trainers, too."""
        return traces.stopped_between(self.traces, self.burst)

    @property
    def stayed(self) -> list[TrainerTrace]:
        """Traces of the trainers that ran from before the burst until the end."""
        first = [trace for trace in self.traces if trace.start_s < self.burst[0]]
        return [trace for trace in first if trace not in self.preempted]

    def changed_s(self) -> float:
        """From the last SIGTERM to the first step of the remaining trainers."""
        last_sigterm_s = max(trace.sigterm_s or 0.0 for trace in self.preempted)
        alone = self.members - len(self.preempted)
        return (
            next(s.at_s for s in self.steps if s.at_s > last_sigterm_s and s.world_size == alone)
            - last_sigterm_s
        )

    def back_s(self) -> float:
        """From the services' end to the first step of all."""
        freed_s = self.burst[1]
        return (
            next(s.at_s for s in self.steps if s.at_s > freed_s and s.world_size == self.members)
            - freed_s
        )

    def pause_s(self) -> float:
        """Returns the longest time without a step, from the services' coming to the end."""
        return traces.longest_pause_s(self.steps, self.burst[0], self.steps[-1].at_s)

    def speed(self, world_size: int) -> float:
        """Records per second in rounds with this number of members."""
        steps = [step for step in self.steps if step.world_size == world_size]
        return sum(step.records for step in steps) / sum(step.seconds for step in steps)


def train_through_a_burst(
    namespace: IsolatedNamespace, shared: Path, job: str, program: Program, burst: Burst
) -> Run:
    """Runs a job to its end, whose capacity services want for a while."""
    most = burst.most
    with observe(namespace, job, shared) as observations:
        submit(namespace, job, program, shared, trainers=(burst.least, most))
        _until_working(shared, most, burst.start_s)
        sleep_s(_BEFORE_S)
        begun_s = clock.epoch_s()
        with services(namespace, burst.services, _SERVICE_CPU, program.image):
            services_s = namespace.wait_services(burst.services, 60)
            sleep_s(begun_s + burst.seconds - clock.epoch_s())
            ended_s = clock.epoch_s()
        _until_working(shared, most, burst.start_s)
        restarts = _restarts(namespace)
        until("the job is over", lambda: namespace.job(job).finished, bool, _END_S)
    trainer_traces = traces.read(shared)
    return Run(
        trainer_traces,
        traces.group_steps(trainer_traces),
        observations,
        (begun_s, ended_s),
        services_s,
        restarts,
        most,
    )


def _until_working(shared: Path, count: int, limit_s: float) -> None:
    until("all train", lambda: traces.working(shared), lambda working: working == count, limit_s)


def _restarts(namespace: IsolatedNamespace) -> dict[str, int]:
    """How often containers were restarted, by trainer."""
    pods = namespace.environment.send(request.list_page(PODS, namespace.name))["items"]
    return {
        f"trainer-{pod['metadata']['labels'][LABEL_TRAINER_ID]}": sum(
            status["restartCount"] for status in pod["status"].get("containerStatuses", ())
        )
        for pod in pods
        if LABEL_TRAINER_ID in pod["metadata"]["labels"]
    }
