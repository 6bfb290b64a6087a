from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import orjson
import pytest

from kube import errors, request
from kube.request import PODDISRUPTIONBUDGETS, PRIORITYCLASSES
from policy.cluster.snapshot import Job, JobCondition, JobStatus
from policy.priority_classes import EDL_CLASSES
from reconciler.system_objects import SystemObjects
from runtime.logs import JsonFormatter
from tests.reconciler.server import Clock, Instant, of
from tests.support.builders import job

P = ParamSpec("P")
T = TypeVar("T")
JOB = job("net", 2)


class SameThread(Executor):
    """A pool whose batches have ended when they are submitted, or never begin."""

    def __init__(self, *, ends: bool = True) -> None:
        self._ends = ends
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As a pool does."""
        future: Future[T] = Future()
        self.futures.append(future)
        if self._ends:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def api() -> Instant:
    """An empty cluster."""
    return Instant(Clock())


@pytest.fixture
def system_objects(api: Instant) -> SystemObjects:
    """What provides for it."""
    return SystemObjects(api, SameThread())


def _minimums(api: Instant) -> dict[str, int]:
    budgets: list[Any] = api.all(PODDISRUPTIONBUDGETS)
    return {b["metadata"]["name"]: b["spec"]["minAvailable"] for b in budgets}


def test_makes_the_classes_and_a_budget(api: Instant, system_objects: SystemObjects) -> None:
    """With the values of the design, none of them the default of a cluster."""
    system_objects.ensure([JOB], 0.0)
    classes = {c["metadata"]["name"]: c for c in api.all(PRIORITYCLASSES)}

    assert {name: c["value"] for name, c in classes.items()} == {
        "edl-guaranteed": -8,
        "edl-support": -5,
        "edl-surplus": -1000,
        "edl-surplus-low-share": -900,
    }
    assert classes["edl-surplus"]["preemptionPolicy"] == "Never"
    assert not any(c["globalDefault"] for c in classes.values())
    assert _minimums(api) == {"net-trainers": 2}


def test_what_is_there_is_looked_at_once_a_minute(
    api: Instant, system_objects: SystemObjects
) -> None:
    """Not in every tick."""
    system_objects.ensure([JOB], 0.0)
    before = len(api.writes)
    system_objects.ensure([JOB], 59.0)

    assert len(api.writes) == before


def test_what_somebody_deleted_comes_back(api: Instant, system_objects: SystemObjects) -> None:
    """A class and a budget, within a minute."""
    system_objects.ensure([JOB], 0.0)
    api.ask(request.delete(PRIORITYCLASSES, None, "edl-surplus"))
    api.ask(request.delete(PODDISRUPTIONBUDGETS, "ml", "net-trainers"))
    system_objects.ensure([JOB], 60.0)

    assert len(api.all(PRIORITYCLASSES)) == 4
    assert _minimums(api) == {"net-trainers": 2}


def test_a_new_minimum_is_kept_at_once(api: Instant, system_objects: SystemObjects) -> None:
    """The budget follows the annotation."""
    system_objects.ensure([JOB], 0.0)
    system_objects.ensure([replace(JOB, min_trainers=5)], 1.0)

    assert _minimums(api) == {"net-trainers": 5}


def test_a_budget_waits_for_no_trainers_that_the_queue_does_not_cover(
    api: Instant, system_objects: SystemObjects
) -> None:
    """They stay surplus, and drains of the job's nodes would wait for them for ever."""
    raised = replace(JOB, min_trainers=9)
    system_objects.ensure([raised], 0.0)
    system_objects.ensure([raised], 1.0, {JOB.key: 6})

    assert _minimums(api) == {"net-trainers": 3}


