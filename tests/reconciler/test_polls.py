"""Asking masters, with real sockets."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from edl import Settings
from edl.client import Client
from edl.connection import Connection
from edl.rendezvous import Rendezvous

from kube import errors, request
from kube.client import Api
from kube.fake import FakeApi
from kube.request import CONFIGMAPS
from reconciler import polls
from reconciler.polls import Polls
from reconciler.turns import Target
from reconciler.words import State, Word
from tests.master.serving import TOKEN, Served
from tests.reconciler.server import Clock
from tests.reconciler.waiting import until

LONG_S = 60.0
"""More than any test waits."""
TARGET = Target("ml", "net-master", "127.0.0.1", "secret")


def _answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + body


def _page(**fields: Any) -> bytes:
    return _answer(json.dumps(fields).encode())


class Master(socketserver.ThreadingTCPServer):
    """Says to everybody what it is told to say, after it was asked."""

    daemon_threads = True
    request_queue_size = 64  # more than ask at one time

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says = _page(state="work")
        self.silent = threading.Event()
        """Once set, questions are heard and not answered before `leave`."""
        self.leave = threading.Event()
        self.asked: list[bytes] = []
        self.open = 0
        """Questions that are heard and not answered yet."""
        self.most_open = 0
        self.lock = threading.Lock()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Handler(socketserver.StreamRequestHandler):
    server: Master

    def handle(self) -> None:
        """One question."""
        lines = iter(self.rfile.readline, b"\r\n")
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        self.server.asked.append(b"".join(lines))
        if self.server.silent.is_set():
            self.server.leave.wait(LONG_S)
        with self.server.lock:
            self.server.open -= 1
        with suppress(OSError):  # who asked may be gone
            self.wfile.write(self.server.says)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for whose turn it is all the time; turns go by the clock that each test brings."""
    for name in ("_ROUND_S", "_IDLE_S"):
        monkeypatch.setattr(polls, name, 0.005)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions wait longer than any test."""
    monkeypatch.setattr(polls, "TIMEOUT_S", LONG_S)


@pytest.fixture
def master() -> Iterator[Master]:
    """A master."""
    with Master() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.leave.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def api() -> FakeApi:
    """A cluster with the ConfigMap of one job."""
    made = FakeApi()
    made.send(request.create(CONFIGMAPS, "ml", {"metadata": {"name": "net-master"}}))
    return made


@contextmanager
def _running(
    api: Api, port: int, changed: Callable[[], None] = lambda: None, time: Clock | None = None
) -> Iterator[Polls]:
    """Asks masters at `port`, by a clock that stands still unless `time` is moved."""
    clock_s = (time or Clock()).seconds
    made = Polls(api, changed=changed, clock_s=clock_s, monotonic_s=clock_s, port=port)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _write(api: FakeApi, outcome: str) -> None:
    body = {"data": {"outcome": outcome}}
    api.send(request.merge_patch(CONFIGMAPS, "ml", "net-master", body))


def test_masters_are_asked_with_their_token(api: FakeApi, master: Master) -> None:
    """And what they say is kept."""
    master.says = _page(state="work", trainers={"trainer-1": {"uncommitted_s": 4}})
    with _running(api, master.port) as asking:
        asking.follow({"u": TARGET})
        until(asking.words)

        assert asking.words()["u"].uncommitted == {1: 4.0}
    assert master.asked[0].startswith(b"GET /v1/status HTTP/1.0\r\n")
    assert b"Authorization: Bearer secret\r\n" in master.asked[0]


def test_what_masters_say_is_understood(api: FakeApi, tmp_path: Path) -> None:
    """By a real one, with its own idea of a status page."""
    served = Served(tmp_path)
    target = Target("ml", "net-master", "127.0.0.1", TOKEN)
    try:
        with _running(api, served.port) as asking:
            asking.follow({"u": target, "other": replace(target, token=f"not {TOKEN}")})
            until(asking.words)

            assert asking.words()["u"].state is State.WORK
            assert "other" not in asking.words()
    finally:
        served.stop()


def test_the_end_wakes_the_loop_and_is_not_asked_for_again(api: FakeApi, master: Master) -> None:
    """Once is enough."""
    woken = threading.Event()
    master.says = _page(state="done")
    with _running(api, master.port, woken.set) as asking:
        asking.follow({"u": TARGET})

        until(woken.is_set)
        asking.follow({"u": Target("ml", "net-master", "127.0.0.1", "secret", turn=1)})
        asking.follow({"u": TARGET, "other": TARGET})
        until(lambda: "other" in asking.words())
        assert asking.words()["u"].state is State.DONE
    assert len(master.asked) == 2


def test_another_leader_wakes_the_loop(api: FakeApi, master: Master) -> None:
    """With the next turn; the same leader told again wakes nobody."""
    woken: list[int | None] = []
    time = Clock()
    master.says = _page(state="work", trainers={"trainer-1": {"rank": 0}})
    with _running(api, master.port, lambda: woken.append(None), time) as asking:
        asking.follow({"u": TARGET})
        until(lambda: len(woken) == 1)
        time.advance(2)
        until(lambda: asking.words()["u"].at_s == time.now_s)
        master.says = _page(state="work", trainers={"trainer-2": {"rank": 0}})
        time.advance(2)
        until(lambda: asking.words()["u"].leader == 2)
        until(lambda: len(woken) > 1)
        time.advance(2)
        until(lambda: asking.words()["u"].at_s == time.now_s)

    assert len(woken) == 2


def test_a_real_master_says_who_leads(api: FakeApi, tmp_path: Path) -> None:
    """Rank 0, and at least ten uncommitted seconds of it; a change is known in time."""
    served = Served(tmp_path, heartbeat_s=60.0)
    url = f"http://127.0.0.1:{served.port}"
    found = [Settings(url, TOKEN, f"trainer-{n}", patience_s=5.0) for n in (4, 5)]
    first, second = (Rendezvous(each, "one", f"{each.trainer}:1") for each in found)
    time = Clock()
    with ExitStack() as stack, _running(api, served.port, time=time) as asking:
        stack.callback(served.stop)
        for each in found:
            client = Client(Connection(url, TOKEN), each.trainer, "one")
            client.join()
            client.close()
        first.start()
        stack.callback(first.close)
        alone = first.next(0).number
        first.ready(alone)
        second.start()
        stack.callback(second.close)
        both = second.next(0).number
        assert first.next(alone).number == both
        first.ready(both)
        second.ready(both)
        asking.follow({"u": Target("ml", "net-master", "127.0.0.1", TOKEN)})
        until(lambda: asking.words() and asking.words()["u"].leader == 4)
        assert asking.words()["u"].uncommitted[4] >= 10.0
        first.leave(1.0)
        second.ready(second.next(both).number)
        time.advance(2)
        until(lambda: asking.words()["u"].leader == 5)

        assert asking.words()["u"].uncommitted == {4: 0.0, 5: 10.0}


def test_expected_news_are_asked_for_at_once(api: FakeApi, master: Master) -> None:
    """A turn that grows waits for nothing: no time passes here."""
    with _running(api, master.port) as asking:
        for turn in range(3):
            asking.follow({"u": replace(TARGET, turn=turn)})
            until(lambda turn=turn: len(master.asked) > turn)  # type: ignore[misc]


class Held(FakeApi):
    """An API server that answers one question late."""

    def __init__(self) -> None:
        super().__init__()
        self.answering = threading.Event()
        self.asked: list[str] = []

    def send(self, asked: request.Request) -> bytes:
        """See `kube.client.Api`."""
        name = asked.path.rpartition("/")[2]
        self.asked.append(name)
        answer = super().send(asked)
        if name == "old-master" and asked.method == "GET":
            assert self.answering.wait(LONG_S)
        return answer


def test_a_late_word_of_the_master_before_is_not_taken_for_the_new_ones() -> None:
    """Else a job that goes on would be ended by it."""
    api = Held()
    for name, outcome in (("old-master", "done"), ("new-master", ""), ("other-master", "done")):
        body = {"metadata": {"name": name}, "data": {"outcome": outcome}}
        api.send(request.create(CONFIGMAPS, "ml", body))
    old, new, other = (
        Target("ml", f"{name}-master", "", "secret") for name in ("old", "new", "other")
    )
    api.asked.clear()
    with _running(api, 1) as asking:
        asking.follow({"u": old})
        until(lambda: "old-master" in api.asked)
        asking.follow({"u": new})
        until(lambda: "new-master" in api.asked)
        api.answering.set()
        asking.follow({"u": new, "other": other})
        until(asking.words)  # its question began after the late answer had come

        assert asking.words() == {"other": Word(State.DONE, Clock().seconds())}


def test_who_is_not_followed_is_forgotten(api: FakeApi, master: Master) -> None:
    """A job that is gone leaves nothing."""
    with _running(api, master.port) as asking:
        asking.follow({"u": TARGET})
        until(asking.words)
        asking.follow({})
        until(lambda: not asking.words())


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        _answer(b"{}", "401 Unauthorized"),
        _answer(b"not json"),
        _answer(b" " * (polls._LONGEST_PAGE + 1)),  # noqa: SLF001 - one more than is read
    ],
)
def test_where_nobody_answers_well_the_config_map_is_read(
    says: bytes, api: FakeApi, master: Master
) -> None:
    """The final word may be there."""
    master.says = says
    _write(api, "failed: out of disk")
    with _running(api, master.port) as asking:
        asking.follow({"u": TARGET})
        until(asking.words)

        word = asking.words()["u"]
    assert (word.state, word.reason) == (State.FAILED, "out of disk")
    assert master.asked


def test_where_no_pod_carries_a_master_the_config_map_is_read(api: FakeApi) -> None:
    """Nobody is asked then."""
    _write(api, "done")
    with _running(api, 1) as asking:
        asking.follow({"u": Target("ml", "net-master", "", "secret")})
        until(asking.words)

        assert asking.words()["u"].state is State.DONE


@pytest.mark.usefixtures("patient")
def test_a_silent_master_delays_no_other(api: FakeApi, master: Master) -> None:
    """Several hear the question and say nothing, for longer than this test waits."""
    master.silent.set()
    silent = {f"s{i}": TARGET for i in range(8)}
    _write(api, "done")
    with _running(api, master.port) as asking:
        asking.follow(silent)
        until(lambda: len(master.asked) == len(silent))
        asking.follow({**silent, "dead": Target("ml", "net-master", "", "secret")})
        until(asking.words)

        assert asking.words().keys() == {"dead"}


def test_a_silent_master_counts_as_one_that_does_not_answer(
    api: FakeApi, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while the ConfigMap is read instead."""
    monkeypatch.setattr(polls, "TIMEOUT_S", 0.01)
    master.silent.set()
    _write(api, "done")
    with _running(api, master.port) as asking:
        asking.follow({"u": TARGET})
        until(asking.words)

        assert asking.words()["u"].state is State.DONE


