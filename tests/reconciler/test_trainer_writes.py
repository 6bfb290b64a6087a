"""Trainers that are made and evicted, and what happens if the API server refuses."""

import threading
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from kube import decode, errors, request
from kube.request import PODS, Request
from policy.cluster.cluster_state import ClusterState
from policy.decisions import Figures
from policy.planning.plan import Release
from policy.reasons import Reason
from policy.scheduling import UNMARKED
from reconciler.controller_context import ControllerContext
from reconciler.expectations import Expectations
from reconciler.jobs.writer import JobWriter
from reconciler.masters.job_objects import JobEndpoints
from reconciler.trainers.controller import TrainerController
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, of
from tests.reconciler.waiting import LIMIT_S
from tests.reconciler.write_bench import Bench


def test_both_tiers_of_a_job_share_one_write(bench: Bench) -> None:
    """Ids in order: guaranteed first."""
    bench.make_classes()
    created = bench.make(2, 3)

    assert created == [2, 3]
    assert len([w for w in bench.api.writes if w.method == "PATCH"]) == 1
    assert [pod["metadata"]["name"] for pod in bench.api.all(PODS)] == [
        f"net-trainer-{i}" for i in range(5)
    ]


def test_surplus_is_requested_after_the_answers_for_the_minimum(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it may fill the namespace's ResourceQuota, and the minimum is refused."""
    send, sends_surplus = bench.api.send, threading.Event()
    early: list[bool] = []

    def hesitant(api_request: Request) -> bytes:
        if api_request.method == "POST":
            if b"edl-surplus" in (api_request.body or b""):
                sends_surplus.set()
            else:
                early.append(sends_surplus.wait(0.1))
        return send(api_request)

    bench.make_classes()
    monkeypatch.setattr(bench.api, "send", hesitant)

    assert bench.make(1, 3) == [1, 3]
    assert early == [False]
    assert sends_surplus.is_set()


def test_spare_ids_are_used_before_new_ones(bench: Bench) -> None:
    """A refusal burns nothing: the next tries, whatever they make, take the same ids."""
    first = bench.make(3)  # there is no PriorityClass yet
    bench.make_classes()
    coming = bench.trainers.pending_ids(bench.known)
    second, third = bench.make(1), bench.make(3)

    assert (first, second, third) == ([0], [1], [3])
    assert coming == {0, 1, 2}
    assert bench.known.accounting.next_id == 4
    assert bench.trainers.pending_ids(bench.known) == frozenset()


def test_an_eviction_that_is_refused_is_tried_again_later(bench: Bench) -> None:
    """An eviction that a budget refuses is not tried in every tick."""
    pod = bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    uid = pod["metadata"]["uid"]
    release = Release("ml/net", uid, "ml", "net-trainer-0", "n0", Reason.SERVICES_FIRST, {})
    no = errors.TooManyRequests("budget")
    bench.api.fake.faults.fail_next(no, 99, match=of("POST", "/eviction"))
    tried_s: list[int] = []
    for second in range(20):
        before = len(bench.api.writes)
        bench.trainers.evict([release])
        bench.pool.settle()
        bench.trainers.collect_evicted()
        if len(bench.api.writes) > before:
            tried_s.append(second)
        bench.clock.advance(1)

    assert tried_s == [0, 1, 3, 7, 15]


def test_a_taken_name_that_cannot_be_read_counts_as_taken(bench: Bench) -> None:
    """Whose it is will be known at the next try."""
    squatter = {"metadata": {"name": "net-trainer-0"}, "spec": {"containers": []}}
    bench.api.ask(request.create(PODS, "ml", squatter))
    priority_class = {
        "metadata": {"name": "edl-guaranteed"},
        "value": -8,
        "preemptionPolicy": "Never",
    }
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, priority_class))
    unreadable = errors.Unavailable("down")
    bench.api.fake.faults.fail_next(unreadable, 9, match=of("GET", "/net-trainer-0"))

    assert bench.make(1) == [0]
    assert bench.trainers.pending_ids(bench.known) == {0}


def test_a_spare_id_whose_pod_came_after_all_makes_way_for_a_new_one(bench: Bench) -> None:
    """Only the answer was lost: the next trainer that is wanted is made now, not a tick later."""
    priority_class = {
        "metadata": {"name": "edl-guaranteed"},
        "value": -8,
        "preemptionPolicy": "Never",
    }
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, priority_class))
    bench.api.fake.faults.lose_answers(1, match=of("POST", "/pods"))
    lost = bench.make(1)
    (pod_object,) = bench.api.all(PODS)
    bench.index.put_pod(decode.pod(pod_object))
    bench.clock.advance(1)

    assert lost == [0]
    assert bench.make(1) == [1]
    assert [pod["metadata"]["name"] for pod in bench.api.all(PODS)] == [
        "net-trainer-0",
        "net-trainer-1",
    ]


