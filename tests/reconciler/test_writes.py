"""Writes to Jobs and pods, one at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import orjson
import pytest

from kube import decode, errors, request
from kube.live import Change
from kube.request import JOBS, PODS, Request
from policy import books
from policy.decisions import Figures
from policy.index import Index
from policy.names import ANNOTATION_BOOKS, Tier
from policy.planning import Release
from policy.reasons import Reason
from policy.snapshot import Books, Job
from reconciler.actions import MakeTrainers
from reconciler.expectations import Expectations
from reconciler.jobs import JobWriter, Report
from reconciler.provider import Provision
from reconciler.trainers import Trainers
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, of
from tests.reconciler.waiting import LIMIT_S, Writers

OPENED, IDS = books.reserve(Books(), 2)


class Bench:
    """One Job, and what writes to it."""

    def __init__(self, pool: Writers) -> None:
        self.pool = pool
        self.clock = Clock()
        self.api = Instant(self.clock)
        self.index = Index()
        self.api.ask(request.create(JOBS, "ml", objects.job("net")))
        self.index.put_job(self.job())
        self.writer = JobWriter(self.api, self.index)
        self.trainers = Trainers(
            self.api,
            self.index,
            expectations=Expectations(),
            writer=self.writer,
            pool=pool,
            clock_s=self.clock.seconds,
            provided=lambda _: Provision("", ""),
        )

    def job(self) -> Job:
        """The Job on the API server."""
        found = decode.job(self.api.ask(request.get(JOBS, "ml", "net")))
        assert found is not None
        return found

    @property
    def known(self) -> Job:
        """The Job in the index."""
        return self.index.jobs["ml/net"]

    def make(self, *counts: int) -> list[int]:
        """Makes guaranteed and surplus trainers; how many there were of each."""
        actions = [
            MakeTrainers("ml/net", tier, ("n0",) * count, Reason.SURPLUS)
            for tier, count in zip((Tier.GUARANTEED, Tier.SURPLUS), counts, strict=False)
        ]
        return [outcome.made for outcome in self.trainers.make(actions, 10)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Everything on the caller's time."""
    with Writers(2) as pool:
        yield Bench(pool)


def test_books_are_written_and_read_back(bench: Bench) -> None:
    """The index has the answer at once, text and version included."""
    assert bench.writer.write_books([(bench.known, OPENED)], bench.pool) == [True]
    assert bench.known == bench.job()
    assert bench.known.books == OPENED


