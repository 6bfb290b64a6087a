"""The rendezvous over HTTP, with the SDK's members, and masters that die."""

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
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous

from master.membership import DISCONNECTED_S, ENDED_S, PROBE_S
from master.round import WINDOW_S
from tests.master.processes import MasterProcess
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import LIMIT_S, until
from tests.sdk.support.contract import Master
from tests.sdk.support.contract_rendezvous import poll_until_newer, together

Start = Callable[..., Rendezvous]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A master in this process."""
    running_master = Served(tmp_path / "journal", heartbeat_s=5.0)
    yield running_master
    running_master.stop()


@pytest.fixture
def master(served: Served) -> Master:
    """A client of it."""
    return Master(served.port, TOKEN)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts members, and closes them after the test."""
    members: list[Rendezvous] = []

    def make(port: int, trainer: str, **code: str) -> Rendezvous:
        settings = Settings(f"http://127.0.0.1:{port}", TOKEN, trainer, patience_s=LIMIT_S)
        members.append(Rendezvous(settings, f"{trainer}-1", f"{trainer}:1", code))
        members[-1].start()
        return members[-1]

    yield make
    for member in members:
        member.close()


class Program(threading.Thread):
    """A training program that enters each round it can enter, and is ready in it."""

    def __init__(self, member: Rendezvous) -> None:
        super().__init__(daemon=True)
        self.member = member
        self.rounds: list[Round] = []
        self.start()

    def run(self) -> None:
        """Runs until the member is closed or has left."""
        number = 0
        while True:
            try:
                round_ = self.member.next(number)
            except Exception:  # noqa: BLE001 - the end, whatever it is
                return
            number = round_.number
            self.rounds.append(round_)
            self.member.ready(number)

    @property
    def world_size(self) -> int:
        """Number of members of the newest round."""
        return self.rounds[-1].world_size if self.rounds else 0


def _wait_there(served: Served, calls: int) -> None:
    """Returns when this many calls wait at the master."""
    until(lambda: served.service.long_polls.waiting == calls)


def _formed(served: Served) -> None:
    """Returns when all members are ready."""
    until(lambda: served.service.status()["rendezvous"]["formed"])


def _void(served: Served, number: int) -> bool:
    """Whether the master has marked a round as unable to continue."""
    return served.service.long_polls._rendezvous.void == number  # noqa: SLF001 - no answer has it yet


def _has_answered(served: Served, trainer: str) -> bool:
    """Whether a member has answered a probe."""
    rendezvous = served.service.long_polls._rendezvous  # noqa: SLF001 - only this has it
    number = rendezvous._probe.number  # noqa: SLF001 - see above
    return number > 0 and rendezvous._live[trainer].probe == number  # noqa: SLF001 - see above


def _patience(served: Served, trainer: str) -> float:
    """How many times as long as others a member may take: more than one where it stalled before."""
    return served.service.long_polls._rendezvous._live[trainer].patience  # noqa: SLF001 - see above


def _together(programs: list[Program], world_size: int) -> None:
    until(lambda: {program.world_size for program in programs} == {world_size})


def test_a_call_that_waits_is_answered_by_the_news(served: Served, master: Master) -> None:
    """By a probe: not when its own time is over, which is after this test's."""
    waiting_caller, other = together(master, "a", "b")
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(waiting_caller.poll(wait_s=30.0)))
    served.clock.hold()  # no round is proclaimed
    waiting.start()
    _wait_there(served, 1)
    other.breaks()  # requests a probe at once
    waiting.join(LIMIT_S)

    assert [answer["probe"] for answer in answers] == [1]


