import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import decisions
from policy.admission import job_settings
from policy.cluster import trainer_accounting
from policy.cluster.snapshot import TrainerAccounting
from tests.support.strategies import CALM


@st.composite
def _books(draw: st.DrawFn) -> TrainerAccounting:
    next_id = draw(st.integers(0, 300))
    count = st.integers(0, 10**6)
    failures = draw(st.integers(0, 20))
    return TrainerAccounting(
        next_id=next_id,
        open=frozenset(draw(st.sets(st.integers(0, next_id - 1)))) if next_id else frozenset(),
        succeeded=draw(count),
        failed=draw(count),
        disrupted=draw(count),
        released=draw(count),
        excused=draw(count),
        failures_in_row=failures,
        last_failure_s=draw(st.floats(0, 4e9)) if failures else 0.0,
        fatal=draw(st.sampled_from(["", "Container main failed"])),
    )


@CALM
@given(_books())
def test_accounting_round_trips(accounting: TrainerAccounting) -> None:
    """What is written on a Job is read as the same accounting."""
    assert trainer_accounting.parse(trainer_accounting.serialize(accounting)) == accounting


@pytest.mark.parametrize(
    ("open_count", "wanted", "ahead"),
    [(2, 48, 8), (10, 40, 10), (20, 30, 20), (40, 10, 10), (50, 0, 0), (50, -3, 0)],
)
def test_as_many_ids_are_reserved_ahead_as_are_open(
    open_count: int, wanted: int, ahead: int
) -> None:
    """At least eight, and never more than the job may still use."""
    assert trainer_accounting.ids_ahead(open_count, wanted) == ahead


def test_unused_ids_are_given_back_from_the_end() -> None:
    """The next trainer gets them; an unused id below a used one stays open until it is used."""
    accounting = TrainerAccounting(next_id=9, open=frozenset({2, 4, 5, 6, 7, 8}), failed=3)

    assert trainer_accounting.give_back(accounting, {4, 7, 8}) == TrainerAccounting(
        next_id=7, open=frozenset({2, 4, 5, 6}), failed=3
    )
    assert trainer_accounting.give_back(accounting, ()) == accounting


@CALM
@given(_books(), st.integers(0, 30), st.data())
def test_what_is_reserved_and_given_back_leaves_no_trace(
    accounting: TrainerAccounting, count: int, data: st.DataObject
) -> None:
    """Ids that were used stay open; the others are free again, and no sum changes."""
    reserved, ids = trainer_accounting.reserve(accounting, count)
    used = data.draw(st.integers(0, count))

    after = trainer_accounting.give_back(reserved, frozenset(ids[used:]))

    assert after == trainer_accounting.reserve(accounting, used)[0]


def test_books_are_short() -> None:
    """Neighbouring ids are one range, and sums of nothing are left out."""
    accounting = TrainerAccounting(next_id=9, open=frozenset({0, 1, 2, 5, 7, 8}), released=3)

    assert (
        trainer_accounting.serialize(accounting)
        == '{"version":1,"next":9,"open":"0-2,5,7-8","released":3}'
    )


@pytest.mark.parametrize(
    "text",
    [
        trainer_accounting.serialize(TrainerAccounting(next_id=3)),
        '{"next":3,"open":"2"}',
        '{"next":3, "version":1}',
        '{"next":3, "version":0}',
        '{"version":"9"}',
        '{"version":true}',
        '{"version":[9]}',
        '["version"]',
        '{"version":9',
        '{"open":"\\"version\\""}',
        "",
    ],
)
def test_this_version_and_nonsense_are_no_newer_version(text: str) -> None:
    """The text of b2315ff has no version."""
    assert not trainer_accounting.version_error(text)


def test_books_of_a_newer_version_are_named_as_such() -> None:
    """In one line that says what helps."""
    assert trainer_accounting.version_error('{"version":7,"ids":[1]}') == (
        "edl.training/books is of version 7, of a newer EDL; this EDL reads 1: "
        "install that EDL again"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        '{"next": "many"}',
        '{"next": Infinity}',
        '{"next": 5, "open": "0-x"}',
        '{"next": 5, "open": "-3"}',
        '{"next": 5, "failed": []}',
        "[" * 100_000,
        '{"next": ' + "9" * 5_000 + "}",
        '{"next": 5, "failuresInRow": 1, "lastFailure": Infinity}',
        '{"next": 5, "failuresInRow": 1, "lastFailure": NaN}',
    ],
)
def test_nonsense_gives_empty_books(text: str) -> None:
    """An annotation is a user's to edit: what cannot be read must not stop a job."""
    assert trainer_accounting.parse(text) == TrainerAccounting()


def test_impossible_values_are_mended() -> None:
    """Negative sums count as none, and ids that were never handed out are dropped."""
    text = json.dumps({"next": 3, "open": "1-1000000000000", "failed": -4, "failuresInRow": -1})

    assert trainer_accounting.parse(text) == TrainerAccounting(next_id=3, open=frozenset({1, 2}))


@pytest.mark.parametrize("name", ["next", "failed", "succeeded", "disrupted", "released"])
def test_counts_stay_within_what_a_status_can_hold(name: str) -> None:
    """The API server refuses a status above int32, and a larger integer cannot be serialised."""
    read = trainer_accounting.parse(json.dumps({name: 10**20}))

    assert (
        max(read.next_id, read.failed, read.succeeded, read.disrupted, read.released) == 2**31 - 1
    )


@pytest.mark.parametrize("seconds", [1e12, 1e300])
def test_a_failure_far_in_the_future_is_a_date_that_can_be_printed(seconds: float) -> None:
    """A tenant's edit of one annotation must not end the plan of all jobs."""
    text = json.dumps({"next": 1, "failuresInRow": 1, "lastFailure": seconds})

    assert decisions.time(trainer_accounting.parse(text).last_failure_s + 600) > "2100"


def test_long_nonsense_is_given_up_before_it_fills_the_memory() -> None:
    """Ranges for a hundred million ids: of them some hundred thousand are read, a few megabytes."""
    text = json.dumps({"next": 10**9, "open": ",".join(["0-1999999"] * 50)})
    trainer_accounting.parse(text)
    tracemalloc.start()
    try:
        accounting = trainer_accounting.parse(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert accounting == TrainerAccounting()
    assert peak_bytes < 20_000_000


def test_as_many_ids_as_a_job_can_have_are_read() -> None:
    """Twice the largest max-trainers, for those that still end; one more is nonsense."""
    most = 2 * job_settings.MAX_TRAINERS

    assert (
        len(trainer_accounting.parse(json.dumps({"next": most + 9, "open": f"0-{most - 1}"})).open)
        == most
    )
    assert (
        trainer_accounting.parse(json.dumps({"next": most + 9, "open": f"0-{most - 1},{most}"}))
        == TrainerAccounting()
    )


def test_reserved_ids_are_new_and_open() -> None:
    """Ids only grow; asking for none changes nothing."""
    accounting = TrainerAccounting(next_id=4, open=frozenset({2}))

    after, ids = trainer_accounting.reserve(accounting, 2)

    assert ids == (4, 5)
    assert after == TrainerAccounting(next_id=6, open=frozenset({2, 4, 5}))
    assert trainer_accounting.reserve(accounting, 0) == (accounting, ())
