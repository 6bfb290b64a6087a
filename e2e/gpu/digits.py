"""The classifier of digits in torch on one device: by one trainer, and by several that come and go."""

from __future__ import annotations

import re
import signal

from e2e.gpu.cell import Run
from e2e.gpu.job import ROOT, Job, Trainer, check_prepared

PROGRAM = ROOT / "examples/torch_digits/train_torch.py"
EPOCHS, TRAINED, BATCH = 15, 1437, 32
STEPS = EPOCHS * -(-TRAINED // BATCH)
RELATIVE, PRINTED = 1e-4, 1e-5
"""How far losses may differ; they are printed with five decimals."""
_LINE = re.compile(r"step (\d+): loss ([\d.]+), (\d+) trainers")
_LAST = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps, (\d+) done again")


def play(run: Run) -> None:
    """Kills, freezes, adds and terminates trainers; checks that losses equal a single trainer's."""
    words = ("--epochs", str(EPOCHS), "--workers", "1", "--out")
    with Job(run.folder / "alone") as alone, Job(run.folder / "several") as job:
        one = alone.prepare("one", PROGRAM, *words, alone.folder / "out")
        names = ("trainer-0", "trainer-1", "trainer-2", "newcomer")
        trainers = [job.prepare(name, PROGRAM, *words, job.folder / "out") for name in names]
        check_prepared(run, one, *trainers)
        alone.go(one)
        one.ends()
        last = _change_members(run, job, trainers)
        done = job.done_records("train")
    run.check(done == EPOCHS * TRAINED, f"{done} records instead of {EPOCHS * TRAINED} are done")
    results = _LAST.findall(last.text)
    run.check(len(results) == 1, f"{last.name} has printed {results}")
    ((accuracy, steps, redone),) = results
    run.record(
        accuracy=float(accuracy),
        redone_steps=int(redone),
        steps_per_s_1_trainer=_rate(one, 1),
        steps_per_s_3_trainers=_rate(trainers[0], 3),
    )
    _compare(run, one, trainers)
    run.check(int(steps) == STEPS, f"{steps} steps instead of {STEPS}")
    run.check(float(accuracy) > 0.9, f"the accuracy is {accuracy}")


def _change_members(run: Run, job: Job, trainers: list[Trainer]) -> Trainer:
    """Trains to the end; returns the trainer that is left."""
    *three, newcomer = trainers
    job.join(*three)
    for trainer in three:
        trainer.says(r"step 1\d0: .* 3 trainers")
    first, frozen, killed = sorted(three, key=lambda trainer: "leading" not in trainer.text)

    since_s = killed.kill()
    steps_s = [trainer.says(r"step .* 2 trainers", since_s) for trainer in (first, frozen)]
    run.record(kill_s=max(steps_s) - since_s)

    since_s = frozen.send(signal.SIGSTOP)
    run.record(freeze_s=first.says(r"step .* 1 trainers", since_s) - since_s)

    since_s = job.join(newcomer)
    steps_s = [trainer.says(r"step .* 2 trainers", since_s) for trainer in (first, newcomer)]
    run.record(join_s=max(steps_s) - since_s)

    since_s = first.send(signal.SIGTERM)
    run.record(sigterm_s=newcomer.says(r"step .* 1 trainers", since_s) - since_s)

    first.ends(128 + signal.SIGTERM)
    newcomer.ends()
    frozen.kill()
    frozen.ends(-signal.SIGKILL)
    killed.ends(-signal.SIGKILL)
    return newcomer


def _compare(run: Run, one: Trainer, trainers: list[Trainer]) -> None:
    """Checks each printed loss against the loss of a single trainer."""
    losses = {int(step): float(loss) for step, loss, _ in _LINE.findall(one.text)}
    text = "".join(trainer.text for trainer in trainers)
    pairs = [(float(loss), losses[int(step)]) for step, loss, _ in _LINE.findall(text)]
    worst = max(abs(loss - alone) / alone for loss, alone in pairs)
    run.record(compared_losses=len(pairs), worst_relative_difference=worst)
    within = all(abs(loss - alone) <= RELATIVE * alone + PRINTED for loss, alone in pairs)
    run.check(within, f"a loss differs from that of one trainer by {worst:.1e}")


def _rate(trainer: Trainer, members: int) -> float:
    """Returns steps per second from the second progress line of this many members to their last one."""
    matches = [(time_s, _LINE.search(line)) for time_s, line in trainer.lines]
    steps = [(time_s, int(m[1])) for time_s, m in matches if m and int(m[3]) == members]
    (begin_s, begin), (end_s, end) = steps[1], steps[-1]
    return (end - begin) / (end_s - begin_s)
