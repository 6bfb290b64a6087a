"""The transformer of bytes on one device: with one trainer, and with three, one of which is replaced."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.gpu.cell import Run
from e2e.gpu.job import ROOT, Job, Trainer, check_prepared

PROGRAM = ROOT / "examples/torch_transformer/train_transformer.py"
TEXTS = [ROOT / "docs" / name for name in ("operating.md", "training.md")]
EPOCHS, CONTEXT, HELD_OUT = 4, 64, 64
GOOD_LOSS, RELATIVE, PRINTED = 3.1, 1e-3, 1e-3
"""Guessing costs 5.5; losses are printed with three decimals."""
_LOSS = re.compile(r"held-out loss (\d+\.\d+) after \d+ steps")


def play(run: Run) -> None:
    """Kills a trainer and replaces it; the held-out loss equals the loss of a single trainer."""
    words: tuple[str | Path, ...] = (*TEXTS, "--epochs", str(EPOCHS), "--out")
    with Job(run.folder / "alone") as alone, Job(run.folder / "several") as job:
        one = alone.prepare("one", PROGRAM, *words, alone.folder / "out")
        names = ("trainer-0", "trainer-1", "trainer-2", "newcomer")
        trainers = [job.prepare(name, PROGRAM, *words, job.folder / "out") for name in names]
        check_prepared(run, one, *trainers)
        since_s = alone.go(one)
        one.ends()
        run.record(alone_s=one.lines[-1][0] - since_s)
        *survivors, killed, newcomer = trainers

        since_s = job.join(*survivors, killed)
        for trainer in (*survivors, killed):
            trainer.says(", 3 trainers")
        killed_s = killed.kill()
        steps_s = [trainer.says(", 2 trainers", killed_s) for trainer in survivors]
        run.record(kill_s=max(steps_s) - killed_s)
        joined_s = job.join(newcomer)
        run.record(join_s=newcomer.says(", 3 trainers", joined_s) - joined_s)
        for trainer in (*survivors, newcomer):
            trainer.ends()
        run.record(several_s=newcomer.lines[-1][0] - since_s)
        done = job.done_records("train")
    size = sum(path.stat().st_size for path in TEXTS) + 1
    records = EPOCHS * ((size - 1) // CONTEXT - HELD_OUT)
    run.check(done == records, f"{done} records instead of {records} are done")
    losses = {_held_out_loss(run, trainer) for trainer in (*survivors, newcomer)}
    run.check(len(losses) == 1, f"trainers report different held-out losses: {sorted(losses)}")
    loss, expected = losses.pop(), _held_out_loss(run, one)
    run.record(held_out_loss=loss, held_out_loss_alone=expected)
    run.check(loss < GOOD_LOSS, f"the held-out loss is {loss}")
    within = abs(loss - expected) <= RELATIVE * expected + PRINTED
    run.check(within, f"the held-out loss is {loss}, and {expected} with one trainer")


def _held_out_loss(run: Run, trainer: Trainer) -> float:
    losses = _LOSS.findall(trainer.text)
    run.check(len(losses) == 1, f"{trainer.name} has printed {len(losses)} held-out losses")
    return float(losses[0])
