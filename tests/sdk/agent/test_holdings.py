"""Which snapshot a round starts from."""

import pytest
from edl.agent.holdings import NOTHING, choose, dump, load, needed
from edl.data.snapshot_parts import SnapshotPart
from edl.errors import RoundOver


def part(rank: int, *, step: int = 5, count: int = 2, number: int = 1) -> SnapshotPart:
    """One of a snapshot."""
    return SnapshotPart(number, step, rank, count, 10)


def test_the_newest_complete_one_is_chosen() -> None:
    """Parts may be on any agents; the first that has one gives it to the others."""
    newer = [part(0, step=6)]
    choice = choose([[part(0), *newer], [], [part(1), part(0)]])
    assert choice is not None
    assert choice.step == 5
    assert choice.owners == (0, 2)
    completed = choose([[part(0), *newer], [], [part(1), part(0), part(1, step=6)]])
    assert completed is not None
    assert completed.step == 6


def test_a_later_round_counts_more_than_a_later_step() -> None:
    """It went back to an earlier step, and what was made after that replaces what was lost."""
    choice = choose([[part(0, step=9, count=1)], [part(0, step=4, count=1, number=3)]])
    assert choice is not None
    assert (choice.step, choice.owners) == (4, (1,))


def test_there_may_be_none() -> None:
    """Nothing saved, or a part of each is lost."""
    assert choose([[], []]) is None
    assert choose([[part(0)], [part(1, step=6)]]) is None
    assert choose([[part(0, count=0)]]) is None


def test_all_start_without_where_one_can_keep_none() -> None:
    """Otherwise its processes would start from something else than the others."""
    assert choose([[part(0, count=1)], load(NOTHING)]) is None


def test_an_agent_loads_what_its_processes_need() -> None:
    """The parts of their ranks, or all where the number of processes is another."""
    choice = choose([[part(rank, count=4) for rank in range(4)]])
    assert choice is not None
    assert [p.rank for p in needed(choice, 2, 2, 4)] == [2, 3]
    assert [p.rank for p in needed(choice, 0, 2, 2)] == [0, 1, 2, 3]


def test_what_is_announced_is_read() -> None:
    """What is none of it ends the round."""
    parts = [part(0), part(1)]
    assert load(dump(parts)) == parts
    for raw in (b"", b"{}x", b"[1]", b'[{"round": 1}]', b'[{"round": "x"}]', b"3"):
        with pytest.raises(RoundOver, match="announced malformed parts"):
            load(raw)