@pytest.mark.parametrize("first", [True, False])
def test_books_are_not_written_over_others(bench: Bench, *, first: bool) -> None:
    """Whether they are the first or not: who decided on older ones decided on nothing."""
    if not first:
        bench.writer.write_books([(bench.known, OPENED)], bench.pool)
    before = bench.known
    other = {"metadata": {"annotations": {ANNOTATION_BOOKS: '{"next":9,"open":"8"}'}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", other))
    written = bench.writer.write_books([(before, books.reserve(before.books, 1)[0])], bench.pool)

    assert written == [False]
    assert bench.job().books.next_id == 9


def test_a_report_is_one_write(bench: Bench) -> None:
    """Status and books go together, so that no reader sees one without the other."""
    wanted = replace(bench.known.status, active=2, start_s=1.0)
    report = Report(bench.known, wanted, books.show(OPENED))
    written = bench.writer.write_reports([report], bench.pool)

    assert written == [True]
    assert len(bench.api.writes) == 1
    assert (bench.job().status.active, bench.job().books) == (2, OPENED)


def test_a_report_on_an_older_job_is_not_written(bench: Bench) -> None:
    """The next round makes it from what is there then."""
    report = Report(bench.known, bench.known.status, books.show(OPENED))
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", {"metadata": {"labels": {"a": "b"}}}))

    assert bench.writer.write_reports([report], bench.pool) == [False]


def test_an_older_record_never_replaces_our_newest_write(bench: Bench) -> None:
    """The watch may be behind; once it has caught up, it is right again."""
    old = bench.known
    bench.writer.write_books([(old, OPENED)], bench.pool)
    newest = bench.known
    bench.index.put_job(old)
    bench.writer.settle({old.uid: Change(None, old)})
    behind = bench.known
    bench.index.put_job(newest)
    bench.writer.settle({old.uid: Change(old, newest)})

    assert behind == newest == bench.known


def test_a_job_that_is_gone_is_forgotten(bench: Bench) -> None:
    """Our newest write does not bring it back."""
    bench.writer.write_books([(bench.known, OPENED)], bench.pool)
    gone = bench.known
    bench.index.drop_job(gone.key)
    bench.writer.settle({gone.uid: Change(gone, None)})
    bench.writer.settle({gone.uid: Change(None, replace(gone, resource_version="1"))})

    assert bench.index.jobs == {}


def test_a_version_that_is_no_number_counts_as_old(bench: Bench) -> None:
    """Versions are opaque by contract; our own write is kept then."""
    bench.writer.write_books([(bench.known, OPENED)], bench.pool)
    newest = bench.known
    bench.writer.settle({newest.uid: Change(None, replace(newest, resource_version="x"))})

    assert bench.known == newest


def test_a_job_that_stopped_being_elastic_is_not_entered(bench: Bench) -> None:
    """Its annotations were taken away while we wrote."""
    gone = {"metadata": {"annotations": {"edl.training/min-trainers": None}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", gone))
    gone = {"metadata": {"annotations": {"edl.training/max-trainers": None}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", gone))

    assert not bench.writer.write_parallelism(bench.known, 3)


def test_parallelism_is_written_to_this_very_job(bench: Bench) -> None:
    """Not to one made again under its name."""
    other = replace(bench.known, uid="another")

    assert bench.writer.write_parallelism(bench.known, 3)
    assert not bench.writer.write_parallelism(other, 4)
    assert bench.job().parallelism == 3


def test_both_tiers_of_a_job_share_one_write(bench: Bench) -> None:
    """Ids in order: guaranteed first."""
    for body in ("edl-guaranteed", "edl-surplus"):
        found = {"metadata": {"name": body}, "value": -8, "preemptionPolicy": "Never"}
        bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    made = bench.make(2, 3)

    assert made == [2, 3]
    assert len([w for w in bench.api.writes if w.method == "PATCH"]) == 1
    assert [pod["metadata"]["name"] for pod in bench.api.all(PODS)] == [
        f"net-trainer-{i}" for i in range(5)
    ]


def test_spare_ids_are_used_before_new_ones(bench: Bench) -> None:
    """A refusal burns nothing: the next tries, whatever they make, take the same ids."""
    first = bench.make(3)  # there is no PriorityClass yet
    for name in ("edl-guaranteed", "edl-surplus"):
        found = {"metadata": {"name": name}, "value": -8, "preemptionPolicy": "Never"}
        bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    held = bench.make(1)
    bench.clock.advance(1)
    coming = bench.trainers.coming(bench.known)
    second, third = bench.make(1), bench.make(3)

    assert (first, held, second, third) == ([0], [], [1], [3])
    assert coming == {0, 1, 2}
    assert bench.known.books.next_id == 4
    assert bench.trainers.coming(bench.known) == frozenset()


def test_a_job_is_held_back_once_for_both_tiers(bench: Bench) -> None:
    """The pause after a first refusal is a second, not two."""
    bench.make(1, 1)
    bench.clock.advance(1)

    assert bench.make(1, 1) == [0, 0]


def test_a_job_that_is_refused_again_and_again_is_tried_later_and_later(bench: Bench) -> None:
    """Each pause is twice the one before, and a minute at most; nothing is asked in between."""
    tried_s: list[int] = []
    for second in range(190):
        if bench.make(1):
            tried_s.append(second)
        bench.clock.advance(1)

    assert tried_s == [0, 1, 3, 7, 15, 31, 63, 123, 183]


def test_success_ends_the_pauses_of_a_job(bench: Bench) -> None:
    """The next refusal is a first one again."""
    created = of("POST", "/namespaces/ml/pods")
    found = {"metadata": {"name": "edl-guaranteed"}, "value": -8, "preemptionPolicy": "Never"}
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    refused = errors.Forbidden("no", status=403)
    made: list[list[int]] = []
    for fails, pause_s in ((True, 1), (True, 2), (False, 0), (True, 1), (False, 0)):
        if fails:
            bench.api.fake.faults.fail_next(refused, match=created)
        made.append(bench.make(1))
        bench.clock.advance(pause_s)

    assert made == [[0], [0], [1], [0], [1]]


def test_an_eviction_that_is_refused_is_tried_again_later(bench: Bench) -> None:
    """A budget that says no is not asked in every round."""
    made = bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    uid = made["metadata"]["uid"]
    release = Release("ml/net", uid, "ml", "net-trainer-0", "n0", Reason.SERVICES_FIRST, {})
    no = errors.TooManyRequests("budget")
    bench.api.fake.faults.fail_next(no, 99, match=of("POST", "/eviction"))
    tried_s: list[int] = []
    for second in range(20):
        before = len(bench.api.writes)
        bench.trainers.let_go([release])
        bench.pool.settle()
        bench.trainers.collect()
        if len(bench.api.writes) > before:
            tried_s.append(second)
        bench.clock.advance(1)

    assert tried_s == [0, 1, 3, 7, 15]


def test_success_of_one_tier_does_not_end_the_pause_of_the_other(bench: Bench) -> None:
    """Else a job whose class is missing would ask again in every round."""
    found = {"metadata": {"name": "edl-surplus"}, "value": -8, "preemptionPolicy": "Never"}
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    made = bench.make(1, 1)

    assert made == [0, 1]
    assert bench.make(1, 1) == []


def test_a_taken_name_that_cannot_be_read_counts_as_taken(bench: Bench) -> None:
    """Whose it is will be known at the next try."""
    squatter = {"metadata": {"name": "net-trainer-0"}, "spec": {"containers": []}}
    bench.api.ask(request.create(PODS, "ml", squatter))
    found = {"metadata": {"name": "edl-guaranteed"}, "value": -8, "preemptionPolicy": "Never"}
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    unreadable = errors.Unavailable("down")
    bench.api.fake.faults.fail_next(unreadable, 9, match=of("GET", "/net-trainer-0"))

    assert bench.make(1) == [0]
    assert bench.trainers.coming(bench.known) == {0}


def test_a_spare_id_whose_pod_came_after_all_makes_way_for_a_new_one(bench: Bench) -> None:
    """Only the answer was lost: the next trainer that is wanted is made now, not a round later."""
    found = {"metadata": {"name": "edl-guaranteed"}, "value": -8, "preemptionPolicy": "Never"}
    bench.api.ask(request.create(request.PRIORITYCLASSES, None, found))
    bench.api.fake.faults.lose_answers(1, match=of("POST", "/pods"))
    lost = bench.make(1)
    (there,) = bench.api.all(PODS)
    bench.index.put_pod(decode.pod(there))
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
    """The pod that was to go has gone; nobody is warned, and it does not count as there again."""
    first = decode.pod(bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0"))))
    bench.api.ask(request.delete(PODS, "ml", first.name, grace_s=0))
    bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    bench.index.put_pod(first)
    release = Release("ml/net", first.uid, "ml", first.name, "n0", Reason.SERVICES_FIRST, {})
    begun = bench.trainers.let_go([release])
    bench.pool.settle()

    assert begun + bench.trainers.collect() == [release]
    assert bench.index.pods[first.uid].deleting
    assert len(bench.api.all(PODS)) == 1
    assert caplog.text == ""


def test_a_forgotten_job_is_neither_held_nor_coming(bench: Bench) -> None:
    """Nothing is kept of jobs that are gone."""
    bench.make(1)
    bench.trainers.forget(bench.known.uid)

    assert bench.trainers.coming(bench.known) == frozenset()
    assert bench.make(1) == [0]


class Waiting(Instant):
    """An API server that takes its time over evictions."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.answering = threading.Event()

    def send(self, asked: Request) -> bytes:
        """See `kube.client.Api`."""
        if asked.path.endswith("/eviction"):
            self.answering.wait(LIMIT_S)
        return super().send(asked)


@pytest.mark.parametrize("refused", [True, False])
def test_a_slow_eviction_is_not_waited_for(*, refused: bool) -> None:
    """It is begun once; the trainer counts as leaving until the answer says otherwise."""
    api = Waiting(Clock())
    made = api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    if refused:
        api.fake.faults.fail_next(errors.TooManyRequests("budget"), match=of("POST", "/eviction"))
    pod = decode.pod(made)
    release = Release("ml/net", pod.uid, "ml", pod.name, "n0", Reason.SERVICES_FIRST, {})
    index = Index()
    index.put_pod(pod)
    with ThreadPoolExecutor(1) as pool:
        trainers = Trainers(
            api,
            index,
            expectations=Expectations(),
            writer=JobWriter(api, index),
            pool=pool,
            clock_s=Clock().seconds,
            provided=lambda _: Provision("", ""),
        )
        first = trainers.let_go([release]), index.pods[pod.uid].deleting
        second = trainers.let_go([release])
        api.answering.set()
    third = trainers.collect()

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
    made = bench.api.ask(request.create(PODS, "ml", objects.trainer("net", 0, "n0")))
    uid = made["metadata"]["uid"]
    release = Release("ml/net", uid, "ml", "net-trainer-0", "n0", reason, figures)
    bench.trainers.let_go([release])
    bench.pool.settle()
    last = bench.api.writes[-1]

    assert (last.method, last.path.rpartition("/")[2]) == ("DELETE", "net-trainer-0")
    assert orjson.loads(last.body).get("gracePeriodSeconds") == grace_s


def test_pauses_of_long_ago_are_forgotten(bench: Bench) -> None:
    """What is kept for a pod that could not be evicted does not stay for ever."""
    bench.make(1)
    bench.clock.advance(1000)
    bench.trainers._hold("another")  # noqa: SLF001 - that nothing piles up inside is the fact

    assert set(bench.trainers._holds) == {"another"}  # noqa: SLF001 - see above