def test_changes_of_a_moment_make_one_round(served: Served, start: Start) -> None:
    """Eight arrive in one round; three leave, which makes one more."""
    served.clock.hold()  # the window is as long as the machine needs
    members = [start(served.port, f"t-{number}") for number in range(8)]
    programs = [Program(member) for member in members]
    _wait_there(served, 8)
    served.pass_s(WINDOW_S)
    _together(programs, 8)
    _formed(served)
    for leaving in members[:3]:
        leaving.leave(LIMIT_S)
    served.pass_s(WINDOW_S)
    _together(programs[3:], 5)
    _formed(served)
    ranks = sorted(program.rounds[-1].rank for program in programs[3:])

    assert ranks == [0, 1, 2, 3, 4]
    assert [[round_.number for round_ in program.rounds] for program in programs[3:]] == [
        [1, 2]
    ] * 5
    assert [[round_.number for round_ in program.rounds] for program in programs[:3]] == [[1]] * 3


def test_a_member_whose_connections_are_all_cut_is_out_sooner(
    served: Served, master: Master
) -> None:
    """Those of a process that is killed: for calls that wait, and for reports."""
    caller, other = together(master, "a", "b")
    long_polls = served.service.long_polls
    links = [http.client.HTTPConnection("127.0.0.1", master.port, timeout=60) for _ in range(2)]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for link, wait_s in zip(links, (0.0, 20.0), strict=True):
        link.request("POST", "/v1/rendezvous", json.dumps(caller.body(wait_s=wait_s)), headers)
        if not wait_s:
            link.getresponse().read()
    _wait_there(served, 1)
    served.clock.hold()
    number = other.poll()["round"]
    for link in links:
        link.close()
    rendezvous = long_polls._rendezvous  # noqa: SLF001 - only this has it
    until(lambda: rendezvous._live["a"].has_ended)  # noqa: SLF001 - see above
    served.pass_s(ENDED_S)
    until(lambda: "a" not in rendezvous._live)  # noqa: SLF001 - see above
    assert other.poll()["void"] == number


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_member_whose_connection_is_cut_is_out_soon(
    served: Served, master: Master, *, is_answered: bool
) -> None:
    """While it waits, or when the probe for it has answered its call: no other limit need pass."""
    caller, other = together(master, "a", "b")
    rendezvous = served.service.long_polls._rendezvous  # noqa: SLF001 - only this has it
    link = http.client.HTTPConnection("127.0.0.1", master.port, timeout=60)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    link.request("POST", "/v1/rendezvous", json.dumps(caller.body(wait_s=20.0)), headers)
    _wait_there(served, 1)
    served.clock.hold()  # so that no member is silent for long
    if is_answered:
        other.breaks()
        link.getresponse().read()
    link.close()
    number = other.poll()["round"]
    until(lambda: rendezvous._live["a"].disconnected_s is not None)  # noqa: SLF001 - see above
    assert is_answered or not _void(served, number)
    served.pass_s(DISCONNECTED_S)
    until(lambda: "a" not in rendezvous._live)  # noqa: SLF001 - see above
    served.pass_s(WINDOW_S)
    poll_until_newer(other, after=number)

    assert other.names == ["b"]


def test_members_send_no_lists_and_a_master_that_was_killed_asks_for_them(
    tmp_path: Path, start: Start
) -> None:
    """The SDK's members: the round continues at the next master."""
    served = Served(tmp_path / "journal", heartbeat_s=5.0)
    members = [start(served.port, name) for name in ("a", "b")]
    programs = [Program(member) for member in members]
    _together(programs, 2)
    _formed(served)
    until(lambda: all(member._is_short for member in members))  # noqa: SLF001 - no answer has it
    assert all("claim" not in member._poll_body() for member in members)  # noqa: SLF001 - see above
    number = programs[0].rounds[-1].number
    port = served.port
    served.kill()
    successor = Served(tmp_path / "journal", heartbeat_s=5.0, port=port)
    try:
        _formed(successor)
        assert successor.service.status()["rendezvous"]["round"] == number
        until(lambda: all(member._is_short for member in members))  # noqa: SLF001 - see above
    finally:
        for member in members:
            member.close()
        successor.stop()


def test_calls_that_wait_end_with_the_master(tmp_path: Path) -> None:
    """They are answered: the end waits neither for their time nor for the drain limit."""
    served = Served(tmp_path / "journal", drain_s=60.0)
    (caller,) = together(Master(served.port, TOKEN), "a")
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(caller.ask(wait_s=30.0)[0]))
    waiting.start()
    _wait_there(served, 1)
    served.stop()
    waiting.join(LIMIT_S)

    assert answers == [200]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[MasterProcess]:
    """A master in a process of its own."""
    running_master = MasterProcess(tmp_path)
    yield running_master
    if running_master.run.poll() is None:
        running_master.end(signal.SIGKILL)


