"""SIGTERM, on real processes: out within the grace, with 143, and nothing is left leased.

What a program would do without it takes longer than any test: that it has ended is the fact. How
soon it does is measured in a journey.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.sdk.support.contract import Master
from tests.sdk.support.fake_master import Task
from tests.sdk.support.loops import LIMIT_S, until
from tests.sdk.support.master_server import TOKEN, Server

Start = Callable[[str], "subprocess.Popen[str]"]

HEAD = """
import sys, time, edl
def step(seconds):
    print("step", flush=True)
    time.sleep(seconds)
data = edl.from_function("train", int, 400)
"""


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Starts programs and waits for their first step."""
    running: list[subprocess.Popen[str]] = []

    def run(body: str) -> subprocess.Popen[str]:
        environment = {"EDL_MASTER": server.url, "EDL_TOKEN": TOKEN, "EDL_TRAINER": "trainer-0"}
        program = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", HEAD + body],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "step\n"
        return program

    yield run
    for started in running:
        started.kill()
        started.communicate()


def _end(program: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and log after SIGTERM."""
    program.send_signal(signal.SIGTERM)
    _, text = program.communicate(timeout=LIMIT_S)
    return program.returncode, text


def _tasks(server: Server) -> list[Task]:
    with server.master.changed:
        return list(server.master.state.tasks.values())


LOOP = """
for batch in edl.batches(data, 4, task_records=4):
    step({seconds})
print("never reached")
"""


def test_the_batch_in_hand_is_finished_and_acknowledged(server: Server, start: Start) -> None:
    """Short steps: all that was trained is acknowledged, the rest is handed back."""
    program = start(LOOP.format(seconds=0.2))
    code, text = _end(program)

    assert code == 143
    assert {None} == {task.holder for task in _tasks(server)}
    assert sum(task.done is not None for task in _tasks(server)) == 1
    assert server.master.members["trainer-0"].has_left
    assert "4 records trained, 4 acknowledged" in text


def test_a_step_that_outlasts_the_grace_is_given_up(server: Server, start: Start) -> None:
    """Its task goes back; the process is out in time all the same."""
    code, text = _end(start(LOOP.format(seconds=600)))

    assert code == 143
    assert {None} == {task.holder for task in _tasks(server)}
    assert {None} == {task.done for task in _tasks(server)}
    assert "takes longer than the grace" in text


def test_a_master_that_is_away_delays_nothing(server: Server, start: Start) -> None:
    """The leave cannot be reported, and is logged."""
    program = start(LOOP.format(seconds=0.1))
    server.stop()
    code, text = _end(program)

    assert code == 143
    assert "the master, which will notice missing heartbeats" in text


def test_a_program_that_catches_everything_ends_too(start: Start) -> None:
    """Even `except BaseException` in an endless loop does not outlive the grace."""
    program = start("""
while True:
    try:
        for batch in edl.batches(data, 4):
            step(0.05)
    except BaseException:
        time.sleep(1000)
""")
    code, _ = _end(program)

    assert code == 143


def test_a_program_that_waits_for_its_master_ends_too(server: Server, start: Start) -> None:
    """It has not joined yet; as the first process of a container nothing else would end it."""
    server.stop()
    program = start("""
step(0)
edl.session().join()
""")
    assert program.stderr is not None
    while "retrying" not in program.stderr.readline():
        pass
    code, _ = _end(program)

    assert code == 143


def test_a_program_with_a_handler_of_its_own_keeps_it(server: Server, start: Start) -> None:
    """It may end its loop by `edl.session().stop()`, and choose its exit code."""
    program = start("""
import signal
def handle(number, frame):
    edl.session().stop()
signal.signal(signal.SIGTERM, handle)
for batch in edl.batches(data, 4):
    step(0.05)
sys.exit(7)
""")
    code, _ = _end(program)

    assert code == 7
    assert {None} == {task.holder for task in _tasks(server)}


def test_a_program_that_ends_by_itself_leaves_the_job(server: Server, start: Start) -> None:
    """After an error outside of the loop, leases are handed back at once."""
    program = start(
        """
loop = iter(edl.batches(data, 4))
next(loop)
raise SystemExit(3)
""".replace("next(loop)", "next(loop); step(0)")
    )
    program.communicate(timeout=LIMIT_S)

    assert program.returncode == 3
    assert server.master.members["trainer-0"].has_left
    assert {None} == {task.holder for task in _tasks(server)}


def test_a_trainer_that_waits_for_work_leaves_at_once(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call waits at the master; it is not asked again with a wait, however long the grace."""
    master = Master(server.port, TOKEN)
    master.describe("train", records=400, task_records=4)
    other = master.join("other")
    assert len(other.work(99)["tasks"]) == 99
    monkeypatch.setenv("EDL_GRACE_S", "600")
    program = start(
        "import edl.data.work_fetcher\nedl.data.work_fetcher.POLL_S = 600.0\n"
        + LOOP.format(seconds=0.01)
    )
    until(lambda: any(body["wait_s"] for body in server.bodies("/v1/work")))
    before = len(server.bodies("/v1/work"))
    code, _ = _end(program)

    assert code == 143
    assert not any(body["wait_s"] for body in server.bodies("/v1/work")[before:])
