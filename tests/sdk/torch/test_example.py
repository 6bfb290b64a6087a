"""The example in torch, as processes: killed, frozen, joined; and a script of torchrun under the agent."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import edl
import pytest

from tests.sdk.support.trainers import Job, Trainer

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
DIGITS = ROOT / "examples/torch_digits/train_torch.py"
TORCHRUN = ROOT / "examples/torch_digits/train_torchrun.py"
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


DUMP = """
import json, os, pathlib
pathlib.Path(f"dump-{os.environ['RANK']}").write_text(json.dumps(dict(os.environ)))
"""


def test_the_environment_is_that_of_torchrun(job: Job) -> None:
    """All that torchrun itself sets on this machine; and what both say of ranks is the same."""
    script = Path(job.folder, "dump.py")
    script.write_text(DUMP, encoding="utf-8")
    torchrun = job.start(
        "trainer-8", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script
    )
    assert torchrun.ends() == 0, torchrun.text
    theirs = json.loads(Path(job.folder, "dump-1").read_text("utf-8"))
    agent = job.start(
        "trainer-0", "-m", "edl", "agent", "--nproc", "2", "--", sys.executable, script
    )
    assert agent.ends() == 0, agent.text
    ours = json.loads(Path(job.folder, "dump-1").read_text("utf-8"))
    names = {name for name in theirs if name not in os.environ}
    assert {"TORCHELASTIC_RUN_ID", "ROLE_RANK"} <= names <= ours.keys()
    same = {name for name in names if "RANK" in name or "SIZE" in name or name.startswith("ROLE")}
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


def test_a_script_of_torchrun_runs_under_the_agent(job: Job) -> None:
    """Unchanged: DDP over all processes of two agents, from torchrun's environment."""
    command = ("-m", "edl", "agent", "--nproc", "2", "--", sys.executable, TORCHRUN)
    words = ("--steps", "60", "--out", "out")
    agents = [job.start(f"trainer-{number}", *command, *words) for number in range(2)]
    assert [agent.ends() for agent in agents] == [0, 0], agents[0].text + agents[1].text
    text = agents[0].text + agents[1].text
    assert "step 60 of 60" in text
    assert ", 4 processes" in text
    assert job.status["state"] == "done"
    assert Path(job.folder, "out/checkpoint.pt").exists()
