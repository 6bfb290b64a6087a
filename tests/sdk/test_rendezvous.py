"""A member's side of the rendezvous: rounds as they come, news at once, and an end that leaves nothing."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from edl import Refused, Settings, Unavailable, clock
from edl.rendezvous import Rendezvous, Round

from tests.sdk.loops import LIMIT_S, until
from tests.sdk.meetings import Json
from tests.sdk.servers import TOKEN, Server, before_away, garbage, lost

Start = Callable[..., Rendezvous]
PATH = "/v1/rendezvous"


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Makes members, and closes them after the test."""
    made: list[Rendezvous] = []

    def make(trainer: str = "a", **about: Any) -> Rendezvous:
        patience_s = about.pop("patience_s", LIMIT_S)
        found = Settings(server.url, TOKEN, trainer, patience_s=patience_s)
        incarnation = about.pop("incarnation", f"{trainer}-1")
        made.append(Rendezvous(found, incarnation, f"{trainer}:1", about.pop("code", None)))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits at the master outlasts any test: what happens, its end did not bring."""
    monkeypatch.setattr("edl.rendezvous.POLL_S", 600.0)


def begin(*members: Rendezvous, after: int = 0) -> list[Round]:
    """All enter their next round, and are ready in it."""
    found = [one.next(after) for one in members]
    for one, entered in zip(members, found, strict=True):
        one.ready(entered.number)
    return found


def together(server: Server, *members: Rendezvous) -> int:
    """The number of a round that has formed with all of them; each runs as a program would."""
    found: list[int] = []

    def run(one: Rendezvous) -> None:
        entered = one.next(0)
        one.ready(entered.number)
        while entered.world < len(members):
            entered = one.next(entered.number)
            one.ready(entered.number)
        found.append(entered.number)

    threads = [threading.Thread(target=run, args=(one,)) for one in members]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT_S)
    until(lambda: server.books.meeting.formed)
    assert len(found) == len(members)
    assert {server.books.meeting.round} == set(found)
    return found[0]


def probe(server: Server, trainer: str = "a") -> None:
    """The master asks all, twice: a member has answered once it has taken in what came before."""
    for _ in range(2):
        with server.books.changed:
            server.books.meeting.ask_all()
            server.books.changed.notify_all()
        until(lambda: server.books.meeting.probe in [b["probe"] for b in told(server, trainer)])


def told(server: Server, trainer: str = "a") -> list[Json]:
    """What a member has said."""
    return [body for body in server.told(PATH) if body["trainer"] == trainer]


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if "rendezvous" in one.name]


def test_the_first_round_is_this_member_alone(start: Start) -> None:
    """With its address, at rank 0."""
    found = start("a").next(0)

    assert (found.number, found.rank, found.world) == (1, 0, 1)
    assert found.members[0].address == "a:1"


def test_ranks_follow_from_the_place_in_the_round(server: Server, start: Start) -> None:
    """The oldest is 0."""
    one, other = start("a"), start("b")
    number = together(server, one, other)
    names = [seat["trainer"] for seat in server.books.meeting.seats]

    assert server.books.meeting.round == number
    assert sorted(names) == ["a", "b"]
    assert not one.newer(number)
    assert one.newer(number - 1)


def test_next_waits_for_a_round_with_this_member(server: Server, start: Start) -> None:
    """A newcomer has no place in the one that is there, nor in one that is forming."""
    old = start("a")
    number = old.next(0).number
    late = start("b")
    until(lambda: late.newer(0))
    found: list[Round] = []
    waiting = threading.Thread(target=lambda: found.append(late.next(0)))
    waiting.start()
    until(lambda: any(body["broken"] for body in told(server, "b")))  # it has no place in the round
    old.ready(number)
    waiting.join(LIMIT_S)

    assert [(one.number, one.rank) for one in found] == [(number + 1, 1)]
    assert server.books.meeting.round == number + 1


@pytest.mark.usefixtures("slow")
def test_the_master_hears_at_once_who_is_ready_or_broken(server: Server, start: Start) -> None:
    """Though a call of this member waits there already."""
    one, other = start("a"), start("b")
    number = together(server, one, other)
    found = one.next(number, broken=True)

    assert (found.number, found.world) == (number + 1, 2)


def test_ready_is_for_the_round_that_was_entered(server: Server, start: Start) -> None:
    """Of another it says nothing."""
    one = start("a")
    number = one.next(0).number
    one.ready(number + 1)
    one.ready(number - 1)
    probe(server)

    assert not any(body["ready"] for body in told(server))
    assert not server.books.meeting.formed
    one.ready(number)
    until(lambda: server.books.meeting.formed)


def test_news_comes_when_a_member_is_gone(server: Server, start: Start) -> None:
    """Until the program has entered the later round, and not after that."""
    one, other = start("a"), start("b")
    news: list[float] = []
    one.on_news(lambda: news.append(clock.monotonic_s()))
    number = together(server, one, other)
    assert not news
    other.close()
    with server.books.changed:
        server.books.meeting.drop("b")
        server.books.changed.notify_all()
    until(lambda: news)
    one.next(number)
    count = len(news)
    probe(server)

    assert len(news) == count


def test_news_comes_when_a_round_is_void_though_nobody_is_gone(
    server: Server, start: Start
) -> None:
    """Another member could do nothing more in it."""
    one, other = start("a"), start("b")
    news = threading.Event()
    number = together(server, one, other)
    one.on_news(news.set)
    other.next(number, broken=True)

    assert news.wait(LIMIT_S)


def test_growth_is_no_news_but_a_later_round(server: Server, start: Start) -> None:
    """The step in hand goes on to its end."""
    one, news = start("a"), threading.Event()
    one.on_news(news.set)
    (first,) = begin(one)
    assert first.world == 1
    start("b")
    until(lambda: one.newer(first.number))
    probe(server)

    assert not news.is_set()
    assert one.next(first.number).world == 2


@pytest.mark.usefixtures("slow")
def test_a_probe_is_answered_at_once(server: Server, start: Start) -> None:
    """The master asks because somebody may be frozen; a call of this member waits there."""
    one = start("a")
    begin(one)
    until(lambda: any(body["wait_s"] for body in told(server)))
    probe(server)

    assert [body["probe"] for body in told(server)].count(server.books.meeting.probe) == 1


@pytest.mark.usefixtures("slow")
def test_who_waits_for_long_tells_it_once_at_once(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits at the master would tell it later; waits that end are told as such."""
    monkeypatch.setattr("edl.rendezvous.SUSPICIOUS_S", 0.2)
    one = start("a")
    begin(one)
    since_s = clock.monotonic_s()
    one.waiting(since_s)

    def said() -> list[float]:
        return [b["waiting_s"] for b in told(server) if b["wait_s"] == 0 and b["waiting_s"] >= 0.2]

    until(said)
    assert clock.monotonic_s() - since_s >= 0.2
    probe(server)
    one.waiting(None)
    probe(server)

    assert len(said()) == 1
    assert told(server)[-1]["waiting_s"] == 0