def test_a_trainer_whose_name_is_anothers_by_now_is_gone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod is deleted already; there is no warning, and it does not count as existing again."""
    first = decode.pod(bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0"))))
    bench.api.ask(request.delete(PODS, "ml", first.name, grace_s=0))
    bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    bench.index.put_pod(first)
    release = Release("ml/net", first.uid, "ml", first.name, "n0", Reason.SERVICES_FIRST, {})
    begun = bench.trainers.evict([release])
    bench.pool.settle()

    assert begun + bench.trainers.collect_evicted() == [release]
    assert bench.index.pods[first.uid].deleting
    assert len(bench.api.all(PODS)) == 1
    assert caplog.text == ""


def test_a_forgotten_job_is_neither_held_nor_coming(bench: Bench) -> None:
    """Nothing is kept of deleted jobs."""
    bench.make(1)
    bench.trainers.forget(bench.known)

    assert bench.trainers.pending_ids(bench.known) == frozenset()
    assert bench.make(1) == [0]


class Waiting(Instant):
    """An API server that takes its time over evictions."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.answering = threading.Event()

    def send(self, api_request: Request) -> bytes:
        """See `kube.api.Api`."""
        if api_request.path.endswith("/eviction"):
            self.answering.wait(LIMIT_S)
        return super().send(api_request)


@pytest.mark.parametrize("refused", [True, False])
def test_a_slow_eviction_is_not_waited_for(*, refused: bool) -> None:
    """It is started once; the trainer counts as deleting unless the answer is a refusal."""
    api = Waiting(Clock())
    pod_object = api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    if refused:
        api.fake.faults.fail_next(errors.TooManyRequests("budget"), match=of("POST", "/eviction"))
    pod = decode.pod(pod_object)
    release = Release("ml/net", pod.uid, "ml", pod.name, "n0", Reason.SERVICES_FIRST, {})
    index = ClusterState()
    index.put_pod(pod)
    with ThreadPoolExecutor(1) as pool:
        context = ControllerContext(
            api,
            index,
            Expectations(),
            pool,
            Clock().seconds,
            endpoints=lambda _: JobEndpoints("", ""),
            scheduling=lambda: UNMARKED,
        )
        trainers = TrainerController(context, JobWriter(api, index))
        first = trainers.evict([release]), index.pods[pod.uid].deleting
        second = trainers.evict([release])
        api.answering.set()
    third = trainers.collect_evicted()

    assert first == ([], True)
    assert second == []
    assert third == ([] if refused else [release])
    assert index.pods[pod.uid].deleting is not refused
    assert len([w for w in api.writes if w.path.endswith("/eviction")]) == 1


@pytest.mark.parametrize(
    ("reason", "figures", "grace_s"),
    [
        (Reason.JOB_STOPPED, {}, None),
        (Reason.MASTER_MOVES, {"new_node": "n1"}, None),
        (Reason.MASTER_MOVES, {"lost_node": "n0"}, 0),
    ],
)
def test_a_jobs_own_budget_never_stops_it(
    reason: Reason, figures: Figures, grace_s: int | None, bench: Bench
) -> None:
    """It keeps the job's minimum from others; on a lost node nobody would confirm an end."""
    pod = bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    uid = pod["metadata"]["uid"]
    release = Release("ml/net", uid, "ml", "net-trainer-0", "n0", reason, figures)
    bench.trainers.evict([release])
    bench.pool.settle()
    last = bench.api.writes[-1]

    assert (last.method, last.path.rpartition("/")[2]) == ("DELETE", "net-trainer-0")
    assert orjson.loads(last.body).get("gracePeriodSeconds") == grace_s


def test_pauses_of_long_ago_are_forgotten(bench: Bench) -> None:
    """What is kept for a pod that could not be evicted does not stay for ever."""
    backoffs = bench.trainers._backoffs  # noqa: SLF001 - that nothing piles up inside is the fact
    backoffs.begin("one", bench.clock.seconds())
    bench.clock.advance(1000)
    backoffs.begin("another", bench.clock.seconds())

    assert set(backoffs) == {"another"}