def test_few_questions_are_under_way_at_one_time(
    api: FakeApi, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masters that are silent cost a bounded number of connections, and others come to their turn."""
    monkeypatch.setattr(polls, "_MOST_OPEN", 3)
    monkeypatch.setattr(polls, "TIMEOUT_S", LONG_S)
    master.silent.set()
    with _running(api, master.port) as asking:
        asking.follow({str(i): TARGET for i in range(9)})
        until(lambda: master.open == 3)
        master.leave.set()
        until(lambda: len(asking.words()) == 9)

    assert master.most_open == 3


def test_a_config_map_that_cannot_be_read_says_nothing(api: FakeApi) -> None:
    """It is tried again later, and the thread lives on."""
    api.faults.fail_next(errors.Unavailable("no"))
    with _running(api, 1) as asking:
        asking.follow({"u": Target("ml", "net-master", "", "secret")})
        until(lambda: not api.faults._faults)  # noqa: SLF001 - that it was asked
        _write(api, "done")
        asking.follow({"u": Target("ml", "net-master", "", "secret", turn=1)})
        until(asking.words)


@pytest.mark.usefixtures("patient")
def test_stopping_does_not_wait_for_masters(api: FakeApi, master: Master) -> None:
    """A question under way is dropped."""
    master.silent.set()
    with _running(api, master.port) as asking:
        asking.follow({"u": TARGET})
        until(lambda: master.asked)
    until(lambda: "masters" not in {thread.name for thread in threading.enumerate()})


def test_nobody_listens_at_all(api: FakeApi) -> None:
    """A refused connection is no news."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = int(server.getsockname()[1])
    _write(api, "done")
    with _running(api, free) as asking:
        asking.follow({"u": TARGET})
        until(asking.words)
