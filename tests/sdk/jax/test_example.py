"""The example in JAX, as processes: killed, frozen, joined, all without a restart of the others."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.support.trainers import Job

ROOT = Path(__file__).parents[3]
JAX = Path(os.environ.get("EDL_JAX_PATH") or ROOT / "build/jax")
DIGITS = ROOT / "examples/jax_digits/train_jax.py"
TRAINED = 1437
ACCURACY = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps")

COUNTS = """
import pathlib
import edl, edl.jax

with edl.jax.JaxRounds({"count": 0.0}) as rounds:
    for round in rounds:
        print(f"rank {round.rank} of {round.world_size}")
        try:
            while True:
                is_over = pathlib.Path("go").exists()
                total = rounds.sum({"changed": rounds.changed, "over": is_over})
                rounds.state = {"count": rounds.state["count"] + 1}
                rounds.step += 1
                if int(total["over"]):
                    rounds.finish()
                if int(total["over"]) or int(total["changed"]):
                    break
        except edl.RoundOver:
            rounds.broken()
print(f"counted {float(rounds.state['count']):.0f} of {rounds.step}")
"""
"""It counts its steps in its state, until there is a file "go"."""

ENDS = """
import subprocess, sys, threading, time
import edl
from edl.jax import distributed
from edl.jax.services import CoordinationServices

class AtTheEnd:
    def __del__(self, sleep=time.sleep):
        self.other.kill()
        sleep(1)

def member(rank, address):
    processes = distributed.Processes(rank, 2)
    processes.join(address)
    processes.use()
    processes.sum(1)
    return processes

def sum_again(processes):
    try:
        processes.sum(1)
    except edl.RoundOver:
        print("left the sum", flush=True)

if len(sys.argv) > 1:
    member(1, sys.argv[1])
    time.sleep(600)
services = CoordinationServices("127.0.0.1")
address = services.serve(2)
end = AtTheEnd()
end.other = subprocess.Popen([sys.executable, __file__, address])
processes = member(0, address)
thread = threading.Thread(target=sum_again, args=(processes,), daemon=True)
thread.start()
thread.join(1)
processes.leave(is_broken=True)
thread.join(60)
services.close()
"""
"""Rank 1 takes no part in the second sum; it is lost while the interpreter of rank 0 ends."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),  # jax is imported by each process, on cores that others share
    pytest.mark.skipif(not (JAX / "jax").exists(), reason="no jax here: `make jax` installs it"),
]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A master, and trainers that end with the test."""
    monkeypatch.setenv("PYTHONPATH", str(JAX))
    running = Job(tmp_path / "job", heartbeat_s=0.5)
    yield running
    running.close()


def test_digits_are_learned_while_the_processes_of_jax_change(job: Job) -> None:
    """Rank 0 is killed with its coordination service, as with a pod; another is frozen; one comes."""
    epochs = 30
    trainers = [job.start(f"trainer-{i}", DIGITS, "--epochs", str(epochs)) for i in range(3)]
    for trainer in trainers:
        trainer.says(" of 3, step")
    leader, *others = sorted(trainers, key=lambda trainer: ": 0 of 3, step" not in trainer.text)
    services = _children(leader.process.pid)
    assert services
    for pid in (leader.process.pid, *services):
        os.kill(pid, signal.SIGKILL)
    for trainer in others:
        trainer.says(" of 2, step")
    frozen, last = others
    frozen.process.send_signal(signal.SIGSTOP)
    last.says(": 0 of 1, step")
    newcomer = job.start("trainer-3", DIGITS, "--epochs", str(epochs))
    newcomer.says("took over the state of step")
    frozen.process.kill()

    assert [newcomer.ends(), last.ends()] == [0, 0], newcomer.text + last.text
    assert job.done("digits") == epochs * TRAINED
    results = {ACCURACY.findall(trainer.text)[0] for trainer in (newcomer, last)}
    assert len(results) == 1, results
    assert float(results.pop()[0]) > 0.9


def test_an_agent_s_service_outlives_the_process_of_rank_0(job: Job) -> None:
    """It is a process of the agent, which starts the lost one again while the others go on with their state."""
    script = job.folder / "count.py"
    script.write_text(COUNTS, "utf-8")
    command = ["-m", "edl", "agent", "--members", "--", sys.executable, str(script)]
    pods = [job.start(f"trainer-{i}", *command) for i in range(2)]
    for pod in pods:
        pod.says(" of 2\n")
    leader, other = sorted(pods, key=lambda pod: "rank 0 of 2\n" not in pod.text)
    children = {pid: _command(pid) for pid in _children(leader.process.pid)}
    services = {pid for pid, words in children.items() if "edl.jax.service" in words}
    (lost,) = {pid for pid, words in children.items() if str(script) in words}
    assert services
    assert not _children(lost)
    os.kill(lost, signal.SIGKILL)
    leader.says("process 0 was killed by SIGKILL")
    assert services <= set(_children(leader.process.pid))
    leader.says("took over the state of step")
    (job.folder / "go").touch()
    assert [pod.ends() for pod in pods] == [0, 0], leader.text + other.text
    counts = [re.findall(r"counted (\d+) of (\d+)", pod.text) for pod in pods]
    assert counts[0] == counts[1], counts
    ((count, steps),) = counts[0]
    assert count == steps


def test_a_process_with_a_collective_under_way_ends_in_order(job: Job) -> None:
    """Though the collective ends while Python does, with the process that it waited for."""
    script = job.folder / "end.py"
    script.write_text(ENDS, "utf-8")
    trainer = job.start("trainer-0", script)
    assert trainer.ends() == 0, trainer.text
    assert "left the sum" in trainer.text


def _command(pid: int) -> str:
    """The words with which a process was started."""
    return Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ")


def _children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if int(path.read_text("utf-8").rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found
