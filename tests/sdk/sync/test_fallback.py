"""How a round continues whose members lack the newest model: decisions and messages."""

from types import SimpleNamespace
from typing import Any

import pytest
from edl.errors import Refused, RoundOver, TrainingError, Unavailable
from edl.master.heartbeat import is_replaced, is_unknown_trainer
from edl.sync.fallback import Fallback, fall_back, report_rollback
from edl.sync.group_progress import GroupProgress
from edl.sync.leader import is_behind

Json = dict[str, Any]
MEMBERS = ["trainer-0", "trainer-1"]


class Site:
    """A member of rank 0 without checkpoints, and the master's status."""

    def __init__(self, *, term: int = 0, step: int = 0, **status: Any) -> None:
        self.progress: Json = {"complete": False, "term": 7, "done_records": 300}
        self.status: Json = {
            "state": "working",
            "steps": 40,
            "datasets": {"points": self.progress},
            "trainers": {name: {} for name in (*MEMBERS, "edl:group")},
            **status,
        }
        self.failed: list[str] = []
        self.late = 0
        self.rollbacks: list[tuple[tuple[Any, ...], Json]] = []
        self.error: Exception | None = None
        progress = GroupProgress()
        progress.term, progress.step, progress.records = term, step, 100
        control = SimpleNamespace(report_rollback=self._report_rollback)
        self.member: Any = SimpleNamespace(
            options=SimpleNamespace(checkpoints=None, batch_size=32),
            dataset=SimpleNamespace(name="points"),
            progress=progress,
            status=lambda: self.status,
            fail_job=self.failed.append,
            mark_late=self._come_late,
            session=SimpleNamespace(control=lambda: control),
        )

    def _come_late(self) -> None:
        self.late += 1

    def _report_rollback(self, *args: Any, **figures: Any) -> None:
        self.rollbacks.append((args, figures))
        if self.error is not None:
            raise self.error


def test_while_nothing_is_known_nothing_is_decided() -> None:
    """The master is away, or has another data set."""
    site = Site(datasets={})
    with pytest.raises(RoundOver) as caught:
        fall_back(site.member, MEMBERS)

    assert str(caught.value) == "the member with the newest model is not known"
    assert (site.failed, site.late) == ([], 0)


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (0, "all trainers were lost: continuing from step 3"),
        (2, "all other trainers were lost: continuing from step 3"),
    ],
)
def test_a_model_that_was_lost_is_gone_on_without(term: int, reason: str) -> None:
    """From this member's own state; the message distinguishes a newcomer from an earlier member."""
    assert fall_back(Site(term=term, step=3).member, MEMBERS) == Fallback(
        7, from_checkpoint=False, reason=reason
    )


@pytest.mark.parametrize("limit", [True, False])
def test_a_trained_model_that_others_have_is_theirs(*, limit: bool) -> None:
    """All data was trained, or the job had its steps, and another trainer is still there."""
    site = Site(term=2, step=3)
    site.status["trainers"]["trainer-9"] = {}
    site.status["max_steps"] = 40 if limit else None
    site.progress["complete"] = not limit
    with pytest.raises(RoundOver) as caught:
        fall_back(site.member, MEMBERS)

    assert str(caught.value) == "others have trained all data"
    assert (site.failed, site.late) == ([], 1)


def test_one_step_before_the_last_the_job_is_not_trained() -> None:
    """Another trainer that is still there changes nothing."""
    site = Site(term=2, step=3, max_steps=41)
    site.status["trainers"]["trainer-9"] = {}

    assert fall_back(site.member, MEMBERS).term == 7


def test_a_job_that_is_done_was_trained_by_others_though_they_are_gone() -> None:
    """They have done everything that follows the training."""
    site = Site(state="done")
    with pytest.raises(RoundOver):
        fall_back(site.member, MEMBERS)

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
    """The master gets the reason; the program's error adds what to do."""
    site = Site(term=term, step=step)
    site.progress["complete"] = True
    with pytest.raises(TrainingError) as caught:
        fall_back(site.member, MEMBERS)

    assert str(caught.value) == f"{text}: start the job again, with checkpoints"
    assert site.failed == [text]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [(0, [{"steps": 7, "records": 200}]), (199, [{"steps": 1, "records": 1}]), (200, [])],
)
def test_only_what_is_newly_lost_is_reported(reported: int, expected: list[Json]) -> None:
    """Acknowledged records that are not in this model, without those reported before."""
    site = Site(setbacks={"records": reported})
    report_rollback(
        site.member, Fallback(7, from_checkpoint=False, reason="all trainers were lost")
    )

    assert site.rollbacks == [
        (("term-7", "all trainers were lost"), figures) for figures in expected
    ]


def test_a_rollback_that_cannot_be_reported_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both the loss and the failure are logged."""
    site = Site()
    site.error = Unavailable("the master is away")
    report_rollback(
        site.member, Fallback(7, from_checkpoint=False, reason="all trainers were lost")
    )

    assert [record.message for record in caplog.records] == [
        "all trainers were lost; about 7 steps (200 records) are lost",
        "the lost records could not be reported to the master: the master is away",
    ]


@pytest.mark.parametrize(
    ("status", "field", "expected"),
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
    status: int, field: str, expected: tuple[bool, bool, bool]
) -> None:
    """The master forgot this trainer, another process has its name, or its model is too old."""
    error = Refused(status, "no", field)

    assert (is_unknown_trainer(error), is_replaced(error), is_behind(error)) == expected