@pytest.mark.parametrize("failing", ["/priorityclasses", "/poddisruptionbudgets"])
def test_a_failure_is_tried_again_soon(
    api: Instant, system_objects: SystemObjects, failing: str
) -> None:
    """Without its class no trainer can be made; but not in every tick either."""
    api.fake.faults.fail_next(errors.Unavailable("down"), 3, match=of("POST", failing))
    system_objects.ensure([JOB], 0.0)
    first = len(api.all(PRIORITYCLASSES)), len(_minimums(api))
    before = len(api.writes)
    system_objects.ensure([JOB], 4.0)
    writes = len(api.writes) - before
    system_objects.ensure([JOB], 5.0)
    system_objects.ensure([JOB], 10.0)
    system_objects.ensure([JOB], 15.0)

    assert first != (4, 1)
    assert writes == 0
    assert (len(api.all(PRIORITYCLASSES)), len(_minimums(api))) == (4, 1)


def test_a_budget_that_cannot_be_mended_is_tried_again(
    api: Instant, system_objects: SystemObjects, caplog: pytest.LogCaptureFixture
) -> None:
    """The new minimum holds a little later."""
    system_objects.ensure([JOB], 0.0)
    api.fake.faults.fail_next(errors.Unavailable("down"), match=of("PATCH", "/net-trainers"))
    higher = replace(JOB, min_trainers=5)
    system_objects.ensure([higher], 1.0)
    first, before = _minimums(api), len(api.writes)
    system_objects.ensure([higher], 5.9)
    early = len(api.writes) - before
    system_objects.ensure([higher], 6.0)

    assert first == {"net-trainers": 2}
    assert early == 0
    assert _minimums(api) == {"net-trainers": 5}
    assert "could not create or update PodDisruptionBudget" in caplog.text


def test_a_budget_that_was_mended_is_looked_at_once_a_minute(
    api: Instant, system_objects: SystemObjects
) -> None:
    """Like one that was made."""
    system_objects.ensure([JOB], 0.0)
    system_objects.ensure([replace(JOB, min_trainers=5)], 61.0)
    before = len(api.writes)
    system_objects.ensure([replace(JOB, min_trainers=5)], 120.0)

    assert len(api.writes) == before