def test_who_is_busy_says_so(server: Server, start: Start) -> None:
    """With its next call."""
    one = start("a")
    begin(one)
    one.busy(now=True)
    until(lambda: server.told(PATH)[-1]["busy"])
    one.busy(now=False)
    until(lambda: not server.told(PATH)[-1]["busy"])


def test_who_has_left_is_in_no_later_round(server: Server, start: Start) -> None:
    """It hears of them, and a new master hears that it has left."""
    one, other = start("a"), start("b")
    number = together(server, one, other)
    one.leave(LIMIT_S)
    assert other.next(number).world == 1
    until(lambda: one.newer(number))
    with pytest.raises(Unavailable, match="has left"):
        one.next(number)
    with server.books.changed:
        server.books.changed.notify_all()
    until(lambda: any(b["left"] for b in server.told(PATH) if b["trainer"] == "a"))

    assert len(server.told("/v1/rendezvous/leave")) == 1


def test_leaving_wakes_a_program_that_waits_for_a_round(start: Start) -> None:
    """It is to end now."""
    one, errors = start("a"), []
    number = one.next(0).number

    def wait() -> None:
        try:
            one.next(number)
        except Unavailable as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    one.leave(LIMIT_S)
    waiting.join(LIMIT_S)

    assert errors == ["this trainer has left the rendezvous"]


