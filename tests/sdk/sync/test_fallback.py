"""Where a round goes on whose members lack the newest model: what is decided, and what is said."""

from types import SimpleNamespace
from typing import Any

import pytest
from edl.errors import Refused, RoundOver, TrainingError, Unavailable
from edl.heart import lost_books, replaced
from edl.sync.course import Course
from edl.sync.fallback import Fallback, fall_back, tell_setback
from edl.sync.leader import behind

Json = dict[str, Any]
MEMBERS = ["trainer-0", "trainer-1"]


class Site:
    """A member of rank 0 without checkpoints, and what the master says."""

    def __init__(self, *, term: int = 0, step: int = 0, **status: Any) -> None:
        self.progress: Json = {"complete": False, "term": 7, "done_records": 300}
        self.told: Json = {
            "state": "working",
            "steps": 40,
            "datasets": {"points": self.progress},
            "trainers": {name: {} for name in (*MEMBERS, "edl:group")},
            **status,
        }
        self.failed: list[str] = []
        self.late = 0
        self.setbacks: list[tuple[tuple[Any, ...], Json]] = []
        self.error: Exception | None = None
        course = Course()
        course.term, course.step, course.records = term, step, 100
        control = SimpleNamespace(setback=self._setback)
        self.engine: Any = SimpleNamespace(
            options=SimpleNamespace(checkpoints=None, batch_size=32),
            dataset=SimpleNamespace(name="points"),
            course=course,
            status=lambda: self.told,
            fail=self.failed.append,
            come_late=self._come_late,
            member=SimpleNamespace(control=lambda: control),
        )

    def _come_late(self) -> None:
        self.late += 1

    def _setback(self, *args: Any, **more: Any) -> None:
        self.setbacks.append((args, more))
        if self.error is not None:
            raise self.error


def test_while_nothing_is_known_nothing_is_decided() -> None:
    """The master is away, or has another data set."""
    site = Site(datasets={})
    with pytest.raises(RoundOver) as caught:
        fall_back(site.engine, MEMBERS)

    assert str(caught.value) == "who has the newest model is not known"
    assert (site.failed, site.late) == ([], 0)


@pytest.mark.parametrize(
    ("term", "why"),
    [
        (0, "all trainers were lost: going on from step 3"),
        (2, "all other trainers were lost: going on from step 3"),
    ],
)
def test_a_model_that_was_lost_is_gone_on_without(term: int, why: str) -> None:
    """From what this member has; whoever was in the job before is told apart from a newcomer."""
    assert fall_back(Site(term=term, step=3).engine, MEMBERS) == Fallback(7, moved=False, why=why)


@pytest.mark.parametrize("limit", [True, False])
def test_a_trained_model_that_others_have_is_theirs(*, limit: bool) -> None:
    """All data was trained, or the job had its steps, and somebody else is there still."""
    site = Site(term=2, step=3)
    site.told["trainers"]["trainer-9"] = {}
    site.told["max_steps"] = 40 if limit else None
    site.progress["complete"] = not limit
    with pytest.raises(RoundOver) as caught:
        fall_back(site.engine, MEMBERS)

    assert str(caught.value) == "others have trained all data"
    assert (site.failed, site.late) == ([], 1)


def test_one_step_before_the_last_the_job_is_not_trained() -> None:
    """Somebody else who is there changes nothing."""
    site = Site(term=2, step=3, max_steps=41)
    site.told["trainers"]["trainer-9"] = {}

    assert fall_back(site.engine, MEMBERS).term == 7


def test_a_job_that_is_done_was_trained_by_others_though_they_are_gone() -> None:
    """They have done all that comes after it."""
    site = Site(state="done")
    with pytest.raises(RoundOver):
        fall_back(site.engine, MEMBERS)

    assert site.late == 1


@pytest.mark.parametrize(
    ("term", "step", "text"),
    [
        (0, 0, "the trained model was lost with all trainers, and there is no checkpoint"),
        (
            2,
            3,
            (
                "the trained model was lost with all other trainers, and there is no checkpoint "
                "that is newer than step 3, which this one has"
            ),
        ),
    ],
)
def test_a_trained_model_that_nobody_has_fails_the_job(term: int, step: int, text: str) -> None:
    """The master hears why; the program hears what to do, too."""
    site = Site(term=term, step=step)
    site.progress["complete"] = True
    with pytest.raises(TrainingError) as caught:
        fall_back(site.engine, MEMBERS)

    assert str(caught.value) == f"{text}: start the job again, with checkpoints"
    assert site.failed == [text]


@pytest.mark.parametrize(
    ("known", "told"),
    [(0, [{"steps": 7, "records": 200}]), (199, [{"steps": 1, "records": 1}]), (200, [])],
)
def test_only_what_is_newly_lost_is_told(known: int, told: list[Json]) -> None:
    """Records that were acknowledged and are not in this model, without those of the last time."""
    site = Site(setbacks={"records": known})
    tell_setback(site.engine, Fallback(7, moved=False, why="all trainers were lost"))

    assert site.setbacks == [(("term-7", "all trainers were lost"), one) for one in told]


def test_a_setback_of_which_the_master_does_not_hear_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both are in the log."""
    site = Site()
    site.error = Unavailable("the master is away")
    tell_setback(site.engine, Fallback(7, moved=False, why="all trainers were lost"))

    assert [one.message for one in caplog.records] == [
        "all trainers were lost; about 7 steps (200 records) are lost",
        "the master did not hear of what was lost: the master is away",
    ]


@pytest.mark.parametrize(
    ("status", "field", "found"),
    [
        (404, "trainer", (True, False, False)),
        (409, "incarnation", (False, True, False)),
        (409, "term", (False, False, True)),
        (409, "trainer", (False, False, False)),
        (404, "incarnation", (False, False, False)),
        (404, "term", (False, False, False)),
    ],
)
def test_three_refusals_are_told_apart(
    status: int, field: str, found: tuple[bool, bool, bool]
) -> None:
    """The master forgot this trainer, another process has its name, its model is too old."""
    error = Refused(status, "no", field)

    assert (lost_books(error), replaced(error), behind(error)) == found
