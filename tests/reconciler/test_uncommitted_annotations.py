"""Uncommitted seconds, annotated on trainer pods; writes end when the test runs them."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import orjson
import pytest

from kube import errors
from kube.request import Request
from policy.cluster.snapshot import Job
from policy.names import ANNOTATION_UNCOMMITTED
from reconciler.masters.reports import MasterReport, ReportedState
from reconciler.trainers.uncommitted_annotations import UncommittedAnnotator
from tests.support.builders import NOW_S, cluster_state, job, node, trainer

P = ParamSpec("P")
T = TypeVar("T")


class Held(Executor):
    """A pool whose work runs in `run`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Takes it up for later."""
        future: Future[T] = Future()
        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        """Does everything that waits."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()


class Cluster:
    """Jobs of some trainers each, what their masters say, and what was written."""

    def __init__(self, *jobs: Job, trainers: int = 3) -> None:
        self.jobs = jobs
        pods = [trainer(owner, n, "n0") for owner in jobs for n in range(trainers)]
        self.index = cluster_state([node("n0", 1000)], jobs, pods)
        self.reports: dict[str, MasterReport] = {}
        self.now_s = NOW_S
        self.pool = Held()
        self.written: list[tuple[str, str]] = []
        self.annotator = UncommittedAnnotator(self)

    def send(self, api_request: Request) -> bytes:
        """See `kube.api.Api`: keeps what is written."""
        body = orjson.loads(api_request.body)
        seconds = body["metadata"]["annotations"][ANNOTATION_UNCOMMITTED]
        self.written.append((api_request.path.rpartition("/")[2], seconds))
        return b"{}"

    def stream(self, api_request: Request) -> Any:
        """Nobody watches here."""
        raise AssertionError(api_request.line)

    def report(
        self, uncommitted: dict[int, float], leader: int | None = None, of: str = "net"
    ) -> None:
        """Sets the newest report of a job's master."""
        self.reports[f"uid-{of}"] = MasterReport(
            ReportedState.WORK, self.now_s, "", uncommitted, leader
        )

    def begin(self) -> None:
        """One tick."""
        self.annotator.write(self.jobs, self.index, self.reports, self.now_s, self.pool)

    def look(self) -> list[tuple[str, str]]:
        """One tick, and all that it writes."""
        self.begin()
        self.pool.run()
        written, self.written = self.written, []
        return written


@pytest.fixture
def cluster() -> Cluster:
    """One job of three trainers."""
    return Cluster(job("net"))


def test_all_are_looked_at_every_five_seconds(cluster: Cluster) -> None:
    """What changes in between waits."""
    cluster.report({0: 10.0})
    first = cluster.look()
    cluster.report({1: 30.0})
    cluster.now_s += 4.9
    early = cluster.look()
    cluster.now_s += 0.1

    assert first == [("net-trainer-0", "10")]
    assert early == []
    assert ("net-trainer-1", "30") in cluster.look()


@pytest.mark.parametrize(("seconds", "text"), [(4.9, ""), (5.0, "5"), (9.9, "5"), (10.0, "10")])
def test_less_than_a_step_is_not_written(seconds: float, text: str, cluster: Cluster) -> None:
    """It never decides between victims, and every write wakes every watcher of pods."""
    cluster.report({2: seconds})

    assert cluster.look() == ([("net-trainer-2", text)] if text else [])


def test_nothing_is_begun_while_older_writes_are_under_way(cluster: Cluster) -> None:
    """Nor is it lost: the first tick after them writes what was due meanwhile."""
    cluster.report({0: 10.0})
    cluster.begin()
    cluster.report({0: 10.0, 1: 20.0})
    cluster.now_s += 60.0
    cluster.begin()
    before = list(cluster.written)
    cluster.pool.run()
    first, cluster.written = cluster.written, []

    assert before == []
    assert first == [("net-trainer-0", "10")]
    assert ("net-trainer-1", "20") in cluster.look()


def test_a_leader_that_changes_while_writes_are_under_way_is_not_lost(cluster: Cluster) -> None:
    """It is written in the first tick after them, due or not."""
    cluster.report({0: 10.0}, leader=0)
    cluster.begin()
    cluster.report({1: 10.0}, leader=1)
    cluster.now_s += 1.0
    cluster.begin()
    cluster.pool.run()
    cluster.written.clear()

    assert cluster.look() == [("net-trainer-1", "10")]


def test_another_leader_is_written_between_the_turns_and_nothing_else_is(cluster: Cluster) -> None:
    """It is the dearest of its tier from now on; the others are looked at in their turn."""
    cluster.report({}, leader=0)
    cluster.look()
    cluster.report({1: 10.0, 2: 50.0}, leader=1)
    cluster.now_s += 1.0
    at_once = cluster.look()
    cluster.now_s += 1.0
    afterwards = cluster.look()

    assert at_once == [("net-trainer-1", "10")]
    assert afterwards == []


def test_the_leader_of_one_job_is_no_news_of_another() -> None:
    """Only its own two are written."""
    cluster = Cluster(job("net"), job("other"))
    cluster.report({}, leader=0)
    cluster.report({}, leader=0, of="other")
    cluster.look()
    cluster.report({1: 10.0}, leader=1)
    cluster.report({0: 40.0, 1: 10.0}, leader=0, of="other")

    assert cluster.look() == [("net-trainer-1", "10")]


def test_those_that_differ_most_come_first_and_the_rest_with_the_next_look() -> None:
    """At most a hundred writes are under way at one time."""
    cluster = Cluster(job("net", 1, 200), trainers=150)
    cluster.report({number: 10.0 + 5 * number for number in range(150)})
    written = cluster.look()

    assert len(written) == 100
    assert written[0] == ("net-trainer-149", "755")
    assert {name for name, _ in written} == {f"net-trainer-{number}" for number in range(50, 150)}


def test_how_much_a_commitment_differs_is_counted_from_what_is_written() -> None:
    """Not from nothing: one that is written already and has not changed much waits."""
    cluster = Cluster(job("net", 1, 200), trainers=101)
    first = next(pod for pod in cluster.index.pods.values() if pod.trainer_id == 0)
    cluster.index.put_pod(replace(first, uncommitted_s=1000.0))
    cluster.report({number: 1010.0 if number == 0 else 100.0 for number in range(101)})
    written = {name for name, _ in cluster.look()}

    assert written == {f"net-trainer-{number}" for number in range(1, 101)}


def test_a_job_whose_master_said_nothing_keeps_what_is_written() -> None:
    """Without a report nothing is known about its trainers."""
    cluster = Cluster(job("net"), job("other"))
    cluster.report({0: 10.0}, of="other")

    assert cluster.look() == [("other-trainer-0", "10")]


def test_a_write_that_fails_ends_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod may be deleted; the next tick finds remaining differences."""

    def refuse(api_request: Request) -> bytes:
        raise errors.NotFound("gone", status=404, request=api_request.line)

    cluster.report({0: 10.0})
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "send", refuse)
        assert cluster.look() == []
    cluster.now_s += 5.0

    assert cluster.look() == [("net-trainer-0", "10")]
