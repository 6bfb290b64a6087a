"""One trainer of `edl train --sync`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edl import model as models
from edl import sync
from edl.commands import training
from edl.jobs.learning import Learning
from edl.jobs.telling import RESULT, STEP, line, numbers, several
from edl.session import Session
from edl.settings import load


class Synchronous(Learning):
    """Callable with a session; see `edl.jobs.trainer.run`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: Something of it cannot be used.
        """
        super().__init__(asked)
        self._replica = models.replica(self._model, seed=asked.seed, trainer=load().trainer)
        self._last: sync.Step | None = None

    def __call__(self, member: Session) -> bool:
        """Trains, evaluates, exports."""
        asked = self._asked
        export = self._announce(member)
        result = sync.train(
            self._replica,
            self._data,
            asked.batch_size,
            micro_batches=training.micro_batches(asked),
            epochs=asked.epochs,
            shuffle_seed=asked.seed,
            constant_batch=not asked.scale_learning_rate,
            code=self._code,
            checkpoints=asked.checkpoints,
            checkpoint_steps=training.checkpoint_steps(asked),
            on_nan=asked.on_nan,
            seed=asked.seed,
            on_step=self._tell,
            between=self._between,
            member=member,
        )
        if result.late:  # others evaluate and export what they have trained
            when = "while this trainer was away" if result.rounds else "before this trainer came"
            # not as a result: what came of the job, those have said who trained it
            line(self._model.name, f"others have trained it to its end {when}")
            return True
        if not result.whole:
            return False
        self._evaluate(result.steps)
        if export is not None:
            export.run(self._export)
        if self._leads:
            print(RESULT + self._summary(result), flush=True)
        return True

    @property
    def _leads(self) -> bool:
        return self._last is None or self._last.rank == 0

    def _tell(self, step: sync.Step) -> None:
        self._last = step
        speed = self._pace.note(step.records, step.exchange_s)
        if speed is not None and self._leads:
            head = f"{STEP}{step.step}, epoch {step.epoch + 1} of {self._asked.epochs}"
            together = f"{several(step.world, 'member')} in round {step.round}"
            line(head, numbers(step.metrics), speed, together)

    def _between(self, step: sync.Step) -> None:
        if self._every and step.step % self._every == 0:
            self._evaluate(step.step)

    def _evaluate(self, version: int) -> None:
        found = self._evaluator
        if found is None or (found.newest is not None and found.newest[0] == version):
            return
        metrics = found.run(
            version, lambda records: models.evaluate(self._replica, records), asks=self._leads
        )
        if metrics and self._leads:
            line(f"{STEP}{version}, evaluation", numbers(metrics))

    def _export(self) -> None:
        if self._asked.export:
            models.export(self._replica, Path(self._asked.export))

    def _summary(self, result: sync.Result) -> str:
        last, found = self._last, None if self._evaluator is None else self._evaluator.newest
        made = f"{several(result.steps, 'step')}, {several(result.records, 'record')}"
        parts = [f"{self._model.name} is trained: {made}, {numbers(result.metrics)}"]
        if found is not None:
            parts.append(f"evaluation of step {found[0]}: {numbers(found[1])}")
        if result.skipped:
            parts.append(f"{several(result.skipped, 'step')} left out, their loss was no number")
        if last is not None:
            changes = several(max(0, last.round - 1), "change")
            parts.append(f"{several(last.world, 'member')} at the end, after {changes} of members")
        return "; ".join(parts)
