"""How a member leaves the rendezvous, outlives a master, and is replaced or dropped."""

import threading
from collections import deque

import pytest
from edl import Refused, Settings, Unavailable, clock
from edl.master.rendezvous import Rendezvous

from tests.sdk.conftest import Start
from tests.sdk.master.members import PATH, begin, together
from tests.sdk.support.loops import LIMIT_S, until
from tests.sdk.support.master_server import TOKEN, Server, before_away, garbage, lost


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "rendezvous" in thread.name]


def test_a_member_that_left_is_in_no_later_round(server: Server, start: Start) -> None:
    """It receives them, and reports to a new master that it has left."""
    member, peer = start("a"), start("b")
    number = together(server, member, peer)
    member.leave(LIMIT_S)
    assert peer.next(number).world_size == 1
    until(lambda: member.newer(number))
    with pytest.raises(Unavailable, match="has left"):
        member.next(number)
    with server.master.changed:
        server.master.changed.notify_all()
    until(lambda: any(b["left"] for b in server.bodies(PATH) if b["trainer"] == "a"))

    assert len(server.bodies("/v1/rendezvous/leave")) == 1


def test_leaving_wakes_a_program_that_waits_for_a_round(start: Start) -> None:
    """It is to end now."""
    member, errors = start("a"), []
    number = member.next(0).number

    def wait() -> None:
        try:
            member.next(number)
        except Unavailable as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    member.leave(LIMIT_S)
    waiting.join(LIMIT_S)

    assert errors == ["this trainer has left the rendezvous"]


def test_leaving_takes_no_longer_than_it_may(
    server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The master stays away; a member that never started leaves at once."""
    member = start("a")
    member.next(0)
    server.stop()
    member.leave(0.2)
    Rendezvous(Settings(server.url, TOKEN, "b"), "b-1", "b:1").leave(threading.TIMEOUT_MAX)

    assert caplog.text.count("could not report that this trainer leaves") == 1


def test_the_round_continues_when_the_master_comes_back(
    server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its members send it their round; growth works as before."""
    caplog.set_level("INFO", "edl")
    member, peer = start("a"), start("b")
    number = together(server, member, peer)
    server.stop()
    server.master.take_over()
    until(lambda: caplog.text.count("the round continues") == 2)  # once by each of them
    assert not member.newer(number)
    server.start()
    until(lambda: server.master.rendezvous.formed)
    assert (server.master.rendezvous.round, member.newer(number)) == (number, False)
    late = start("c")
    begin(member, peer, after=number)

    assert late.next(0).number == number + 1
    until(lambda: caplog.text.count("the master's rendezvous is back after") == 2)


def test_a_master_that_stays_away_ends_a_program_that_waits_for_it(
    server: Server, start: Start
) -> None:
    """After the patience of its settings, not before; a member waits no longer."""
    member = start("a", patience_s=0.4)
    number = member.next(0).number
    server.stop()
    begun_s = clock.monotonic_s()
    with pytest.raises(Unavailable, match="does not answer"):
        member.next(number)

    assert clock.monotonic_s() - begun_s > 0.2


def test_answers_that_get_lost_are_asked_for_again(server: Server, start: Start) -> None:
    """And pages of proxies are none."""
    server.faults[PATH] = deque([lost, garbage, before_away, lost])
    member = start("a")

    assert member.next(0).number == 1


def test_another_program_ends_it(start: Start) -> None:
    """The error names the entry; `next` raises it, and `newer` is true."""
    start("a", code={"model": "1"}).next(0)
    news = threading.Event()
    other = start("b", code={"model": "2"})
    other.on_void(news.set)
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            other.next(0)
        assert (caught.value.status, caught.value.field) == (409, "code.model")

    assert other.newer(10**9)


def test_a_replaced_program_in_a_round_is_interrupted(server: Server, start: Start) -> None:
    """It must not wait in an exchange for ever."""
    member, news = start("a"), threading.Event()
    number = begin(member)[0].number
    member.on_void(news.set)
    start("a", incarnation="a-2")

    assert news.wait(LIMIT_S)
    with pytest.raises(Refused) as caught:
        member.next(number)
    assert caught.value.field == "incarnation"
    assert server.master.rendezvous.slots[0]["incarnation"] == "a-2"


def test_one_that_was_dropped_asks_to_come_again(server: Server, start: Start) -> None:
    """Then it is a newcomer, last in rank."""
    member, peer = start("a"), start("b")
    number = together(server, member, peer)
    with server.master.changed:
        server.master.rendezvous.drop("a")
        server.master.changed.notify_all()
    (alone,) = begin(peer, after=number)
    assert alone.world_size == 1
    entered = member.next(number)

    assert (entered.rank, entered.world_size) == (1, 2)


@pytest.mark.usefixtures("slow")
def test_nothing_is_left_when_it_is_closed(server: Server, start: Start) -> None:
    """No thread and no connection, though a call waits; closing twice or before the start works."""
    before = len(_threads())
    member = start("a")
    member.next(0)
    assert len(_threads()) == before + 2
    member.close()
    member.close()
    until(lambda: len(_threads()) == before)
    with server.master.changed:
        server.master.rendezvous.ask_all()  # its handler finds out when it answers
        server.master.changed.notify_all()
    until(lambda: not server.connections)
    with pytest.raises(Unavailable):
        member.next(0)
    Rendezvous(Settings(server.url, TOKEN, "b"), "b-1", "b:1").close()


def test_a_freeze_is_noticed_whichever_thread_runs_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.7 s without a check of any thread; reported once, and not while the master is away."""
    now_s = [100.0]
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s[0])
    member = Rendezvous(Settings(server.url, TOKEN, "a"), "a-1", "a:1")  # its threads do not run

    def later(seconds: float) -> bool:
        now_s[0] += seconds
        return member.stalled()

    assert [later(0.6), later(0.2), later(0.4)] == [False, True, False]
    now_s[0] += 5.0
    member._check_stall()  # noqa: SLF001 - the sender thread wakes up before the program
    assert [later(0.1), later(0.1)] == [True, False]
    member._away = Unavailable("the master does not answer")  # noqa: SLF001
    assert not later(5.0)
    member._away = None  # noqa: SLF001
    assert later(0.0)
    member.close()
