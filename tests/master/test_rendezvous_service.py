"""The rendezvous over HTTP: who hears what when, with the SDK's members and masters that die."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edl import Settings, clock
from edl.rendezvous import Rendezvous, Round

from master.attendance import HUNG_UP_S, PROBE_S
from master.rendezvous import WINDOW_S
from tests.master.serving import LIMIT_S, TOKEN, Served
from tests.master.test_process import Process
from tests.reconciler.waiting import until
from tests.sdk.contract import Master
from tests.sdk.contract_meetings import meet, together

Start = Callable[..., Rendezvous]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A master in this process."""
    found = Served(tmp_path / "journal", heartbeat_s=5.0)
    yield found
    found.stop()


@pytest.fixture
def master(served: Served) -> Master:
    """How to speak with it."""
    return Master(served.port, TOKEN)


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes members, and closes them after the test."""
    made: list[Rendezvous] = []

    def make(port: int, trainer: str, **code: str) -> Rendezvous:
        found = Settings(f"http://127.0.0.1:{port}", TOKEN, trainer, patience_s=10.0)
        made.append(Rendezvous(found, f"{trainer}-1", f"{trainer}:1", code))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


class Program(threading.Thread):
    """Enters each round it can enter, and is ready in it."""

    def __init__(self, member: Rendezvous) -> None:
        super().__init__(daemon=True)
        self.member = member
        self.rounds: list[Round] = []
        self.start()

    def run(self) -> None:
        """Until the member is closed or has left."""
        number = 0
        while True:
            try:
                found = self.member.next(number)
            except Exception:  # noqa: BLE001 - the end, whatever it is
                return
            number = found.number
            self.rounds.append(found)
            self.member.ready(number)

    @property
    def world(self) -> int:
        """Of the newest round."""
        return self.rounds[-1].world if self.rounds else 0


def _wait_there(served: Served, calls: int) -> None:
    """Returns when so many calls wait at the master."""
    until(lambda: served.service.meetings.waiting == calls)


def _formed(served: Served) -> None:
    """Returns when all members are ready."""
    until(lambda: served.service.status()["rendezvous"]["formed"])


def _void(served: Served, number: int) -> bool:
    """Whether the master knows that a round can do nothing more."""
    return served.service.meetings._rendezvous.void == number  # noqa: SLF001 - nobody hears it yet


def _has_answered(served: Served, trainer: str) -> bool:
    """Whether a member has answered a probe."""
    rendezvous = served.service.meetings._rendezvous  # noqa: SLF001 - only it knows
    number = rendezvous._probe.number  # noqa: SLF001 - see above
    return number > 0 and rendezvous._live[trainer].probe == number  # noqa: SLF001 - see above


def _together(programs: list[Program], world: int) -> None:
    until(lambda: {one.world for one in programs} == {world})


def test_a_call_that_waits_is_answered_by_the_news(served: Served, master: Master) -> None:
    """Of a probe: not when its own time is over, which is later than this test waits."""
    one, other = together(master, "a", "b")
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(one.poll(wait_s=30.0)))
    served.clock.hold()  # no round comes
    waiting.start()
    _wait_there(served, 1)
    other.breaks()  # makes a probe at once
    waiting.join(LIMIT_S)

    assert [answer["probe"] for answer in answers] == [1]


def test_changes_of_a_moment_make_one_round(served: Served, start: Start) -> None:
    """Eight arrive, and there is one round for them; three leave, and there is one more."""
    served.clock.hold()  # a moment is as long as the machine needs
    members = [start(served.port, f"t-{number}") for number in range(8)]
    programs = [Program(one) for one in members]
    _wait_there(served, 8)
    served.pass_s(WINDOW_S)
    _together(programs, 8)
    _formed(served)
    for one in members[:3]:
        one.leave(LIMIT_S)
    served.pass_s(WINDOW_S)
    _together(programs[3:], 5)
    _formed(served)
    ranks = sorted(one.rounds[-1].rank for one in programs[3:])

    assert ranks == [0, 1, 2, 3, 4]
    assert [[each.number for each in one.rounds] for one in programs[3:]] == [[1, 2]] * 5
    assert [[each.number for each in one.rounds] for one in programs[:3]] == [[1]] * 3


def test_a_member_whose_connection_is_cut_is_out_soon(served: Served, master: Master) -> None:
    """While it waits: nobody has to be silent for 3 s then."""
    one, other = together(master, "a", "b")
    link = http.client.HTTPConnection("127.0.0.1", master.port, timeout=10)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    link.request("POST", "/v1/rendezvous", json.dumps(one.body(wait_s=20.0)), headers)
    _wait_there(served, 1)
    served.clock.hold()  # so nobody is silent for long
    link.close()
    _wait_there(served, 0)
    number = other.poll()["round"]
    assert not _void(served, number)
    served.pass_s(HUNG_UP_S)
    until(lambda: _void(served, number))
    served.pass_s(WINDOW_S)
    meet(other, after=number)

    assert other.names == ["b"]


def test_the_status_says_who_trains_together(served: Served, master: Master) -> None:
    """With ranks; whoever leads costs the others more to lose."""
    for name in ("a", "b"):
        master.join(name)
    master.join("c")
    together(master, "b", "a")
    status = master.ask("GET", "/v1/status")[1]
    trainers = status["trainers"]

    assert status["rendezvous"]["formed"] is True
    assert [one["trainer"] for one in status["rendezvous"]["members"]] == ["b", "a"]
    assert {name: one["rank"] for name, one in trainers.items()} == {"a": 1, "b": 0, "c": None}
    assert trainers["b"]["uncommitted_s"] >= 10.0
    assert trainers["a"]["uncommitted_s"] == 0.0
    assert served.service.ledger.members.find("b") is not None


def test_page_and_metrics_show_rounds_and_setbacks(master: Master) -> None:
    """As text, with what trainers wrote made harmless."""
    one = master.join("a")
    together(master, "a", "b")
    one.ok("POST", "/v1/setbacks", event="e", reason="<b>server 1</b> died", steps=2, records=64)
    page = _text(master, "/")
    metrics = _text(master, "/metrics")

    assert "with 2, the oldest first: a, b" in page
    assert "&lt;b&gt;server 1&lt;/b&gt; died (2 steps, 64 records)" in page
    assert "edl_master_rendezvous_members_count 2.0" in metrics
    assert 'edl_master_setbacks_count{what="records"} 64.0' in metrics


def test_a_page_without_rounds_says_nothing_of_them(master: Master) -> None:
    """Trainers that work each for itself have none."""
    page = _text(master, "/")

    assert "Trained together" not in page
    assert "Setbacks" not in page


def test_calls_that_wait_end_with_the_master(tmp_path: Path) -> None:
    """It answers them: its end needs neither their time nor its own patience with calls."""
    served = Served(tmp_path / "journal", drain_s=60.0)
    (caller,) = together(Master(served.port, TOKEN), "a")
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(caller.ask(wait_s=30.0)[0]))
    waiting.start()
    _wait_there(served, 1)
    served.stop()
    waiting.join(LIMIT_S)

    assert answers == [200]


def _text(master: Master, path: str) -> str:
    link = http.client.HTTPConnection("127.0.0.1", master.port, timeout=10)
    try:
        link.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        return link.getresponse().read().decode()
    finally:
        link.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A master in a process of its own."""
    found = Process(tmp_path)
    yield found
    if found.run.poll() is None:
        found.end(signal.SIGKILL)


