"""Programs in JAX as processes that are killed, frozen and added, without a restart of the others."""

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

def say(line):
    print(line + "\\n", end="", flush=True)  # one write: log lines come between two

with edl.jax.JaxRounds({"count": 0.0}) as rounds:
    for round in rounds:
        say(f"rank {round.rank} of {round.world_size}")
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

RECORDS = """
import runpy, sys, time
import numpy as np
import edl, edl.jax

def say(line):
    print(line + "\\n", end="", flush=True)  # one write: log lines come between two

example = runpy.run_path(sys.argv[1])
data = edl.from_function("numbers", int, 6000)
batches = example["Batches"](data, 1)
with edl.jax.JaxRounds({"times": np.zeros(6000, np.int32)}) as rounds:
    for round in rounds:
        say(f"rank {round.rank} of {round.world_size}")
        if rounds.has_counted:
            say("the interrupted step counts")
            batches.advance()
        try:
            while True:
                time.sleep(0.005)
                batch = batches.current if isinstance(batches.current, list) else []
                left = batches.current is not example["OVER"]
                say(" ".join(map(str, ["batch", *batch])))
                times = np.bincount(np.array(batch, int), minlength=6000).astype(np.int32)
                total = rounds.sum({"changed": rounds.changed, "left": left, "times": times})
                rounds.state = {"times": rounds.state["times"] + np.asarray(total["times"])}
                rounds.step += 1
                batches.advance()
                if not int(total["left"]):
                    rounds.finish()
                if not int(total["left"]) or int(total["changed"]):
                    break
        except edl.RoundOver:
            rounds.broken()
times = rounds.state["times"]
say(" ".join(map(str, ["lost", *np.flatnonzero(times == 0)])))
say(" ".join(map(str, ["repeated", *np.flatnonzero(times > 1)])))
"""
"""Its state counts how often each record was trained; the batches are those of the example."""

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
    """Rank 0 is killed, another trainer is frozen, and one joins; each record counts once."""
    epochs = 30
    trainers = [job.start(f"trainer-{i}", DIGITS, "--epochs", str(epochs)) for i in range(3)]
    for trainer in trainers:
        trainer.says(" of 3, step")
    leader, *others = sorted(trainers, key=lambda trainer: ": 0 of 3, step" not in trainer.text)
    leader.process.kill()
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


def test_an_agent_starts_a_lost_process_again(job: Job) -> None:
    """The others continue with their state, and the new process takes it over."""
    script = job.folder / "count.py"
    script.write_text(COUNTS, "utf-8")
    command = ["-m", "edl", "agent", "--members", "--", sys.executable, str(script)]
    pods = [job.start(f"trainer-{i}", *command) for i in range(2)]
    for pod in pods:
        pod.says(" of 2\n")
    leader, other = sorted(pods, key=lambda pod: "rank 0 of 2\n" not in pod.text)
    (lost,) = (pid for pid in _children(leader.process.pid) if str(script) in _command(pid))
    os.kill(lost, signal.SIGKILL)
    leader.says("process 0 was killed by SIGKILL")
    leader.says("took over the state of step")
    (job.folder / "go").touch()
    assert [pod.ends() for pod in pods] == [0, 0], leader.text + other.text
    counts = [re.findall(r"counted (\d+) of (\d+)", pod.text) for pod in pods]
    assert counts[0] == counts[1], counts
    ((count, steps),) = counts[0]
    assert count == steps


def test_survivors_lose_and_repeat_no_batch(job: Job) -> None:
    """Only batches of killed trainers may be trained twice; a trainer that leaves repeats none."""
    script = job.folder / "records.py"
    script.write_text(RECORDS, "utf-8")
    first, leaving, *killed = [job.start(f"trainer-{i}", script, str(DIGITS)) for i in range(4)]
    first.says(" of 4\n")
    leaving.process.send_signal(signal.SIGTERM)
    first.says(" of 3\n")
    for count, trainer in enumerate(killed):
        trainer.process.kill()
        first.says(f" of {2 - count}\n")
    assert first.ends() == 0, first.text
    assert job.done("numbers") == 6000
    (lost,) = _numbers(first.text, "lost")
    (repeated,) = _numbers(first.text, "repeated")
    of_killed = {
        number for trainer in killed for row in _numbers(trainer.text, "batch") for number in row
    }
    assert lost == set()
    assert repeated <= of_killed


def _numbers(text: str, word: str) -> list[set[int]]:
    """The numbers of each line that begins with a word."""
    lines = [line.split() for line in text.splitlines()]
    return [set(map(int, line[1:])) for line in lines if line[:1] == [word]]


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
