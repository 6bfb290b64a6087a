"""One trainer of `edl train --sync`."""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from pathlib import Path

from edl import model as models
from edl import sync
from edl.errors import MasterError
from edl.jobs import training_flags
from edl.jobs.progress_lines import RESULT, STEP, format_count, format_metrics, print_line
from edl.jobs.training_job import TrainingJob
from edl.master.session import Session
from edl.master.settings import load


class SyncTrainingJob(TrainingJob):
    """The synchronous training of one trainer; `edl.jobs.trainer.run` calls it with a session."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: The model or the data is invalid.
        """
        super().__init__(args)
        self._replica = models.replica(self._model, seed=args.seed, trainer=load().trainer)
        self._leads = True
        """Whether this trainer prints progress: it has rank 0, or trains alone."""

    def __call__(self, member: Session) -> bool:
        """Trains, evaluates and exports the model; returns False if the master stopped the job."""
        args = self._args
        export = self._announce(member)
        train = getattr(self._replica, "train", None) or partial(sync.train, self._replica)
        result: sync.SyncResult = train(
            self._data,
            args.batch_size,
            micro_batches=training_flags.micro_batches(args),
            epochs=args.epochs,
            shuffle_seed=args.seed,
            shuffle=args.shuffle,
            constant_batch=not args.scale_learning_rate,
            code=self._code,
            checkpoints=args.checkpoints,
            checkpoint_steps=training_flags.checkpoint_steps(args),
            on_nan=args.on_nan,
            seed=args.seed,
            on_step=self._report,
            between=self._evaluate_if_due,
            member=member,
        )
        if result.late:
            # the trainers that finished the job evaluate and export the model, and print the result
            when = "while this trainer was away" if result.rounds else "before this trainer joined"
            print_line(self._model.name, f"other trainers finished the training {when}")
            return True
        if not result.whole:
            return False
        self._leads = result.last_round is None or result.last_round.rank == 0
        self._evaluate(result.steps)
        if export is not None:
            export.run(self._export)
        # all members print the result: the one with rank 0 may have been lost after the last step
        print(RESULT + self._summary(result, member), flush=True)
        return True

    def _report(self, step: sync.SyncStep) -> None:
        self._leads = step.rank == 0
        speed = self._interval.note(step.records, step.exchange_s)
        if speed is not None and self._leads:
            head = f"{STEP}{step.step}, epoch {step.epoch + 1} of {self._args.epochs}"
            together = f"{format_count(step.world_size, 'member')} in round {step.round}"
            print_line(head, format_metrics(step.metrics), speed, together)

    def _evaluate_if_due(self, step: sync.SyncStep) -> None:
        if self._evaluate_every and step.step % self._evaluate_every == 0:
            self._evaluate(step.step)

    def _evaluate(self, version: int) -> None:
        evaluator = self._evaluator
        if evaluator is None or (evaluator.newest is not None and evaluator.newest[0] == version):
            return
        metrics = evaluator.run(
            version,
            lambda records: models.evaluate(self._replica, records),
            asks=self._leads,
            finish=self._replica.finish,
        )
        if metrics and self._leads:
            print_line(f"{STEP}{version}, evaluation", format_metrics(metrics))

    def _export(self) -> None:
        if self._args.export:
            models.export(self._replica, Path(self._args.export))

    def _summary(self, result: sync.SyncResult, member: Session) -> str:
        metrics = format_metrics(result.metrics)
        parts = self._summary_parts(result.steps, result.records, metrics, result.skipped)
        with contextlib.suppress(MasterError):  # the line is still useful without this part
            parts += self._redone_part(member.control().status())
        if result.last_round is not None:
            members = format_count(result.last_round.world_size, "member")
            changes = format_count(result.last_round.number - 1, "membership change")
            parts.append(f"{members} at the end, after {changes}")
        return "; ".join(parts)