def test_killed_in_a_round_a_master_goes_on_with_it(process: Process, start: Start) -> None:
    """Nobody hears of another round, until something changes."""
    Master(process.port, TOKEN).describe()  # the books are not empty: somebody may be there
    members = [start(process.port, name) for name in ("a", "b", "c")]
    programs = [Program(one) for one in members]
    _together(programs, 3)
    before = programs[0].rounds[-1]
    process.end(signal.SIGKILL)
    process.start()
    master = Master(process.port, TOKEN)
    until(lambda: master.ask("GET", "/v1/status")[1]["rendezvous"]["formed"])
    found = master.ask("GET", "/v1/status")[1]["rendezvous"]
    assert found["round"] == before.number
    assert [one["trainer"] for one in found["members"]] == [m.trainer for m in before.members]
    assert not any(one.newer(before.number) for one in members)
    programs.append(Program(start(process.port, "d")))
    _together(programs, 4)

    assert programs[0].rounds[-1].number == before.number + 1
    assert programs[0].rounds[-1].members[:3] == before.members


_MEMBER = """
import sys, time
from edl import Settings
from edl.rendezvous import Rendezvous
one = Rendezvous(Settings(sys.argv[1], sys.argv[2], sys.argv[3]), sys.argv[3], "x:1")
one.start()
number = 0
while True:
    number = one.next(number).number
    one.ready(number)
"""


