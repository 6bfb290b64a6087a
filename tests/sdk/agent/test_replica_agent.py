"""`edl agent --replica`: the processes of a pod live and die together, and need no master themselves."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.agent.test_agent import agent
from tests.sdk.support.trainers import Job

DIES_ONCE = """
if e["RANK"] == "0":
    pathlib.Path("begun").touch()
elif not pathlib.Path("died").exists():
    until("begun")
    pathlib.Path("died").touch()
    {how}
if e["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(100)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A master, and agents that end with the test."""
    running = Job(tmp_path / "job")
    yield running
    running.close()


def test_the_world_is_the_pod(job: Job) -> None:
    """Ranks begin at 0 in each pod, and all processes have the pod's name."""
    script = "os.write(1, f'trainer {e[\"EDL_TRAINER\"]}\\n'.encode())"
    agents = [agent(job, number, script, "--replica") for number in range(2)]
    for number, pod in enumerate(agents):
        assert pod.ends() == 0
        assert all(f"runs {rank}/2 local {rank}" in pod.text for rank in range(2)), pod.text
        assert pod.text.count(f"trainer trainer-{number}\n") == 2
    assert job.status["trainers"] == {}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "process 1 was killed by SIGKILL"),
        ("sys.exit(143)", "process 1 exited with code 143"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "process 1 is stopped"),
    ],
)
def test_all_are_started_again_where_one_is_lost(job: Job, how: str, text: str) -> None:
    """At once: what is left of a replica is not asked to end."""
    pod = agent(job, 0, DIES_ONCE.format(how=how), "--replica")
    assert pod.ends() == 0
    assert f"{text}" in pod.text
    assert pod.text.count("runs 0/2 local 0") == 2


def test_failures_have_an_end(job: Job) -> None:
    """The agent ends with 1, and the job goes on without its pod."""
    pod = agent(job, 0, "sys.exit(3)", "--replica", "--max-restarts", "1")
    assert pod.ends() == 1
    assert "have failed 2 times (--max-restarts 1); last failure: process" in pod.text
    assert job.status["state"] != "failed"


def test_sigterm_is_passed_on(job: Job) -> None:
    """The processes may end within their grace; the agent ends with 143."""
    script = """
def end(*_):
    os.write(1, b"ends itself\\n")
    os._exit(143)
signal.signal(signal.SIGTERM, end)
os.write(1, b"waits\\n")
time.sleep(100)
"""
    pod = agent(job, 0, script, "--replica", "--nproc", "1")
    pod.says("waits")
    os.kill(pod.process.pid, signal.SIGTERM)
    assert pod.ends() == 143
    assert "ends itself" in pod.text