def test_leaving_takes_no_longer_than_it_may(
    server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The master stays away; a member that never started leaves at once."""
    one = start("a")
    one.next(0)
    server.stop()
    one.leave(0.2)
    Rendezvous(Settings(server.url, TOKEN, "b"), "b-1", "b:1").leave(threading.TIMEOUT_MAX)

    assert caplog.text.count("the master did not hear that this trainer leaves") == 1


def test_the_round_goes_on_when_the_master_comes_back(
    server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its members tell it what they know; growth works as before."""
    caplog.set_level("INFO", "edl")
    one, other = start("a"), start("b")
    number = together(server, one, other)
    server.stop()
    server.books.take_over()
    until(lambda: caplog.text.count("the round goes on") == 2)  # once by each of them
    assert not one.newer(number)
    server.start()
    until(lambda: server.books.meeting.formed)
    assert (server.books.meeting.round, one.newer(number)) == (number, False)
    late = start("c")
    begin(one, other, after=number)

    assert late.next(0).number == number + 1
    until(lambda: caplog.text.count("the master's rendezvous is back after") == 2)


def test_a_master_that_stays_away_ends_a_program_that_waits_for_it(
    server: Server, start: Start
) -> None:
    """After the patience of its settings, not before; a member waits no longer."""
    one = start("a", patience_s=0.4)
    number = one.next(0).number
    server.stop()
    begun_s = clock.monotonic_s()
    with pytest.raises(Unavailable, match="does not answer"):
        one.next(number)

    assert clock.monotonic_s() - begun_s > 0.2


def test_answers_that_get_lost_are_asked_for_again(server: Server, start: Start) -> None:
    """And pages of proxies are none."""
    server.faults[PATH] = deque([lost, garbage, before_away, lost])
    one = start("a")

    assert one.next(0).number == 1


def test_another_program_ends_it(start: Start) -> None:
    """The error names the entry; whoever looks for a later round is sent to it."""
    start("a", code={"model": "1"}).next(0)
    news = threading.Event()
    other = start("b", code={"model": "2"})
    other.on_news(news.set)
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            other.next(0)
        assert (caught.value.status, caught.value.field) == (409, "code.model")

    assert other.newer(10**9)


def test_a_program_in_a_round_hears_that_it_was_replaced(server: Server, start: Start) -> None:
    """It must not wait in an exchange for ever."""
    one, news = start("a"), threading.Event()
    number = begin(one)[0].number
    one.on_news(news.set)
    start("a", incarnation="a-2")

    assert news.wait(LIMIT_S)
    with pytest.raises(Refused) as caught:
        one.next(number)
    assert caught.value.field == "incarnation"
    assert server.books.meeting.seats[0]["incarnation"] == "a-2"


def test_one_that_was_dropped_asks_to_come_again(server: Server, start: Start) -> None:
    """Then it is a newcomer, last in rank."""
    one, other = start("a"), start("b")
    number = together(server, one, other)
    with server.books.changed:
        server.books.meeting.drop("a")
        server.books.changed.notify_all()
    (alone,) = begin(other, after=number)
    assert alone.world == 1
    found = one.next(number)

    assert (found.rank, found.world) == (1, 2)


@pytest.mark.usefixtures("slow")
def test_nothing_is_left_when_it_is_closed(server: Server, start: Start) -> None:
    """No thread, no connection, though a call waits; closing again is fine, and what never began."""
    before = len(_threads())
    one = start("a")
    one.next(0)
    assert len(_threads()) == before + 2
    one.close()
    one.close()
    until(lambda: len(_threads()) == before)
    with server.books.changed:
        server.books.meeting.ask_all()  # its handler finds out when it answers
        server.books.changed.notify_all()
    until(lambda: not server.connections)
    with pytest.raises(Unavailable):
        one.next(0)
    Rendezvous(Settings(server.url, TOKEN, "b"), "b-1", "b:1").close()


def test_a_freeze_is_noticed_whichever_thread_runs_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second without a look of any thread; it is said once, and not while the master is away."""
    now_s = [100.0]
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s[0])
    one = Rendezvous(Settings(server.url, TOKEN, "a"), "a-1", "a:1")  # its threads do not run

    def later(seconds: float) -> bool:
        now_s[0] += seconds
        return one.stalled()

    assert [later(0.9), later(0.2), later(0.5)] == [False, True, False]
    now_s[0] += 5.0
    one._look()  # noqa: SLF001 - the thread that says things wakes up before the program does
    assert [later(0.1), later(0.1)] == [True, False]
    one._away = Unavailable("the master does not answer")  # noqa: SLF001
    assert not later(5.0)
    one._away = None  # noqa: SLF001
    assert later(0.0)
    one.close()
