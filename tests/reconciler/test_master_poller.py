"""Asking masters, with real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from edl import Settings
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.rendezvous import Rendezvous

from kube import errors, request
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi
from reconciler.masters import poller as master_poller
from reconciler.masters.poll_schedule import EVERY_S, PollTarget
from reconciler.masters.reports import MasterReport, ReportedState
from runtime import bounded_get
from tests.master.serving import TOKEN, Served
from tests.reconciler.polled_masters import LONG_S, TARGET, Master, answer, page, running
from tests.reconciler.server import Clock
from tests.reconciler.waiting import until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poller that checks for due polls without pause, by the clock of the test."""
    for name in ("_ROUND_S", "_IDLE_S"):
        monkeypatch.setattr(master_poller, name, 0.005)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions wait longer than any test."""
    monkeypatch.setattr(master_poller, "TIMEOUT_S", LONG_S)


@pytest.fixture
def master() -> Iterator[Master]:
    """A master."""
    with Master() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.leave.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def api() -> FakeApi:
    """A cluster with the ConfigMap of one job."""
    fake = FakeApi()
    fake.send(request.create(CONFIGMAPS, "ml", {"metadata": {"name": "net-master"}}))
    return fake


def _write(api: FakeApi, outcome: str) -> None:
    body = {"data": {"outcome": outcome}}
    api.send(request.merge_patch(CONFIGMAPS, "ml", "net-master", body))


def test_masters_are_asked_with_their_token(api: FakeApi, master: Master) -> None:
    """And what they say is kept."""
    master.page = page(state="work", trainers={"trainer-1": {"uncommitted_s": 4}})
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)

        assert asking.reports()["u"].uncommitted == {1: 4.0}
    assert master.asked[0].startswith(b"GET /v1/status HTTP/1.0\r\n")
    assert b"Authorization: Bearer secret\r\n" in master.asked[0]


def test_what_masters_say_is_understood(api: FakeApi, tmp_path: Path) -> None:
    """By a real one, with its own idea of a status page."""
    served = Served(tmp_path)
    target = PollTarget("ml", "net-master", "127.0.0.1", TOKEN)
    try:
        with running(api, served.port) as asking:
            asking.set_targets({"u": target, "other": replace(target, token=f"not {TOKEN}")})
            until(asking.reports)

            assert asking.reports()["u"].state is ReportedState.WORK
            until(lambda: asking.refuses_token("other"))
            assert "other" not in asking.reports()
            assert not asking.refuses_token("u")
    finally:
        served.stop()


class _Garbled(FakeApi):
    """An API server whose answers are not JSON; counts them."""

    reads = 0

    def send(self, api_request: Request) -> bytes:
        """See `kube.api.Api`."""
        self.reads += 1
        return b"<html>" + api_request.path.encode()


def test_a_poll_that_fails_is_not_the_last(master: Master) -> None:
    """Whatever is wrong with an answer, the job's master is asked again."""
    garbled, time = _Garbled(), Clock()
    with running(garbled, master.port, time=time) as asking:
        asking.set_targets({"u": replace(TARGET, address="")})

        def is_read_again() -> bool:
            time.advance(1)
            return garbled.reads > 1

        until(is_read_again)


def test_the_end_wakes_the_loop_and_is_not_asked_for_again(api: FakeApi, master: Master) -> None:
    """Once is enough."""
    woken = threading.Event()
    master.page = page(state="done")
    with running(api, master.port, woken.set) as asking:
        asking.set_targets({"u": TARGET})

        until(woken.is_set)
        asking.set_targets(
            {"u": PollTarget("ml", "net-master", "127.0.0.1", "secret", generation=1)}
        )
        asking.set_targets({"u": TARGET, "other": TARGET})
        until(lambda: "other" in asking.reports())
        assert asking.reports()["u"].state is ReportedState.DONE
    assert len(master.asked) == 2


def test_another_leader_wakes_the_loop(api: FakeApi, master: Master) -> None:
    """With the next poll; the same leader reported again wakes nobody."""
    woken: list[int | None] = []
    time = Clock()
    master.page = page(state="work", trainers={"trainer-1": {"rank": 0}})
    with running(api, master.port, lambda: woken.append(None), time) as asking:
        asking.set_targets({"u": TARGET})
        until(lambda: len(woken) == 1)
        time.advance(2)
        until(lambda: asking.reports()["u"].at_s == time.now_s)
        master.page = page(state="work", trainers={"trainer-2": {"rank": 0}})
        time.advance(2)
        until(lambda: asking.reports()["u"].leader == 2)
        until(lambda: len(woken) > 1)
        time.advance(2)
        until(lambda: asking.reports()["u"].at_s == time.now_s)

    assert len(woken) == 2


