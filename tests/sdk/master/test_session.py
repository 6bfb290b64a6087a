import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import edl
import pytest
from edl import Refused, SettingError
from edl.backoff import Backoff
from edl.errors import RecordError, one_line
from edl.master import session as session_module
from edl.master import sigterm
from edl.master.leases import Portion
from edl.master.protocol import Lease

from tests.sdk.conftest import Join
from tests.sdk.support.contract import NUMBERS
from tests.sdk.support.fake_master import Json
from tests.sdk.support.loops import LIMIT_S, until
from tests.sdk.support.master_server import TOKEN, Handler, Server, before_away


@pytest.fixture
def default(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment as `edl run` makes it."""
    environment = {"EDL_MASTER": server.url, "EDL_TOKEN": TOKEN, "EDL_TRAINER": "trainer-0"}
    monkeypatch.setattr("edl.master.session._default", None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield
    edl.session().leave()


@pytest.mark.usefixtures("default")
def test_a_process_is_one_trainer(server: Server) -> None:
    """Its session is created once, and again after it left."""
    first = edl.session()
    assert edl.session() is first
    for _ in edl.batches(edl.from_function("train", int, 8), 4):
        pass
    first.leave()

    assert edl.session() is not first
    assert server.master.members["trainer-0"].has_left


def test_without_an_environment_the_error_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line."""
    monkeypatch.setattr("edl.master.session._default", None)
    monkeypatch.delenv("EDL_MASTER", raising=False)
    with pytest.raises(SettingError, match="edl run"):
        edl.session()


def test_logs_are_shown_unless_the_program_has_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One handler, once; a line has time, name and message, such as why the loops end."""
    ours = logging.getLogger("edl")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(ours, "handlers", [])
    monkeypatch.setattr(ours, "propagate", True)
    before = ours.level
    try:
        session_module.set_up_logging()
        session_module.set_up_logging()
        assert len(ours.handlers) == 1
        assert not ours.propagate
        edl.Session(edl.Settings("http://127.0.0.1:1", TOKEN, "trainer-0")).stop()
        assert re.fullmatch(r"\d\d:\d\d:\d\d edl stopping: asked to\n", capsys.readouterr().err)
    finally:
        ours.setLevel(before)


def test_a_master_that_is_starting_is_waited_for(server: Server, join: Join) -> None:
    """Joining and describing try again and again."""
    server.faults["/v1/join"] = deque([before_away] * 3)
    server.faults["/v1/datasets/train"] = deque([before_away] * 3)
    batches = list(edl.batches(edl.from_function("train", int, 4), 4, member=join()))

    assert batches == [[0, 1, 2, 3]]


@pytest.mark.parametrize(("failures", "warnings"), [(4, 0), (9, 1)])
def test_a_master_that_stays_away_is_named_once(
    server: Server,
    join: Join,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    failures: int,
    warnings: int,
) -> None:
    """One that starts with its trainers, as those of `edl run`, is no news."""
    monkeypatch.setattr(session_module, "Backoff", partial(Backoff, 0.001, 0.001))
    server.faults["/v1/join"] = deque([before_away] * failures)
    join().join()

    assert sum("retrying for" in line for line in caplog.messages) == warnings


def test_a_master_that_forgot_the_trainer_while_it_describes_is_joined_again(
    server: Server, join: Join
) -> None:
    """Between the join and the description another took over."""
    member = join()
    member.join()
    server.master.take_over()
    batches = list(edl.batches(edl.from_function("train", int, 4), 4, member=member))

    assert batches == [[0, 1, 2, 3]]
    assert member.joins == 2


def test_a_refused_heartbeat_is_logged_and_ends_nothing(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad request does not stop the loop."""

    def before(handler: Handler, _: Json) -> bool:
        handler.say(400, b'{"error": {"message": "held is odd"}}')
        return True

    server.faults["/v1/heartbeat"] = deque([before, before_away])
    member = join()
    member.join()
    until(lambda: len(server.bodies("/v1/heartbeat")) >= 4)

    assert "refuses this trainer's heartbeat: held is odd" in caplog.text
    assert not member.stopping


def test_a_replaced_trainer_sends_no_more_heartbeats(server: Server, join: Join) -> None:
    """After one refusal only the process that has the name now sends heartbeats."""
    old, new = join(), join()

    def beats(member: edl.Session) -> int:
        bodies = server.bodies("/v1/heartbeat")
        return sum(body["incarnation"] == member.incarnation for body in bodies)

    old.join()
    new.join()
    until(lambda: old.stopping)
    last, before = beats(old), beats(new)
    until(lambda: beats(new) >= before + 5)

    assert beats(old) == last


def test_a_session_leaves_once(server: Server, join: Join) -> None:
    """And needs not have joined."""
    join().leave()
    member = join("trainer-1")
    member.join()
    member.leave()
    member.leave()

    assert len(server.bodies("/v1/leave")) == 1
    assert member.over


@pytest.mark.parametrize(
    ("away", "text"),
    [
        ("", ""),
        ("/v1/work", "; could not report all results"),
        ("/v1/leave", "; could not tell the master, which will notice missing heartbeats"),
    ],
)
def test_the_last_line_says_what_became_of_all_that_was_trained(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture, away: str, text: str
) -> None:
    """One task is done, another was begun; a task that is not reported keeps one record to do."""
    caplog.set_level(logging.INFO, "edl")
    member = join()
    member.join()
    member.describe("train", {**NUMBERS, "records": 20})
    first, second = (_lease(index) for index in range(2))
    for lease in (first, second):
        member.lease_table.add(lease)
    member.lease_table.record_step([Portion(first, 10), Portion(second, 4)], {})
    server.faults[away] = deque([before_away])
    member.leave()

    counts, back = "14 acknowledged, 1 task", 1
    if away == "/v1/work":
        counts, back = "13 acknowledged, 1 lost, 2 tasks", 2
    assert caplog.records[-1].message == (
        f"trainer-0 left job digits: 14 records trained, {counts} handed back{text}"
    )
    assert len(server.bodies("/v1/leave")[0]["back"]) == back


def test_a_trainer_that_leased_nothing_says_only_that_it_left(
    join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """As the members of a group, whose leader leases for all."""
    caplog.set_level(logging.INFO, "edl")
    member = join()
    member.join()
    member.leave()

    assert caplog.records[-1].message == "trainer-0 left job digits"


def _lease(index: int) -> Lease:
    start = 10 * index
    return Lease(f"train/0/{index}", 1, "training", "train", 0, start, start + 10, None, 60.0)


def test_a_forked_child_is_no_trainer(server: Server, join: Join) -> None:
    """It neither leaves for its parent nor beats for it."""
    member = join()
    member.join()
    child = os.fork()
    if child == 0:
        member.leave()
        os._exit(0 if member.over else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert server.bodies("/v1/leave") == []


@pytest.fixture
def free() -> Iterator[None]:
    """SIGTERM does what it does in any program that has asked for nothing else."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("free")
def test_sigterm_is_taken_only_where_it_is_free() -> None:
    """Not from a program's own handler, not outside of the main thread; and it is given back."""
    received = threading.Event()
    watcher = sigterm.SigtermWatcher(received.set)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(watcher.install()))
    thread.start()
    thread.join()
    assert results == [False]
    assert watcher.install()
    second_watcher = sigterm.SigtermWatcher(received.set)
    assert not second_watcher.install()
    second_watcher.remove()
    os.kill(os.getpid(), signal.SIGTERM)
    assert received.wait(LIMIT_S)
    watcher.remove()

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("free")
def test_no_signal_is_written_into_a_file_after_the_watch_is_over() -> None:
    """Though the program has a handler of its own by then: the pipe's number is another file's."""
    watcher = sigterm.SigtermWatcher(lambda: None)
    assert watcher.install()
    signal.signal(signal.SIGTERM, lambda *_: None)
    watcher.remove()

    assert signal.set_wakeup_fd(-1) == -1


def test_sigterm_ends_a_program_whose_other_thread_has_left() -> None:
    """At once, as without EDL: only the main thread can give the signal back."""
    program = """
import threading, time
from edl.master import sigterm

watcher = sigterm.SigtermWatcher(lambda: print("received", flush=True))
assert watcher.install()
thread = threading.Thread(target=watcher.remove)
thread.start()
thread.join()
print("removed", flush=True)
time.sleep(600)
"""
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "removed\n"
        process.terminate()
        output, code = process.stdout.read(), process.wait(LIMIT_S)

    assert (output, code) == ("", 143)


@pytest.mark.usefixtures("free")
def test_sigterm_is_received_under_asyncio_too() -> None:
    """Whose wake-up pipe is left alone."""

    async def main() -> None:
        loop, received = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, lambda: None)
        watcher = sigterm.SigtermWatcher(lambda: loop.call_soon_threadsafe(received.set))
        assert watcher.install()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(received.wait(), LIMIT_S)
        watcher.remove()

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_process_ends_with_the_grace_at_the_latest(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the program does: counted from SIGTERM, and it has left before."""
    member, over = join(grace_s=0.7), threading.Event()
    ends: list[tuple[float, bool]] = []

    def end(until_s: float) -> None:
        over.wait(LIMIT_S)
        ends.append((round(until_s, 3), member.over))

    member.join()
    with monkeypatch.context() as patch:
        patch.setattr(session_module, "_exit_at", end)
        patch.setattr("edl.clock.monotonic_s", lambda: 100.0)
        member._on_sigterm()  # noqa: SLF001 - the signal itself would end this process, too
    over.set()
    until(lambda: ends)
    member.exits = False  # this process goes on

    assert ends == [(100.7, True)]


@pytest.mark.parametrize(("until_s", "wait_s"), [(100.7, 0.7), (99.0, 0.0)])
def test_the_end_of_the_grace_is_waited_for_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, until_s: float, wait_s: float
) -> None:
    """Then the process ends with the code of SIGTERM; one that is late already ends at once."""
    waits: list[float] = []
    codes: list[int] = []
    event = SimpleNamespace(wait=lambda seconds: waits.append(round(seconds, 3)))
    module = session_module
    with monkeypatch.context() as patch:
        patch.setattr(module, "threading", SimpleNamespace(Event=lambda: event))
        patch.setattr(module, "os", SimpleNamespace(_exit=codes.append))
        patch.setattr("edl.clock.monotonic_s", lambda: 100.0)
        module._exit_at(until_s)  # noqa: SLF001 - a thread calls it, and it ends the process

    assert (waits, codes) == ([wait_s], [143])


def test_a_refusal_while_joining_ends_the_program(server: Server, join: Join) -> None:
    """It would be refused again."""

    def before(handler: Handler, _: Json) -> bool:
        handler.say(422, b'{"error": {"message": "too long", "field": "trainer"}}')
        return True

    server.faults["/v1/join"] = deque([before])
    with pytest.raises(Refused, match="too long"):
        join().join()


def test_errors_are_one_line() -> None:
    """Without a trace."""
    cause: Any = ValueError("two\nlines")

    assert one_line(cause) == "ValueError: two lines"
    assert one_line(KeyError()) == "KeyError"
    assert str(RecordError(7, cause)) == "record 7: ValueError: two lines"
