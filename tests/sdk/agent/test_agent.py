"""`edl agent` with scripts that read what torchrun would tell them, and a real master."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl.__main__ import main
from edl.agent.snapshot_folder import open_folder
from edl.data.snapshot_parts import find_parts
from edl.master.settings import load

from tests.sdk.support.trainers import Job, Trainer

_AGENTS = 2
"""At most, in a test."""
HEAD = """
import os, pathlib, signal, sys, time
e = os.environ
me = f"{e['RANK']}/{e['WORLD_SIZE']} local {e['LOCAL_RANK']} at {e['MASTER_PORT']}"
def until(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
os.write(1, f"runs {me}\\n".encode())  # at once: two processes write into one pipe
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A master, and agents that end with the test."""
    running = Job(tmp_path / "job")
    yield running
    _close(running)


def _close(job: Job) -> None:
    """Ends the job, and removes the snapshots that agents which were killed would find again."""
    job.close()
    for number in range(_AGENTS):
        folder = open_folder(load({**os.environ, **job.told(f"trainer-{number}")}))
        if folder is not None:
            folder.close()


def agent(job: Job, number: int, script: str, *flags: str) -> Trainer:
    """Starts an agent of two processes with a script."""
    path = Path(job.folder, "train.py")
    path.write_text(HEAD + script, encoding="utf-8")
    command = ["-m", "edl", "agent", "--nproc", "2", *flags, "--", sys.executable, str(path)]
    return job.start(f"trainer-{number}", *command)


def test_processes_of_all_agents_are_one_world(job: Job) -> None:
    """Each has its rank, all the same address; the job is done when all have finished."""
    agents = [agent(job, number, "until('go')") for number in range(2)]
    for ranks, trainer in zip(((0, 1), (2, 3)), _by_rank(agents), strict=True):
        for local, rank in enumerate(ranks):
            trainer.says(f"runs {rank}/4 local {local}")
    ports = {
        line.split(" at ")[1] for t in agents for line in t.text.splitlines() if "/4 local" in line
    }
    assert len(ports) == 1
    Path(job.folder, "go").touch()
    assert [trainer.ends() for trainer in agents] == [0, 0]
    assert job.status["state"] == "done"


def test_a_process_that_dies_is_started_again(job: Job) -> None:
    """At once, with the others of its agent, in a new round."""
    script = """
if e["RANK"] == "1" and not pathlib.Path("died").exists():
    pathlib.Path("died").touch()
    os.kill(os.getpid(), signal.SIGKILL)
if e["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(100)
"""
    trainer = agent(job, 0, script)
    assert trainer.ends() == 0
    assert "is over: process 1 was killed by SIGKILL" in trainer.text


def test_failures_have_an_end(job: Job) -> None:
    """Then the job fails, with a line that says where to look."""
    trainer = agent(job, 0, "sys.exit(3)", "--max-restarts", "1")
    assert trainer.ends() == 1
    assert len(re.findall(r"is over: process \d exited with code 3", trainer.text)) == 2
    assert "have failed 2 times (--max-restarts 1); last failure: process" in trainer.text
    assert job.status["state"] == "failed"


@pytest.fixture
def hasty_job(tmp_path: Path) -> Iterator[Job]:
    """The same with a master that misses who is silent for three seconds."""
    running = Job(tmp_path / "job", heartbeat_s=1.0)
    yield running
    _close(running)


def test_a_lost_agent_is_gone_without(hasty_job: Job) -> None:
    """Its processes end with it; the others' are started again in a smaller world."""
    job = hasty_job
    agents = [agent(job, number, "until('go')") for number in range(2)]
    oldest, youngest = _by_rank(agents)
    youngest.says("runs 3/4")
    youngest.process.kill()
    oldest.says("runs 1/2")
    Path(job.folder, "go").touch()
    assert oldest.ends() == 0
    assert "failed" not in oldest.text


def test_sigterm_is_passed_on(job: Job) -> None:
    """A process has the time to save; the agent leaves with 143."""
    script = """
def save(*_):
    print("saves", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(100)
"""
    trainer = agent(job, 0, script)
    trainer.says("ready")
    trainer.process.send_signal(signal.SIGTERM)
    assert trainer.ends() == 143
    assert "saves" in trainer.text


COUNTING = """
import edl, numpy
snapshots = edl.Snapshots()
newest = snapshots.newest()
begun = -1 if newest is None else int(newest.state()["step"][0])
os.write(1, f"begins {begun} as {me} in {e['EDL_SNAPSHOTS']} of process {os.getpid()}\\n".encode())
pathlib.Path(f"begun-{e['MASTER_PORT']}-{e['RANK']}").touch()
for rank in range(int(e["WORLD_SIZE"])):  # as a first step does: nobody saves before all have loaded
    until(f"begun-{e['MASTER_PORT']}-{rank}")
for step in range(begun + 1, 1000):
    state = {"step": numpy.array([step])}
    while not snapshots.save(step, state) and e["RANK"] == "0":
        time.sleep(0.01)  # the one before is still being copied
    if step == 5:
        os.write(1, b"saved\\n")
        until("on")
    if step == max(10, begun + 1):
        os.write(1, f"rank {e['RANK']} at ten\\n".encode())
        until("go")
        sys.exit(0)
"""


def test_a_lost_pod_s_snapshot_is_on_its_neighbour(job: Job) -> None:
    """The process of rank 0 alone saves; its agent is killed, and another continues from its copy."""
    agents = [agent(job, number, COUNTING) for number in range(2)]
    oldest, youngest = _by_rank(agents)
    youngest.says(" as 2/4 local 0")
    copies = Path(re.findall(r"as 2/4 .*? in (\S+) of", youngest.text)[0])
    oldest.says("saved")
    for _ in range(1_000):
        if any(part.step == 5 for part in find_parts(copies)):
            break
        threading.Event().wait(0.02)
    oldest.process.kill()
    Path(job.folder, "on").touch()
    youngest.says("continuing from the snapshot of step 5")
    youngest.says("begins 5 as 0/2")
    Path(job.folder, "go").touch()
    assert youngest.ends() == 0


def test_processes_continue_from_their_snapshot(job: Job) -> None:
    """After one is killed; nothing is left in memory at the end."""
    trainer = agent(job, 0, COUNTING)
    Path(job.folder, "on").touch()
    trainer.says("rank 0 at ten")
    begins = re.findall(r"begins \S+ as 0/2 .* in (\S+) of process (\d+)", trainer.text)
    folder, pid = begins[-1]  # where the machine is slow, there may have been a round before
    os.kill(int(pid), signal.SIGKILL)
    trainer.says("begins 10 as 0/2")
    Path(job.folder, "go").touch()
    assert trainer.ends() == 0
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no command: add it after two dashes"),
        (["--nproc", "0", "--", "true"], "--nproc is 0: it must be 1 to 1024"),
        (["--max-restarts", "-1", "--", "true"], "--max-restarts is -1"),
        (["--snapshot-memory", "-1", "--", "true"], "--snapshot-memory is -1.0"),
        (["--", "no-such-program"], "'no-such-program' is not an executable program"),
    ],
)
def test_mistakes_are_named(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with exit code 2."""
    assert main(["agent", *words]) == 2
    assert text in capsys.readouterr().err


def _by_rank(agents: list[Trainer]) -> list[Trainer]:
    """The agents in the order of their ranks in the round of both."""
    for trainer in agents:
        trainer.says("/4 local 0")
        trainer.says("/4 local 1")
    return sorted(agents, key=lambda trainer: "runs 0/4" not in trainer.text)