def test_a_real_master_says_who_leads(api: FakeApi, tmp_path: Path) -> None:
    """Rank 0, and at least ten uncommitted seconds of it; a change is known in time."""
    served = Served(tmp_path, heartbeat_s=60.0)
    url = f"http://127.0.0.1:{served.port}"
    settings = [Settings(url, TOKEN, f"trainer-{n}", patience_s=5.0) for n in (4, 5)]
    first, second = (Rendezvous(trainer, "one", f"{trainer.trainer}:1") for trainer in settings)
    time = Clock()
    with ExitStack() as stack, running(api, served.port, time=time) as asking:
        stack.callback(served.stop)
        for member in settings:
            client = Client(Connection(url, TOKEN), member.trainer, "one")
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
        asking.set_targets({"u": PollTarget("ml", "net-master", "127.0.0.1", TOKEN)})
        until(lambda: asking.reports() and asking.reports()["u"].leader == 4)
        assert asking.reports()["u"].uncommitted[4] >= 10.0
        first.leave(1.0)
        second.ready(second.next(both).number)
        time.advance(2)
        until(lambda: asking.reports()["u"].leader == 5)

        assert asking.reports()["u"].uncommitted == {4: 0.0, 5: 10.0}


def test_expected_news_are_asked_for_at_once(api: FakeApi, master: Master) -> None:
    """A higher generation is polled at once: no time passes here."""
    with running(api, master.port) as asking:
        for number in range(3):
            asking.set_targets({"u": replace(TARGET, generation=number)})
            until(lambda number=number: len(master.asked) > number)  # type: ignore[misc]


class Held(FakeApi):
    """An API server that answers one question late."""

    def __init__(self) -> None:
        super().__init__()
        self.answering = threading.Event()
        self.asked: list[str] = []

    def send(self, api_request: request.Request) -> bytes:
        """See `kube.api.Api`."""
        name = api_request.path.rpartition("/")[2]
        self.asked.append(name)
        answer = super().send(api_request)
        if name == "old-master" and api_request.method == "GET":
            assert self.answering.wait(LONG_S)
        return answer


def test_a_late_word_of_the_master_before_is_not_taken_for_the_new_ones() -> None:
    """Otherwise it would end a job that still runs."""
    api = Held()
    for name, outcome in (("old-master", "done"), ("new-master", ""), ("other-master", "done")):
        body = {"metadata": {"name": name}, "data": {"outcome": outcome}}
        api.send(request.create(CONFIGMAPS, "ml", body))
    old, new, other = (
        PollTarget("ml", f"{name}-master", "", "secret") for name in ("old", "new", "other")
    )
    api.asked.clear()
    with running(api, 1) as asking:
        asking.set_targets({"u": old})
        until(lambda: "old-master" in api.asked)
        asking.set_targets({"u": new})
        until(lambda: "new-master" in api.asked)
        api.answering.set()
        asking.set_targets({"u": new, "other": other})
        until(asking.reports)  # its question began after the late answer had come

        assert asking.reports() == {"other": MasterReport(ReportedState.DONE, Clock().seconds())}


