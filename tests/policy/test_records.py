"""Records: decisions in words, and what a namespace may see of other namespaces."""

from dataclasses import replace

import pytest

from policy import records
from policy.decisions import Decision
from policy.planning.plan import JobPlan, Release
from policy.reasons import Reason
from policy.records import ELSEWHERE, Record

RELEASE = Decision(
    "pod ml/net-trainer-1",
    Reason.SERVICES_FIRST,
    {"service": "shop/web-1", "needs": {"cpu": 4000}, "node": "n0"},
    12.3456,
)


def test_a_record_says_what_the_decision_says() -> None:
    """Amounts as Kubernetes writes them; it can be written and read again."""
    record = records.of_decision(RELEASE, "ml/net", 10.0)

    assert (record.kind, record.name) == ("pod", "ml/net-trainer-1")
    assert record.text == "shop/web-1 needs 4 cpu"
    assert record.figures["needs"] == {"cpu": "4"}
    assert records.from_json(record.to_json()) == replace(record, at_s=12.346)


def test_what_is_empty_is_not_written() -> None:
    """Thousands of records are kept."""
    record = Record(5.0, "job ml/net", "AtMax", since_s=5.0)

    assert record.to_json() == {"at": 5.0, "about": "job ml/net", "code": "AtMax", "since": 5.0}
    assert records.from_json({"at": 5, "about": "job ml/net", "code": "AtMax"}) == record


@pytest.mark.parametrize("values", [{}, {"at": "x", "about": "", "code": ""}, {"at": 1}])
def test_what_is_no_record_is_refused(values: dict[str, object]) -> None:
    """By an error that the reader expects."""
    with pytest.raises((KeyError, ValueError)):
        records.from_json(values)


def test_names_of_other_namespaces_are_hidden() -> None:
    """In the figures and in the sentence; the rest stays."""
    hidden = records.for_namespace(RELEASE, "ml")

    assert hidden.figures == {**RELEASE.figures, "service": ELSEWHERE}
    assert hidden.text == f"{ELSEWHERE} needs 4 cpu"
    assert records.for_namespace(RELEASE, "shop") is RELEASE


def test_owners_read_the_reasons_of_a_plan_without_names_of_others() -> None:
    """Of a job's target and of a release; whoever may read the other namespace has the records there."""
    figures = dict(RELEASE.figures)
    job_plan = JobPlan("ml/net", 3, 2, Reason.SERVICES_FIRST, figures, 0.1)
    release = Release(
        *("ml/net", "uid", "ml", "net-trainer-1", "n0", Reason.SERVICES_FIRST, figures)
    )

    for part in (job_plan, release):
        assert part.detail == "shop/web-1 needs 4 cpu"
        assert part.detail_for_owner == f"{ELSEWHERE} needs 4 cpu"


def test_a_decision_without_names_is_left_as_it_is() -> None:
    """A figure of such a name may be a number, too."""
    decision = Decision("job ml/net", Reason.FAIR_SHARE, {"to": "ml/other", "of": 3}, 1.0)

    assert records.for_namespace(decision, "ml") is decision


def test_of_two_records_the_one_with_names_counts() -> None:
    """Whichever comes first; the result is in order of time."""
    full = records.of_decision(RELEASE, "ml/net", 10.0)
    hidden = records.of_decision(records.for_namespace(RELEASE, "ml"), "ml/net", 10.0)
    later = Record(20.0, "job ml/net", "AtMax", job="ml/net")

    assert records.merged([later, hidden, full]) == [full, later]
    assert records.merged([full, hidden, later, later]) == [full, later]


def test_newest_of_bursts_and_jobs() -> None:
    """A burst, and a job, is shown as its newest record has it; bursts in order of their beginnings."""
    history = [
        Record(3.0, "reclaim b", "Reclaiming", since_s=2.0),
        Record(4.0, "reclaim a", "Reclaiming", since_s=1.0),
        Record(
            5.0, "reclaim b", "Reclaimed", "2 services asked", {"lostSeconds": 1.5}, since_s=2.0
        ),
        Record(6.0, "job ml/a", "NoRoom", job="ml/a"),
        Record(7.0, "job ml/a", "AtMax", job="ml/a"),
        Record(8.0, "pod ml/a-trainer-1", "Preempted", job="ml/a"),
    ]
    bursts = records.newest_of_bursts(history)
    assert [(burst.name, burst.at_s) for burst in bursts] == [("a", 4.0), ("b", 5.0)]
    assert records.burst_to_json(bursts[1]) == {
        "id": "b",
        "over": True,
        "since": 2.0,
        "until": 5.0,
        "text": "2 services asked",
        "lostSeconds": 1.5,
    }
    newest = records.newest_of_jobs(history)
    assert {key: record.code for key, record in newest.items()} == {"ml/a": "AtMax"}
