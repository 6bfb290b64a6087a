"""The digits in torch, by four trainers as processes, of which some are killed and replaced."""

import os
import re
import threading
from pathlib import Path

from edl import clock

from tests.sdk.support.trainers import Job, Trainer

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
PROGRAM = ROOT / "examples/torch_digits/train_torch.py"
TRAINED, EPOCHS, MEMBERS = 1437, 30, 4
"""After 15 epochs, 14 outer steps, local steps have not converged: the moments of the kills move accuracy by a point."""
_ACCURACY = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps")
_EXCHANGED = re.compile(r"exchanged (\d+\.\d+) MB")
_LINE = re.compile(r"step \d+: loss [\d.]+, (\d+) trainers, round (\d+)")
_LIMIT_S, _POLL_S = 120.0, 0.05

_LOADED = """
import pathlib, runpy, sys, time
import edl.torch, torch.utils.data
plain = torch.Tensor.backward
def slow(*args, **options):
    while pathlib.Path(hold).exists():
        time.sleep(0.01)
    time.sleep(float(pause))
    return plain(*args, **options)
torch.Tensor.backward = slow
print("loaded", flush=True)
_, go, hold, pause, *sys.argv = sys.argv
while not pathlib.Path(go).exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program once a file exists, as torch takes as long to load as the job; another file holds it."""


def digits(folder: Path, *, local_steps: int, kills: int, pause_s: float) -> tuple[float, float]:
    """Trains the digits; PYTHONPATH must have torch.

    Args:
        folder: For the journal and checkpoints.
        local_steps: As of the program.
        kills: How many trainers are killed, one after the other, each replaced before the next.
        pause_s: What each backward takes longer, so that there is time for that.

    Returns:
        Accuracy on the test set, and the largest number of megabytes that a trainer has exchanged.
    """
    job = Job(folder, heartbeat_s=0.5)
    hold = folder / "hold"
    words = (
        hold,
        str(pause_s),
        PROGRAM,
        "--epochs",
        str(EPOCHS),
        "--local-steps",
        str(local_steps),
    )

    def spare(number: int, go: str) -> Trainer:
        command = ("-c", _LOADED, folder / go, *words, "--out", folder / "out")
        return job.start(f"trainer-{number}", *command)

    try:
        trainers = [spare(number, "go") for number in range(MEMBERS)]
        for trainer in trainers:
            trainer.says("loaded")
        spares = [spare(MEMBERS + number, f"go-{number}") for number in range(kills)]
        for trainer in spares:
            trainer.says("loaded")
        (folder / "go").touch()
        known = await_members(trainers, MEMBERS, 0)
        for number, newcomer in enumerate(spares):
            leads = [trainer for trainer in trainers if "leading" in trainer.text]
            victim = next(trainer for trainer in trainers if trainer not in leads)
            victim.process.kill()
            trainers.remove(victim)
            known = await_members(trainers, MEMBERS - 1, known)
            hold.touch()
            (folder / f"go-{number}").touch()
            newcomer.says("joined job")
            hold.unlink()
            trainers.append(newcomer)
            known = await_members(trainers, MEMBERS, known)
        for trainer in trainers:
            assert trainer.ends() == 0, trainer.text
        done = job.done("train")
        assert done == EPOCHS * TRAINED, f"{done} records acknowledged"
    finally:
        job.close()
    results = [_ACCURACY.search(trainer.text) for trainer in trainers]
    accuracies = {float(result[1]) for result in results if result is not None}
    assert len(accuracies) == 1, [trainer.text for trainer in trainers]
    exchanged = [float(sum(map(float, _EXCHANGED.findall(t.text)))) for t in trainers]
    return accuracies.pop(), max(exchanged)


def await_members(trainers: list[Trainer], count: int, after: int) -> int:
    """Waits until all of these have made a step of so many members in a later round; returns its number."""
    until_s = clock.monotonic_s() + _LIMIT_S
    while clock.monotonic_s() < until_s:
        rounds = [
            max((int(r) for c, r in _LINE.findall(t.text) if int(c) == count), default=0)
            for t in trainers
        ]
        if min(rounds) > after:
            return min(rounds)
        threading.Event().wait(_POLL_S)
    raise AssertionError([trainer.text for trainer in trainers])
