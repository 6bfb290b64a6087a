"""The example in torch, as processes: killed, frozen, joined; and a script of torchrun under the agent."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import edl
import pytest

from tests.sdk.support.trainers import Job, Trainer

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
DIGITS = ROOT / "examples/torch_digits/train_torch.py"
TRAINED, EPOCHS = 1437, 12
LINE = re.compile(r"step (\d+): loss ([\d.]+), (\d+) trainers")
LAST = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),  # torch is imported by each process, on cores that others share
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for _ in range(5):
    model(torch.ones(2, 4)).sum().backward()
total = torch.ones(1)
dist.all_reduce(total)
print("members", int(total), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A master, and trainers that end with the test."""
    monkeypatch.setenv("PYTHONPATH", str(TORCH))
    running = Job(tmp_path / "job", heartbeat_s=0.5)
    yield running
    running.close()


LOADED = """
import pathlib, runpy, sys, time
import edl.torch, torch.utils.data
print("loaded", flush=True)
_, go, *sys.argv = sys.argv
while not pathlib.Path(go).exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program once a file exists: torch is loaded before, which takes as long as the job."""


def test_the_curve_is_that_of_fixed_members(job: Job, tmp_path: Path) -> None:
    """One is killed with its worker, one frozen, one comes, one leaves: as one trainer alone.

    The books are exact, and the model has learned.
    """
    words = (DIGITS, "--epochs", str(EPOCHS), "--workers", "1", "--out")

    def spare(of: Job, name: str, go: str, out: str) -> Trainer:
        trainer = of.start(name, "-c", LOADED, tmp_path / go, *words, tmp_path / out)
        trainer.says("loaded")
        return trainer

    alone = Job(tmp_path / "alone")
    one = spare(alone, "trainer-0", "go", "one")
    (tmp_path / "go").touch()
    one.says("left job")
    alone.close()
    trainers = [spare(job, f"trainer-{i}", "all", "out") for i in range(3)]
    newcomer = spare(job, "trainer-9", "late", "out")
    (tmp_path / "all").touch()
    for trainer in trainers:
        trainer.says(", 3 trainers")
    first, frozen, killed = sorted(trainers, key=lambda trainer: "leading" not in trainer.text)
    killed.process.kill()
    first.says(", 2 trainers")
    frozen.process.send_signal(signal.SIGSTOP)
    first.says(", 1 trainers")
    (tmp_path / "late").touch()
    newcomer.says(", 2 trainers")
    first.process.terminate()
    assert newcomer.ends() == 0, newcomer.text
    assert first.ends() == 143, first.text
    frozen.process.kill()

    assert job.done("train") == EPOCHS * TRAINED
    curve = {int(step): float(loss) for step, loss, _ in LINE.findall(one.text)}
    for trainer in (first, newcomer):
        lines = LINE.findall(trainer.text)
        assert lines
        assert all(abs(float(loss) - curve[int(step)]) <= 2e-5 for step, loss, _ in lines)
    ((accuracy, steps),) = LAST.findall(newcomer.text)
    assert float(accuracy) > 0.9
    assert int(steps) == EPOCHS * -(-TRAINED // 32)
    newest = edl.latest_checkpoint(tmp_path / "out")
    assert newest is not None
    assert newest.step == int(steps)


def test_a_script_of_torchrun_runs_under_the_agent(job: Job) -> None:
    """Unchanged: DDP over all processes of two agents, from torchrun's environment."""
    script = Path(job.folder, "train.py")
    script.write_text(SCRIPT, encoding="utf-8")
    command = ("-m", "edl", "agent", "--nproc", "2", "--", sys.executable, str(script))
    agents = [job.start(f"trainer-{number}", *command) for number in range(2)]
    assert [agent.ends() for agent in agents] == [0, 0], agents[0].text + agents[1].text
    assert "members 4" in agents[0].text
    assert job.status["state"] == "done"
