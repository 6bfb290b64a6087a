"""The transformer of bytes, on this repository's own documents, by processes of which one is killed."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.sdk.support.trainers import Job
from tests.sdk.torch.digits_jobs import ROOT, TORCH

PROGRAM = ROOT / "examples/torch_transformer/train_transformer.py"
TEXTS = [ROOT / "docs" / name for name in ("operating.md", "training.md")]
EPOCHS, CONTEXT, HELD_OUT = 4, 64, 64
LOSS = re.compile(r"held-out loss (\d+\.\d+) after (\d+) steps")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),  # torch is imported by each process, on cores that others share
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]


def test_text_is_learned_by_pods_of_which_one_is_lost(job: Job, tmp_path: Path) -> None:
    """The same where each of two pods holds the model together, and a process of one is killed."""
    program: tuple[str | Path, ...] = (PROGRAM, *TEXTS, "--epochs", "4", "--out", tmp_path / "out")
    words = ("-m", "edl", "agent", "--replica", "--nproc", "2", "--", sys.executable, *program)
    pods = [job.start(f"pod-{number}", *words) for number in range(2)]
    for pod in pods:
        pod.says(", 2 trainers")
    children = Path(f"/proc/{pods[0].process.pid}/task/{pods[0].process.pid}/children")
    os.kill(int(children.read_text(encoding="ascii").split()[1]), signal.SIGKILL)
    pods[1].says(", 1 trainers")
    pods[0].says("was killed by SIGKILL")

    assert [pod.ends() for pod in pods] == [0, 0], pods[1].text
    size = sum(path.stat().st_size for path in TEXTS) + 1
    assert job.done("train") == EPOCHS * ((size - 1) // CONTEXT - HELD_OUT)
    losses = {loss for pod in pods for loss, _ in LOSS.findall(pod.text)}
    assert len(losses) == 1, losses
    assert float(losses.pop()) < 3.1


def test_text_is_learned_while_a_trainer_is_lost(job: Job, tmp_path: Path) -> None:
    """All end with the same loss, far below what guessing costs (5.5), and the books are exact."""
    words: tuple[str | Path, ...] = (
        PROGRAM,
        *TEXTS,
        "--epochs",
        str(EPOCHS),
        "--out",
        tmp_path / "out",
    )
    trainers = [job.start(f"trainer-{number}", *words) for number in range(2)]
    for trainer in trainers:
        trainer.says(", 2 trainers")
    trainers[0].process.kill()
    trainers[1].says(", 1 trainers")
    trainers[0] = job.start("trainer-2", *words)

    assert [trainer.ends() for trainer in trainers] == [0, 0], trainers[1].text
    size = sum(path.stat().st_size for path in TEXTS) + 1
    assert job.done("train") == EPOCHS * ((size - 1) // CONTEXT - HELD_OUT)
    losses = {loss for trainer in trainers for loss, _ in LOSS.findall(trainer.text)}
    assert len(losses) == 1, losses
    assert float(losses.pop()) < 3.1
