"""Writing down what pods do, and counting along."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from e2e.measure.pods import Kind, PodView
from e2e.measure.record import Recorder
from policy.cluster.snapshot import Phase
from tests.e2e.runs import timeline, view


class _Clock:
    """Moves on by one second with every reading."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def _play(*states: PodView | None) -> Recorder:
    recorder = Recorder(_Clock())
    old: PodView | None = None
    for new in states:
        recorder.change(old, new)
        old = new
    return recorder


def test_a_life_has_the_first_time_of_everything() -> None:
    """Created, bound, running, told to stop, ended and gone, each once."""
    pod = view(Kind.TRAINER, job="job-1", surplus=True)
    bound = replace(pod, node="node-000")
    running = replace(bound, phase=Phase.RUNNING)
    stopping = replace(running, deleting=True, disruption="EvictionByEvictionAPI")
    ended = replace(stopping, phase=Phase.FAILED)
    recorder = _play(pod, bound, running, stopping, ended, None)
    (lifetime,) = recorder.timeline({}).lifetimes
    assert (lifetime.created_s, lifetime.bound_s, lifetime.running_s) == (1, 2, 3)
    assert (lifetime.deleting_s, lifetime.ended_s, lifetime.gone_s) == (4, 5, 6)
    assert (lifetime.node, lifetime.disruption) == ("node-000", "EvictionByEvictionAPI")
    assert lifetime.leaves_s == 4


def test_a_pod_that_vanishes_has_ended() -> None:
    """Without a terminal phase its capacity is free when it is gone."""
    running = view(Kind.SERVICE, node="node-000", phase=Phase.RUNNING)
    recorder = _play(running, None)
    (lifetime,) = recorder.timeline({}).lifetimes
    assert (lifetime.ended_s, lifetime.gone_s, lifetime.leaves_s) == (2, 2, 2)


def test_nominations_are_kept_once_each() -> None:
    """A nomination repeated by later events is the same one."""
    pod = view(Kind.SERVICE)
    first_nomination, second_nomination = (
        replace(pod, nominated="node-001"),
        replace(pod, nominated="node-002"),
    )
    recorder = _play(pod, first_nomination, replace(first_nomination, node="x"), second_nomination)
    (lifetime,) = recorder.timeline({}).lifetimes
    assert lifetime.nominations == [(2, "node-001"), (4, "node-002")]


def test_an_unknown_pod_that_vanishes_is_nothing() -> None:
    """A change from nothing to nothing leaves no trace."""
    recorder = Recorder(_Clock())
    recorder.change(None, None)
    assert recorder.timeline({}).lifetimes == ()


def test_marks_of_the_run() -> None:
    """Begin, steps and submissions carry the clock's time; plateaus follow from the steps."""
    recorder = Recorder(_Clock())
    recorder.begin()
    recorder.step(4)
    recorder.submit("job-1")
    recorder.step(2)
    recorded = recorder.timeline({"node-000": 1})
    assert (recorded.started_s, recorded.end_s) == (1, 5)
    assert recorded.submitted_s == {"job-1": 3}
    assert (recorded.plateau(0), recorded.plateau(1)) == ((2, 4), (4, 5))


def test_a_run_that_never_began_starts_where_it_ends() -> None:
    """A timeline can be taken at any time."""
    recorded = Recorder(_Clock()).timeline({})
    assert recorded.started_s == recorded.end_s


def test_the_last_plateau_ends_with_the_run() -> None:
    """Plateaus cover the run without gaps."""
    assert timeline(steps=((0, 1), (5, 2)), end_s=9).plateau(1) == (5, 9)


_STATES = st.builds(
    view,
    st.sampled_from(Kind),
    uid=st.sampled_from(["a", "b", "c"]),
    job=st.sampled_from(["job-1", "job-2"]),
    phase=st.sampled_from([Phase.PENDING, Phase.RUNNING, Phase.FAILED]),
    deleting=st.booleans(),
)


@given(st.lists(st.tuples(_STATES, st.booleans()), max_size=30))
def test_counts_are_those_of_the_pods_that_exist(changes: list[tuple[PodView, bool]]) -> None:
    """Counting along gives what counting afresh would give."""
    recorder = Recorder(_Clock())
    pods: dict[str, PodView] = {}
    for new, vanishes in changes:
        old = pods.pop(new.uid, None)
        if vanishes:
            recorder.change(old, None)
        else:
            recorder.change(old, new)
            pods[new.uid] = new
    counts = recorder.counts()
    for kind in Kind:
        of_kind = [pod for pod in pods.values() if pod.kind is kind]
        assert counts.at_work(kind) == sum(pod.at_work for pod in of_kind)
        assert counts.waiting(kind) == sum(pod.waiting for pod in of_kind)
    assert counts.cpu_millis == 5000 * sum(pod.phase is Phase.RUNNING for pod in pods.values())
    working = (pod.job for pod in pods.values() if pod.at_work and pod.kind is Kind.TRAINER)
    assert counts.trainers == Counter(working)  # Counter equality: missing is 0