def test_who_is_not_followed_is_forgotten(api: FakeApi, master: Master) -> None:
    """A deleted job leaves nothing."""
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)
        asking.set_targets({})
        until(lambda: not asking.reports())


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        answer(b"{}", "401 Unauthorized"),
        answer(b"not json"),
        answer(b" " * (bounded_get.MAX_BYTES + 1)),  # one more than is read
    ],
)
def test_where_nobody_answers_well_the_config_map_is_read(
    page: bytes, api: FakeApi, master: Master
) -> None:
    """The final report may be there."""
    master.page = page
    _write(api, "failed: out of disk")
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)

        report = asking.reports()["u"]
    assert (report.state, report.reason) == (ReportedState.FAILED, "out of disk")
    assert master.asked


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("part", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X: y\r\n", b"0;" + b"x" * 62])
def test_every_byte_of_an_answer_counts(part: bytes, api: FakeApi, master: Master) -> None:
    """Not only those of the body: a hostile pod costs a megabyte, whatever it sends."""
    master.page = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" * (part[:1] == b"0")
    master.page += part * (64_000_000 // len(part))
    _write(api, "done")
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)

        assert master.cut_off.wait(LONG_S)


def test_what_masters_of_a_namespace_answer_delays_their_own_polls(
    api: FakeApi, master: Master
) -> None:
    """After 4 MiB at once, of which one is free, the next poll comes after three seconds; others go on."""
    master.page = page(state="work", padding="x" * ((1 << 20) - 200))
    time, elsewhere = Clock(), replace(TARGET, namespace="other", config_map="other")
    with running(api, master.port, time=time) as asking:
        asking.set_targets(dict.fromkeys("abcd", TARGET))
        until(lambda: len(asking.reports()) == 4)
        asked = len(master.asked)
        time.now_s += EVERY_S + 0.5
        asking.set_targets({"a": TARGET, "other": elsewhere})
        until(lambda: "other" in asking.reports())
        asked_meanwhile = len(master.asked) - asked
        time.now_s += 1.0
        until(lambda: len(master.asked) > asked + asked_meanwhile)

    assert asked_meanwhile == 1


def test_the_token_does_not_follow_a_redirect(api: FakeApi, master: Master) -> None:
    """What listens at a pod's address could send it anywhere."""
    master.page = b"HTTP/1.0 307 There\r\nLocation: /v1/status\r\n\r\n"
    _write(api, "done")
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)
    assert len(master.asked) == 1


def test_where_no_pod_carries_a_master_the_config_map_is_read(api: FakeApi) -> None:
    """No master is polled then."""
    _write(api, "done")
    with running(api, 1) as asking:
        asking.set_targets({"u": PollTarget("ml", "net-master", "", "secret")})
        until(asking.reports)

        assert asking.reports()["u"].state is ReportedState.DONE


@pytest.mark.usefixtures("patient")
def test_a_silent_master_delays_no_other(api: FakeApi, master: Master) -> None:
    """Several accept the request and do not answer, for longer than this test waits."""
    master.silent.set()
    silent = {f"s{i}": TARGET for i in range(8)}
    _write(api, "done")
    with running(api, master.port) as asking:
        asking.set_targets(silent)
        until(lambda: len(master.asked) == len(silent))
        asking.set_targets({**silent, "dead": PollTarget("ml", "net-master", "", "secret")})
        until(asking.reports)

        assert asking.reports().keys() == {"dead"}


def test_a_silent_master_counts_as_one_that_does_not_answer(
    api: FakeApi, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while the ConfigMap is read instead."""
    monkeypatch.setattr(master_poller, "TIMEOUT_S", 0.01)
    master.silent.set()
    _write(api, "done")
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)

        assert asking.reports()["u"].state is ReportedState.DONE


def test_few_questions_are_under_way_at_one_time(
    api: FakeApi, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent masters use a bounded number of connections, and others are polled as well."""
    monkeypatch.setattr(master_poller, "_MAX_OPEN", 3)
    monkeypatch.setattr(master_poller, "TIMEOUT_S", LONG_S)
    master.silent.set()
    with running(api, master.port) as asking:
        asking.set_targets({str(i): TARGET for i in range(9)})
        until(lambda: master.open == 3)
        master.leave.set()
        until(lambda: len(asking.reports()) == 9)

    assert master.most_open == 3


def test_a_config_map_that_cannot_be_read_says_nothing(api: FakeApi) -> None:
    """It is tried again later, and the thread lives on."""
    api.faults.fail_next(errors.Unavailable("no"))
    with running(api, 1) as asking:
        asking.set_targets({"u": PollTarget("ml", "net-master", "", "secret")})
        until(lambda: not api.faults._faults)  # noqa: SLF001 - that it was asked
        _write(api, "done")
        asking.set_targets({"u": PollTarget("ml", "net-master", "", "secret", generation=1)})
        until(asking.reports)


@pytest.mark.usefixtures("patient")
def test_stopping_does_not_wait_for_masters(api: FakeApi, master: Master) -> None:
    """A question under way is dropped."""
    master.silent.set()
    with running(api, master.port) as asking:
        asking.set_targets({"u": TARGET})
        until(lambda: master.asked)
    until(lambda: "masters" not in {thread.name for thread in threading.enumerate()})


def test_nobody_listens_at_all(api: FakeApi) -> None:
    """A refused connection is not a report."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = int(server.getsockname()[1])
    _write(api, "done")
    with running(api, free) as asking:
        asking.set_targets({"u": TARGET})
        until(asking.reports)
