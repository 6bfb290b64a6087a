"""A member that breaks a round off once a later one is there: nobody waits for it in the earlier one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl import Settings
from edl.master.rendezvous import Rendezvous

from master import rendezvous as master_rendezvous
from master.round import WINDOW_S
from tests.master.crowd import meet
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import LIMIT_S, until


def _second_round() -> master_rendezvous.Rendezvous:
    """C has left, a and b train on in round 1, and round 2 is there for both."""
    master = master_rendezvous.Rendezvous(0.0)
    for name in "abc":
        master.call(meet(name), 0.0)
    master.tick(WINDOW_S)
    for name in "abc":
        master.call(meet(name, seen=1, at=1, ready=True, known=True), 1.0)
    master.leave("c", "c-1", 1.5)
    master.tick(2.0)
    assert (master.round.number, master.void) == (2, 0)
    return master


def test_a_call_that_waits_learns_of_it() -> None:
    """Once; who does not say what it knows is not called again and again."""
    master = _second_round()
    waiting = meet("b", seen=2, at=1, ready=True, known=True, void=0)
    master.call(waiting, 2.1)
    assert not master.has_answer(waiting)
    news = master.news
    master.call(meet("a", seen=2, at=2, known=True, void=1), 2.2)

    assert master.news != news
    assert master.has_answer(waiting)
    assert master.answer(waiting)["void"] == 1
    assert not master.has_answer(meet("b", seen=2, at=1, ready=True, known=True, void=1))
    assert not master.has_answer(meet("b", seen=2, at=1, ready=True, known=True))


@pytest.mark.parametrize("void", [2, 3])
def test_the_newest_round_is_not_broken_by_it(void: int) -> None:
    """For that a member says that it is broken, and the others are probed."""
    master = _second_round()
    master.call(meet("a", seen=2, at=2, known=True, void=void), 2.2)

    assert master.void == 0


@pytest.fixture
def formed(tmp_path: Path) -> Iterator[tuple[list[Rendezvous], int]]:
    """Three members of the SDK, and the number of the round that they are in."""
    served = Served(tmp_path / "journal", heartbeat_s=5.0)
    members = []
    for name in "abc":
        settings = Settings(f"http://127.0.0.1:{served.port}", TOKEN, name, patience_s=LIMIT_S)
        members.append(Rendezvous(settings, f"{name}-1", f"{name}:1"))
        members[-1].start()
    rounds = [member.next(0) for member in members]
    while {round_.number for round_ in rounds} != {rounds[0].number} or rounds[0].world_size < 3:
        newest = max(round_.number for round_ in rounds)
        rounds = [member.next(newest - (rounds[0].world_size == 3)) for member in members]
    for member in members:
        member.ready(rounds[0].number)
    until(lambda: served.service.status()["rendezvous"]["formed"])
    yield members, rounds[0].number
    for member in members:
        member.close()
    served.stop()


def test_an_exchange_in_the_earlier_round_ends(formed: tuple[list[Rendezvous], int]) -> None:
    """The connections of an abandoned process group may stay open: its sums would wait for a minute."""
    (staying, breaking, leaving), number = formed
    is_void = threading.Event()
    staying.on_void(is_void.set)
    leaving.leave(LIMIT_S)
    until(lambda: breaking.newer(number) and staying.newer(number))
    assert not is_void.is_set()
    later = breaking.next(number, broken=True)

    assert later.number > number
    assert is_void.wait(LIMIT_S)
