"""The example in JAX, as processes: killed, frozen, joined, all without a restart of the others."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.support.trainers import Job

ROOT = Path(__file__).parents[3]
JAX = Path(os.environ.get("EDL_JAX_PATH") or ROOT / "build/jax")
DIGITS = ROOT / "examples/jax_digits/train_jax.py"
TRAINED = 1437
ACCURACY = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps")

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
    newcomer.says("took the state of step")
    frozen.process.kill()

    assert [newcomer.ends(), last.ends()] == [0, 0], newcomer.text + last.text
    assert job.done("digits") == epochs * TRAINED
    results = {ACCURACY.findall(trainer.text)[0] for trainer in (newcomer, last)}
    assert len(results) == 1, results
    assert float(results.pop()[0]) > 0.9


def _children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if int(path.read_text("utf-8").rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found