class Frozen:
    """A member in a process of its own, to be killed and frozen."""

    def __init__(self, port: int, trainer: str) -> None:
        url = f"http://127.0.0.1:{port}"
        self.run = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _MEMBER, url, TOKEN, trainer], env=dict(os.environ)
        )

    def end(self) -> None:
        """Whatever state it is in."""
        self.run.send_signal(signal.SIGKILL)
        self.run.wait(LIMIT_S)


@pytest.fixture
def frozen(served: Served) -> Iterator[Frozen]:
    """One that runs."""
    found = Frozen(served.port, "z")
    yield found
    found.end()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_frozen_is_out_while_others_wait(
    served: Served, frozen: Frozen, start: Start, how: signal.Signals
) -> None:
    """Who waits tells the master, which asks all: nobody has to be silent for 3 s."""
    _formed(served)
    one = start(served.port, "a")
    news = threading.Event()
    one.on_news(news.set)
    program = Program(one)
    _together([program], 2)
    _formed(served)
    number = program.rounds[-1].number
    served.clock.hold()
    frozen.run.send_signal(how)
    one.waiting(clock.monotonic_s())
    until(lambda: _has_answered(served, "a"))
    served.pass_s(PROBE_S)
    until(lambda: _void(served, number))
    served.pass_s(WINDOW_S)
    until(lambda: program.world == 1)

    assert news.wait(LIMIT_S)
    if how is signal.SIGSTOP:
        served.clock.go_on()
        frozen.run.send_signal(signal.SIGCONT)
        _together([program], 2)
        assert program.rounds[-1].rank == 0


def test_who_lets_others_wait_for_longer_than_the_setting_is_out(tmp_path: Path) -> None:
    """`--stuck-seconds` of the command."""
    process = Process(tmp_path, "--stuck-seconds", "1")
    try:
        one, other = together(Master(process.port, TOKEN), "a", "b")
        number = one.seen
        one.poll(waiting_s=0.7)
        assert other.poll()["dropped"] is False
        one.poll(waiting_s=1.1)
        meet(one, after=number)
        told = other.poll()
    finally:
        process.end(signal.SIGTERM)

    assert one.names == ["a"]
    assert told["dropped"] is True


def _who(**more: Any) -> dict[str, Any]:
    return {"trainer": "a", "incarnation": "a-1", "address": "a:1", **more}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (_who(address="nowhere"), "address"),
        (_who(address="a:1234567"), "address"),
        (_who(code={str(number): "x" for number in range(17)}), "code"),
        (_who(code={"a b": "x"}), "code.a b.[key]"),
        (_who(code={"model": 1}), "code.model"),
        (_who(seen=-1), "seen"),
        (_who(waiting_s=-0.1), "waiting_s"),
        (_who(wait_s=31), "wait_s"),
        (_who(claim={"round": 1, "members": []}), "claim.members"),
        (_who(claim={"round": 1, "members": [{"trainer": "a"}]}), "claim.members.0.incarnation"),
    ],
)
def test_mistakes_are_named(master: Master, body: dict[str, Any], field: str) -> None:
    """422 with the field; nobody becomes a member by that."""
    status, answer = master.ask("POST", "/v1/rendezvous", body)

    assert (status, answer["error"]["field"]) == (422, field)
    assert master.ask("GET", "/v1/status")[1]["rendezvous"]["round"] == 0
