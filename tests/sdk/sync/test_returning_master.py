"""A leader whose master comes back: steps get smaller at the end of an epoch, and not before."""

import threading
from collections.abc import Callable
from functools import partial

from edl.data.work_fetcher import WorkFetcher
from edl.errors import EdlError, Unavailable
from edl.master.client import Client, WorkCalls, WorkRequest
from edl.master.connection import ANSWER_S
from edl.master.leases import LeaseTable, Portion
from edl.master.protocol import Lease, WorkResponse
from edl.sync.lease_queue import LeaseQueue
from edl.sync.plans import Span

from tests.sdk.support.loops import LIMIT_S
from tests.sdk.sync.leases import lease

TASK_RECORDS, STEP_RECORDS = 10, 15
"""A step needs more than the one task that is queued while the master is away."""
QUEUED, FETCHED, TRAINED = lease(0), lease(1), lease(2)
WHOLE_STEP = (Span(QUEUED, 0, 10), Span(FETCHED, 10, 5))


class ScriptedClient(Client):
    """A client whose calls for work have prepared outcomes."""

    def __init__(self, *outcomes: Callable[[], WorkResponse]) -> None:
        self._outcomes = iter(outcomes)

    def work(
        self,
        request: WorkRequest,  # noqa: ARG002 - the outcome is prepared
        answer_s: float = ANSWER_S,  # noqa: ARG002
    ) -> WorkResponse:
        """Returns or raises the next outcome."""
        return next(self._outcomes)()

    def close(self) -> None:
        """There is no connection."""


class LeaderSession:
    """The part of a session that a fetcher uses."""

    joins = 1

    def __init__(self, client: Client) -> None:
        self.lease_table = LeaseTable()
        self.work_calls = WorkCalls(self.lease_table)
        self._client = client

    def client(self) -> Client:
        """The scripted client."""
        return self._client

    def rejoin(self, joins_before: int) -> None:
        """The master knows this trainer."""
        raise AssertionError(joins_before)

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """The master requests no stop."""
        raise AssertionError(reason, error)


class LeaderQueue(LeaseQueue):
    """A queue whose leader plans a step just before and after leases are added; then it ends."""

    def __init__(self, lease_table: LeaseTable, low: int) -> None:
        super().__init__(lease_table, low, TASK_RECORDS)
        self.steps: list[tuple[Span, ...] | None] = []
        self.ended = threading.Event()

    def plan(self) -> None:
        """Plans a step of what is queued."""
        self.steps.append(self.next_step(STEP_RECORDS, 0))

    def add_leases(self, leases: tuple[Lease, ...]) -> None:
        """Adds leases between two plans."""
        self.plan()
        super().add_leases(leases)
        self.plan()
        self.end()

    def end(self, error: EdlError | None = None) -> None:
        """Ends the test."""
        super().end(error)
        self.ended.set()


class Desk:
    """A leader with one queued task, whose master is away for one call and then answers."""

    def __init__(self, low: int, *answers: WorkResponse) -> None:
        prepared = (partial(_return, answer) for answer in answers)
        session = LeaderSession(ScriptedClient(self._fail, *prepared))
        self.lease_table = session.lease_table
        self.lease_table.add(QUEUED)
        self._queue = LeaderQueue(self.lease_table, low)
        self._fetcher = WorkFetcher(session, self._queue, "points", "training")

    def steps(self) -> list[tuple[Span, ...] | None]:
        """Steps planned while the master is away, when it is back, and with its leases."""
        self._fetcher.start()
        assert self._queue.ended.wait(LIMIT_S)
        self._fetcher.close(LIMIT_S)
        return self._queue.steps

    def _fail(self) -> WorkResponse:
        self._queue.plan()
        raise Unavailable("connection refused")


def _return(answer: WorkResponse) -> WorkResponse:
    return answer


def _answer(*leases: Lease, results: tuple[str, ...] = ()) -> WorkResponse:
    return WorkResponse(results, leases, state="work", again_s=None, generation=0, safe=None)


_SETTLING = WorkResponse((), (), state="wait", again_s=0.0, generation=2, safe=None, settling=True)


def test_a_step_waits_for_the_leases_that_the_master_brings_back() -> None:
    """It has answered, but what it leased is not queued yet."""
    desk = Desk(100, _answer(FETCHED))

    assert desk.steps() == [(), (), WHOLE_STEP]


def test_a_step_waits_for_a_master_that_took_over() -> None:
    """It leases nothing before all trainers have joined it: the epoch may have more tasks."""
    desk = Desk(100, _SETTLING, _answer(FETCHED))

    assert desk.steps() == [(), (), WHOLE_STEP]


def test_the_answer_to_a_mere_report_does_not_end_an_epoch() -> None:
    """The call asked for no task: its answer does not tell whether there are more."""
    desk = Desk(TASK_RECORDS, _answer(results=("accepted",)), _answer(FETCHED))
    desk.lease_table.add(TRAINED)
    desk.lease_table.record_step([Portion(TRAINED, TRAINED.size)], {})

    assert desk.steps() == [(), (), WHOLE_STEP]