def test_a_class_of_another_value_is_reported(
    api: Instant, system_objects: SystemObjects, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be changed, only deleted; the log reports that, once a minute."""
    body = {"metadata": {"name": "edl-surplus"}, "value": 5}
    api.ask(request.create(PRIORITYCLASSES, None, body))
    system_objects.ensure([], 0.0)
    system_objects.ensure([], 30.0)
    [line] = [JsonFormatter("reconciler").format(record) for record in caplog.records]
    message = "priority class differs: delete it, and EDL creates it again"
    keys = {"name": "edl-surplus", "value": 5, "wanted": EDL_CLASSES["edl-surplus"].value}

    assert orjson.loads(line).items() >= {"message": message, **keys}.items()


def test_a_class_that_cannot_be_read_is_taken_as_good(
    api: Instant, system_objects: SystemObjects, caplog: pytest.LogCaptureFixture
) -> None:
    """It exists, which is what pods need."""
    system_objects.ensure([], 0.0)
    api.fake.faults.fail_next(errors.Unavailable("down"), match=of("GET", "/edl-surplus"))
    system_objects.ensure([], 60.0)

    assert [r.message for r in caplog.records] == ["could not read priority class"]


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, managed=False),
        replace(JOB, deleting=True),
        replace(JOB, error="no"),
        replace(JOB, status=JobStatus(conditions=(JobCondition("Complete", "True"),))),
    ],
)
def test_only_jobs_that_are_ours_and_go_on_get_a_budget(
    api: Instant, system_objects: SystemObjects, other: Job
) -> None:
    """The others have nothing to protect."""
    system_objects.ensure([other], 0.0)

    assert _minimums(api) == {}


def test_a_job_of_the_same_name_gets_a_budget_of_its_own(
    api: Instant, system_objects: SystemObjects
) -> None:
    """The old one's is left alone; it goes when garbage is collected."""
    system_objects.ensure([JOB], 0.0)
    system_objects.forget(JOB)
    again = replace(JOB, uid="uid-again", min_trainers=3)
    (event,) = system_objects.ensure([again], 1.0)
    first = _minimums(api)
    api.ask(request.delete(PODDISRUPTIONBUDGETS, "ml", "net-trainers"))

    assert (event.reason, event.warning) == ("BudgetNotProvided", True)
    assert first == {"net-trainers": 2}
    assert system_objects.ensure([again], 6.0) == []
    assert _minimums(api) == {"net-trainers": 3}


def test_a_budget_of_somebody_else_is_left_alone(
    api: Instant, system_objects: SystemObjects
) -> None:
    """It protects a service; the Job's event says that it has none, and what to do."""
    spec = {"selector": {"matchLabels": {"app": "mine"}}, "minAvailable": 9}
    body = {"metadata": {"name": "net-trainers"}, "spec": spec}
    api.ask(request.create(PODDISRUPTIONBUDGETS, "ml", body))

    (event,) = system_objects.ensure([JOB], 0.0)

    assert "PodDisruptionBudget net-trainers does not belong to this Job" in event.message
    assert _minimums(api) == {"net-trainers": 9}


def test_the_plan_does_not_wait_for_budgets(api: Instant) -> None:
    """However slow the API server is, and however many jobs there are: one thread checks them."""
    pool = SameThread(ends=False)
    system_objects = SystemObjects(api, pool)
    jobs = [replace(JOB, uid=f"uid-{number}") for number in range(300)]
    for second in range(3):
        assert system_objects.ensure(jobs, float(second)) == []

    assert len(pool.futures) == 1
    assert [w.path for w in api.writes if "poddisruptionbudgets" in w.path] == []


def test_the_plan_does_not_wait_for_classes_that_exist(api: Instant) -> None:
    """They are looked at once a minute; a slow API server delays that, and nothing else."""
    pool = SameThread(ends=False)
    system_objects = SystemObjects(api, pool)
    system_objects.ensure([], 0.0)
    before = len(api.writes)
    for second in (60.0, 61.0, 200.0):
        assert system_objects.ensure([], second) == []

    assert len(pool.futures) == 1
    assert api.writes[before:] == []


def test_budgets_are_checked_in_batches(api: Instant, system_objects: SystemObjects) -> None:
    """A new job does not wait behind those whose budget is known."""
    jobs = [replace(JOB, name=f"net-{number}", uid=f"uid-{number}") for number in range(150)]
    system_objects.ensure(jobs, 0.0)
    first = len(_minimums(api))
    system_objects.ensure(jobs, 1.0)
    new = replace(JOB, name="new", uid="uid-new")
    system_objects.ensure([*jobs, new], 61.0)

    assert (first, len(_minimums(api))) == (100, 151)


def test_a_budget_that_is_known_is_only_read(api: Instant, system_objects: SystemObjects) -> None:
    """One request a minute and job."""
    system_objects.ensure([JOB], 0.0)
    before = len(api.writes)
    system_objects.ensure([JOB], 60.0)

    assert [w for w in api.writes[before:] if "poddisruptionbudgets" in w.path] == []


def test_a_budget_that_goes_while_it_is_looked_at_is_made_soon(
    api: Instant, system_objects: SystemObjects
) -> None:
    """Between the refused creation and the read."""
    exists = errors.AlreadyExists("exists", status=409, reason="AlreadyExists")
    api.fake.faults.fail_next(exists, match=of("POST", "/poddisruptionbudgets"))
    (event,) = system_objects.ensure([JOB], 0.0)
    system_objects.ensure([JOB], 5.0)

    assert event.reason == "BudgetNotProvided"
    assert _minimums(api) == {"net-trainers": 2}


def test_a_job_that_is_deleted_while_its_budget_is_checked_is_forgotten(api: Instant) -> None:
    """What the batch says of it comes too late."""
    pool = SameThread(ends=False)
    system_objects = SystemObjects(api, pool)
    system_objects.ensure([JOB], 0.0)
    system_objects.forget(JOB)
    pool.futures[0].set_result([(JOB, "no")])

    assert system_objects.ensure([], 1.0) == []
    assert system_objects._due_s == {}  # noqa: SLF001 - that nothing piles up inside is the fact
