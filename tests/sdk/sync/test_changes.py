"""Trainers as processes that are terminated, killed, frozen and added; masters that are killed."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.master.serving import Served
from tests.sdk.sync.crews import Crew
from tests.sdk.sync.fleets import Fleet, Member
from tests.sdk.sync.replicas import Noting, Softmax, data
from tests.sdk.sync.storms import Storm, micros_of, times_of
from tests.support.storm_size import part_of

Json = dict[str, Any]
RECORDS, BATCH = 2048, 64
STEPS_AN_EPOCH = RECORDS // BATCH
SHARES: Json = {"batch_size": BATCH, "micro_batches": 8, "shuffle_seed": 1}
OPTIONS: Json = {
    **SHARES,
    "records": RECORDS,
    "rate": 0.001,
    "pause_s": 0.1,
    "micros": True,
}
_STORM = part_of(200)
_EPOCHS = 4
_ALONE_S = 120.0
_SHOWN = 10
"""Most micro-batches in a failure's message."""
_GAP_S, _GROWTH_MB = 40.0, 10.0
"""What is longer is a hang; how fast changes are is measured by benchmarks."""


def _alone(folder: Path, epochs: int) -> dict[tuple[int, int], set[int]]:
    """The same job with one trainer without changes: the records of each micro-batch."""
    # a long heartbeat interval: no lease may end on a slow machine, repeated records add steps
    master, replica = Served(folder, heartbeat_s=_ALONE_S), Noting(Softmax())
    crew = Crew(master, dataset=data(RECORDS), epochs=epochs, **SHARES)
    assert crew.add(replica=replica).end(_ALONE_S).whole
    master.stop()
    return {(step, index): {digest} for step, index, digest in replica.noted()}


def _check_books(status: Json, ends: list[Member], epochs: int) -> None:
    """Every record was acknowledged once an epoch, and trained once by the model."""
    dataset = status["datasets"]["points"]
    assert status["state"] == "done"
    assert dataset["done_records"] == RECORDS * epochs
    assert not status["dropped"]
    lines = [member.end for member in ends if member.end is not None]
    assert len(lines) == len(ends)
    assert all(member.process.returncode == 0 for member in ends)
    assert {(line["end"], line["steps"], line["records"]) for line in lines} == {
        (True, STEPS_AN_EPOCH * epochs, RECORDS * epochs)
    }
    assert len({line["digest"] for line in lines}) == 1


def _check_order(fleet: Fleet, expected: dict[tuple[int, int], set[int]]) -> None:
    """Each micro-batch had the records that it has in a run without changes."""
    micros = micros_of(fleet.members)
    wrong = {place: seen for place, seen in micros.items() if seen != expected.get(place)}
    assert not wrong, [
        (place, seen, expected.get(place), times_of(fleet.members, place))
        for place, seen in sorted(wrong.items())[:_SHOWN]
    ]


@pytest.mark.soak  # `make test` has the same with threads: test_train, test_rendezvous_service
@pytest.mark.timeout(300)
def test_training_goes_on_when_members_and_the_master_are_killed(tmp_path: Path) -> None:
    """Rank 0 among them, once together with the master; survivors keep their processes."""
    with _fleet(tmp_path) as fleet:
        storm = _storm(fleet, spares=1)
        first, second, third = fleet.ranked()
        storm.lose(first, "kill")
        storm.grow()
        storm.lose_master(second)
        ends = storm.finish(tmp_path / "hurry")

        _check_books(fleet.status(), ends, _EPOCHS)
    assert third in ends
    _check_order(fleet, _alone(tmp_path / "alone", _EPOCHS))


@pytest.mark.soak  # `make test` has the same with threads: test_train, test_frozen
@pytest.mark.timeout(300)
def test_training_goes_on_when_members_leave_and_freeze(tmp_path: Path) -> None:
    """Rank 0 is the one that freezes; it comes back in the same process."""
    with _fleet(tmp_path) as fleet:
        storm = _storm(fleet)
        storm.lose(fleet.ranked()[-1], "term")
        frozen = fleet.ranked()[0]
        storm.lose(frozen, "stop")
        storm.thaw(frozen)
        ends = storm.finish(tmp_path / "hurry")

        _check_books(fleet.status(), ends, _EPOCHS)
    assert frozen in ends
    _check_order(fleet, _alone(tmp_path / "alone", _EPOCHS))


def _fleet(folder: Path) -> Fleet:
    hurry = str(folder / "hurry")
    return Fleet(folder, {**OPTIONS, "epochs": _EPOCHS, "hurry": hurry, "slow_after": 64})


def _storm(fleet: Fleet, spares: int = 0) -> Storm:
    """Three trainers that train together."""
    storm = Storm(fleet, 3, Random(1))  # noqa: S311 - the same in every run
    storm.begin(spares=spares)
    return storm


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("seed", "changes", "size", "epochs"), [(seed, _STORM // 2, 8, 160) for seed in (2, 3)]
)
def test_a_storm_of_changes_and_kills_leaves_the_books_exact(
    tmp_path: Path, seed: int, changes: int, size: int, epochs: int
) -> None:
    """A hundred to eight trainers, for each of two seeds: nothing hangs, nothing grows."""
    hurry = tmp_path / "hurry"
    options = {**OPTIONS, "epochs": epochs, "hurry": str(hurry)}
    with Fleet(tmp_path, options) as fleet:
        storm = Storm(fleet, size, Random(seed))  # noqa: S311 - the same in every run
        storm.begin()
        for share in (0.1, 0.5, 1.0):
            storm.blow(round(changes * share) - len(storm.changes) + 1)
            storm.measure()
        ends = storm.finish(hurry)

        _check_books(fleet.status(), ends, epochs)
    assert storm.longest_gap_s() < _GAP_S
    _check_order(fleet, _alone(tmp_path / "alone", epochs))
    _check_growth(storm.figures)


def _check_growth(figures: list[list[Json]]) -> None:
    """What two trainers used early is what they use at the end."""
    for early, _, late in zip(*figures, strict=True):
        assert late["threads"] <= early["threads"] + 2, figures
        assert late["descriptors"] <= early["descriptors"] + 4, figures
        assert late["memory_mb"] <= early["memory_mb"] + _GROWTH_MB, figures