def test_killed_in_a_round_a_master_goes_on_with_it(process: MasterProcess, start: Start) -> None:
    """Members receive no other round until something changes."""
    Master(process.port, TOKEN).describe()  # the ledger is not empty: members may exist
    members = [start(process.port, name) for name in ("a", "b", "c")]
    programs = [Program(member) for member in members]
    _together(programs, 3)
    before = programs[0].rounds[-1]
    process.end(signal.SIGKILL)
    process.start()
    master = Master(process.port, TOKEN)
    until(lambda: master.ask("GET", "/v1/status")[1]["rendezvous"]["formed"])
    rendezvous = master.ask("GET", "/v1/status")[1]["rendezvous"]
    assert rendezvous["round"] == before.number
    assert [member["trainer"] for member in rendezvous["members"]] == [
        m.trainer for m in before.members
    ]
    assert not any(member.newer(before.number) for member in members)
    programs.append(Program(start(process.port, "d")))
    _together(programs, 4)

    assert programs[0].rounds[-1].number == before.number + 1
    assert programs[0].rounds[-1].members[:3] == before.members


_MEMBER = """
import sys, time
from edl import Settings
from edl.master.rendezvous import Rendezvous
one = Rendezvous(Settings(sys.argv[1], sys.argv[2], sys.argv[3]), sys.argv[3], "x:1")
one.start()
number = 0
while True:
    number = one.next(number).number
    one.ready(number)
"""


class Frozen:
    """A member in a process of its own, which can be killed and frozen."""

    def __init__(self, port: int, trainer: str) -> None:
        url = f"http://127.0.0.1:{port}"
        self.run = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _MEMBER, url, TOKEN, trainer], env=dict(os.environ)
        )

    def end(self) -> None:
        """Kills it, also while it is frozen."""
        self.run.send_signal(signal.SIGKILL)
        self.run.wait(LIMIT_S)


@pytest.fixture
def frozen(served: Served) -> Iterator[Frozen]:
    """A running member."""
    frozen_member = Frozen(served.port, "z")
    yield frozen_member
    frozen_member.end()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_frozen_is_out_while_others_wait(
    served: Served, frozen: Frozen, start: Start, how: signal.Signals
) -> None:
    """A waiting member reports it, and the master probes: the 3 s limit need not pass."""
    _formed(served)
    member = start(served.port, "a")
    news = threading.Event()
    member.on_void(news.set)
    program = Program(member)
    _together([program], 2)
    _formed(served)
    number = program.rounds[-1].number
    served.clock.hold()
    frozen.run.send_signal(how)
    member.waiting(clock.monotonic_s())
    until(lambda: _has_answered(served, "a"))
    served.pass_s(PROBE_S * _patience(served, "z"))
    until(lambda: _void(served, number))
    served.pass_s(WINDOW_S)
    until(lambda: program.world_size == 1)

    assert news.wait(LIMIT_S)
    if how is signal.SIGSTOP:
        served.clock.resume()
        frozen.run.send_signal(signal.SIGCONT)
        _together([program], 2)
        assert program.rounds[-1].rank == 0


def test_who_lets_others_wait_for_longer_than_the_setting_is_out(tmp_path: Path) -> None:
    """The setting is `--stuck-seconds`."""
    process = MasterProcess(tmp_path, "--stuck-seconds", "1")
    try:
        caller, other = together(Master(process.port, TOKEN), "a", "b")
        number = caller.newest_round
        caller.poll(waiting_s=0.7)
        assert other.poll()["dropped"] is False
        caller.poll(waiting_s=1.1)
        poll_until_newer(caller, after=number)
        answer = other.poll()
    finally:
        process.end(signal.SIGTERM)

    assert caller.names == ["a"]
    assert answer["dropped"] is True
