"""The member's side of the rendezvous: rounds, reports, and callbacks at once."""

import threading

import pytest
from edl import clock
from edl.master.protocol import Round
from edl.master.rounds import BreakCalls

from tests.sdk.conftest import Start
from tests.sdk.master.members import PATH, begin, member_bodies, probe, together
from tests.sdk.support.loops import LIMIT_S, until
from tests.sdk.support.master_server import Server


def test_the_first_round_is_this_member_alone(start: Start) -> None:
    """With its address, at rank 0."""
    entered = start("a").next(0)

    assert (entered.number, entered.rank, entered.world_size) == (1, 0, 1)
    assert entered.members[0].address == "a:1"


def test_ranks_follow_from_the_place_in_the_round(server: Server, start: Start) -> None:
    """The oldest is 0."""
    member, peer = start("a"), start("b")
    number = together(server, member, peer)
    names = [seat["trainer"] for seat in server.master.rendezvous.slots]

    assert server.master.rendezvous.round == number
    assert sorted(names) == ["a", "b"]
    assert not member.newer(number)
    assert member.newer(number - 1)


def test_next_waits_for_a_round_with_this_member(server: Server, start: Start) -> None:
    """A newcomer has no place in the one that is there, nor in one that is forming."""
    old = start("a")
    number = old.next(0).number
    late = start("b")
    until(lambda: late.newer(0))
    entered: list[Round] = []
    waiting = threading.Thread(target=lambda: entered.append(late.next(0)))
    waiting.start()
    # it has no place in the round
    until(lambda: any(body["broken"] for body in member_bodies(server, "b")))
    old.ready(number)
    waiting.join(LIMIT_S)

    assert [(round_.number, round_.rank) for round_ in entered] == [(number + 1, 1)]
    assert server.master.rendezvous.round == number + 1


@pytest.mark.usefixtures("slow")
def test_ready_and_broken_are_reported_at_once(server: Server, start: Start) -> None:
    """Though a call of this member waits there already."""
    member, peer = start("a"), start("b")
    number = together(server, member, peer)
    entered = member.next(number, broken=True)

    assert (entered.number, entered.world_size) == (number + 1, 2)


def test_ready_is_for_the_round_that_was_entered(server: Server, start: Start) -> None:
    """It reports nothing about another round."""
    member = start("a")
    number = member.next(0).number
    member.ready(number + 1)
    member.ready(number - 1)
    probe(server)

    assert not any(body["ready"] for body in member_bodies(server))
    assert not server.master.rendezvous.formed
    member.ready(number)
    until(lambda: server.master.rendezvous.formed)


def test_callbacks_run_when_a_member_is_lost(server: Server, start: Start) -> None:
    """Until the program has entered the later round, and not after that."""
    member, peer = start("a"), start("b")
    news: list[float] = []
    member.on_void(lambda: news.append(clock.monotonic_s()))
    number = together(server, member, peer)
    assert not news
    peer.close()
    with server.master.changed:
        server.master.rendezvous.drop("b")
        server.master.changed.notify_all()
    until(lambda: news)
    member.next(number)
    count = len(news)
    probe(server)

    assert len(news) == count


def test_callbacks_run_when_a_round_is_void_though_no_member_is_lost(
    server: Server, start: Start
) -> None:
    """Another member could do nothing more in it."""
    member, peer = start("a"), start("b")
    news = threading.Event()
    number = together(server, member, peer)
    member.on_void(news.set)
    peer.next(number, broken=True)

    assert news.wait(LIMIT_S)


def test_a_program_that_breaks_its_collective_slowly_is_heard_meanwhile(
    server: Server, start: Start
) -> None:
    """Its callback runs beside the calls to the master, once at a time."""
    member, peer = start("a"), start("b")
    began, goes_on, calls = threading.Event(), threading.Event(), []

    def on_broken() -> None:
        calls.append(threading.current_thread())
        began.set()
        goes_on.wait(LIMIT_S)

    break_calls = BreakCalls(on_broken)
    member.on_void(break_calls.start)
    number = together(server, member, peer)
    peer.next(number, broken=True)

    assert began.wait(LIMIT_S)
    probe(server)  # answered while the callback runs
    break_calls.start()
    assert len(calls) == 1
    assert member.next(number).number > number
    goes_on.set()
    break_calls.wait()
    assert not calls[0].is_alive()


def test_a_callback_that_fails_ends_no_thread_of_edl(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is one line of the log; without a call there is nothing to wait for."""

    def fail() -> None:
        raise KeyError("group")

    break_calls = BreakCalls(fail)
    break_calls.wait()
    break_calls.start()
    break_calls.wait()
    assert [record.message for record in caplog.records] == ["on_broken failed"]


def test_growth_does_not_void_the_round(server: Server, start: Start) -> None:
    """The current step runs to its end."""
    member, news = start("a"), threading.Event()
    member.on_void(news.set)
    (first,) = begin(member)
    assert first.world_size == 1
    start("b")
    until(lambda: member.newer(first.number))
    probe(server)

    assert not news.is_set()
    assert member.next(first.number).world_size == 2


@pytest.mark.usefixtures("slow")
def test_a_probe_is_answered_at_once(server: Server, start: Start) -> None:
    """The master asks because somebody may be frozen; a call of this member waits there."""
    member = start("a")
    begin(member)
    until(lambda: any(body["wait_s"] for body in member_bodies(server)))
    probe(server)

    probes = [body["probe"] for body in member_bodies(server)]
    assert probes.count(server.master.rendezvous.probe) == 1


@pytest.mark.usefixtures("slow")
def test_a_long_wait_is_reported_once_at_once(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting call would report it later; the end of the wait is reported too."""
    monkeypatch.setattr("edl.master.long_wait.SUSPICIOUS_S", 0.2)
    member = start("a")
    begin(member)
    since_s = clock.monotonic_s()
    member.waiting(since_s)

    def long_waits() -> list[float]:
        immediate = [body for body in member_bodies(server) if body["wait_s"] == 0]
        return [body["waiting_s"] for body in immediate if body["waiting_s"] >= 0.2]

    until(long_waits)
    assert clock.monotonic_s() - since_s >= 0.2
    probe(server)
    member.waiting(None)
    probe(server)

    assert len(long_waits()) == 1
    assert member_bodies(server)[-1]["waiting_s"] == 0


def test_a_busy_program_is_reported(server: Server, start: Start) -> None:
    """With its next call."""
    member = start("a")
    begin(member)
    member.busy(now=True)
    until(lambda: server.bodies(PATH)[-1]["busy"])
    member.busy(now=False)
    until(lambda: not server.bodies(PATH)[-1]["busy"])
