"""`edl agent --members`: each process is a trainer of its own, and is started again alone."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl.__main__ import main

from tests.sdk.support.trainers import Job, Trainer

HEAD = """
import os, pathlib, signal, sys, time
import edl
e = os.environ
rank = e["LOCAL_RANK"]
def until(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
os.write(1, f"{e['EDL_TRAINER']} is {rank} of {e['LOCAL_WORLD_SIZE']} pid {os.getpid()}\\n".encode())
"""
MEMBER = """
with edl.Rounds() as rounds:
    for round in rounds:
        when = "later" if pathlib.Path("died").exists() else "first"
        os.write(1, f"{rank} {when} in a round of {round.world_size}\\n".encode())
        rounds.ready()
        while not rounds.changed:
            if pathlib.Path("go").exists():
                rounds.finish()
                break
            if rank == "0" and when == "first" and pathlib.Path("die").exists():
                pathlib.Path("died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A master, and agents that end with the test."""
    running = Job(tmp_path / "job", heartbeat_s=0.5)
    yield running
    running.close()


def agent(job: Job, script: str, *flags: str) -> Trainer:
    """Starts an agent of two processes with a script."""
    path = Path(job.folder, "train.py")
    path.write_text(HEAD + script, encoding="utf-8")
    command = ["-m", "edl", "agent", "--members", "--nproc", "2", *flags, "--"]
    return job.start("trainer-0", *command, sys.executable, str(path))


def test_a_process_that_is_lost_is_started_again_alone(job: Job) -> None:
    """The other one goes on in the next round, in the same process."""
    pod = agent(job, MEMBER)
    for rank in range(2):
        pod.says(f"{rank} first in a round of 2")
    Path(job.folder, "die").touch()
    for rank in range(2):
        pod.says(f"{rank} later in a round of 2")
    Path(job.folder, "go").touch()
    assert pod.ends() == 0
    assert "process 0 was killed by SIGKILL" in pod.text
    assert pod.text.count("trainer-0:0 is 0 of 2") == 2
    assert pod.text.count("trainer-0:1 is 1 of 2") == 1


def test_failures_have_an_end(job: Job) -> None:
    """The agent ends with 1, and the job goes on without its pod."""
    pod = agent(job, "sys.exit(3 if rank == '1' else 0)", "--max-restarts", "1")
    assert pod.ends() == 1
    assert "have failed 2 times (--max-restarts 1); last failure: process 1" in pod.text
    assert job.status["state"] != "failed"


def test_sigterm_is_passed_on(job: Job) -> None:
    """The processes may end within their grace; the agent ends with 143."""
    script = """
def end(*_):
    os.write(1, f"{rank} ends itself\\n".encode())
    os._exit(143)
signal.signal(signal.SIGTERM, end)
os.write(1, f"{rank} waits\\n".encode())
time.sleep(100)
"""
    pod = agent(job, script)
    for rank in range(2):
        pod.says(f"{rank} waits")
    os.kill(pod.process.pid, signal.SIGTERM)
    assert pod.ends() == 143
    for rank in range(2):
        assert f"{rank} ends itself" in pod.text


def test_a_pod_is_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Members of their own, or one replica together."""
    with pytest.raises(SystemExit):
        main(["agent", "--members", "--replica", "--", "true"])
    assert "not allowed with argument" in capsys.readouterr().err
