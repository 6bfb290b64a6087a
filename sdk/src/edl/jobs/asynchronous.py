"""One trainer of `edl train --async`."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edl import model as models
from edl import servers
from edl.jobs import training_flags
from edl.jobs.progress_lines import RESULT, STEP, format_count, format_metrics, print_line
from edl.jobs.training_job import TrainingJob
from edl.master.session import Session
from edl.master.settings import load
from edl.servers.client import PserverClient
from edl.servers.errors import GenerationChanged, RequestRefused
from edl.servers.options import Step
from edl_protocol.pserver import Rules

_NOT_FOUND = 404
_TRIES = 3
"""Attempts at the final evaluation, which is repeated if the servers roll back during it."""


class AsyncTrainingJob(TrainingJob):
    """The asynchronous training of one trainer; `edl.jobs.trainer.run` calls it with a session."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: The model or the data is invalid.
        """
        super().__init__(args)
        self._worker = models.worker(self._model, seed=args.seed, trainer=load().trainer)
        self._rules = Rules(
            max_staleness=args.max_staleness,
            modulate=args.modulate,
            checkpoint_steps=training_flags.checkpoint_steps(args),
            checkpoint_seconds=0.0,
            checkpoint_keep=3,
        )
        self._evaluated: int | None = None
        """Number of evaluations that were due by the last step."""

    def __call__(self, member: Session) -> bool:
        """Trains, evaluates and exports the model; returns False if the master stopped the job."""
        args = self._args
        export = self._announce(member)
        result = servers.train(
            self._worker,
            self._data,
            args.batch_size,
            epochs=args.epochs,
            shuffle_seed=args.seed,
            shuffle=args.shuffle,
            **asdict(self._rules),
            code=self._code,
            on_nan=args.on_nan,
            on_step=self._report,
            member=member,
        )
        if not result.whole:
            return False
        with closing(
            servers.connect(self._worker, code=self._code, rules=self._rules, member=member)
        ) as client:
            self._evaluate_last(client, member)
            if export is not None:
                export.run(lambda: self._export(client))
            print(RESULT + self._summary(result, client, member), flush=True)
        return True

    def _evaluate_last(self, client: PserverClient, member: Session) -> None:
        for _ in range(_TRIES):
            if self._evaluator is None or member.stopping:
                return
            try:
                if self._evaluate(client, client.version):
                    return
            except GenerationChanged:
                client.refresh()

    def _report(self, step: Step) -> None:
        speed = self._interval.note(step.records, step.exchange_s)
        if speed is not None:
            head = f"{STEP}{step.version}, epoch {step.epoch + 1} of {self._args.epochs}"
            print_line(
                head, format_metrics(step.metrics), speed, f"batch {step.number} of this trainer"
            )
        if self._evaluator is not None and self._evaluate_every:
            due = step.version // self._evaluate_every
            evaluated_before, self._evaluated = self._evaluated, due
            if evaluated_before is not None and due > evaluated_before:
                self._evaluate(step.servers, due * self._evaluate_every)

    def _evaluate(self, client: PserverClient, version: int) -> bool:
        """Evaluates a version, which the first trainer of the evaluation pins at the servers.

        Returns:
            Whether the evaluation completed.

        Raises:
            GenerationChanged: The servers rolled back before the version was pinned.
        """
        evaluator = self._evaluator
        if evaluator is None:
            return False
        evaluation = evaluator.counted_round(version)
        if evaluation is None:
            client.pin(version)
        model = _PinnedModel(self._worker, client, version)
        metrics = evaluator.run(version, model.evaluate, asks=True, finish=self._worker.finish)
        if evaluation is None and metrics:
            print_line(f"{STEP}{version}, evaluation", format_metrics(metrics))
            model.forget()
        return bool(metrics)

    def _export(self, client: PserverClient) -> None:
        while self._args.export:
            client.refresh()
            self._worker.load(client.dense)
            try:
                models.export(self._worker, Path(self._args.export), lookup=client.lookup)
            except GenerationChanged:  # some rows were of the previous generation: start over
                continue
            return

    def _summary(
        self, result: servers.TrainingResult, client: PserverClient, member: Session
    ) -> str:
        status = member.control().status()
        records = int(status["datasets"][self._data.name]["done_records"])
        metrics = f"{format_metrics(result.metrics)} here"
        parts = self._summary_parts(client.version, records, metrics, result.skipped)
        parts += self._redone_part(status)
        rollbacks = status.get("setbacks") or {}
        if rollbacks.get("steps"):
            parts.append(f"{format_count(rollbacks['steps'], 'step')} lost to server failures")
        parts.append(f"{format_count(len(status['trainers']), 'trainer')} at the end")
        return "; ".join(parts)


class _PinnedModel:
    """A model version pinned at the servers, loaded on first use."""

    def __init__(self, worker: Any, client: PserverClient, version: int) -> None:
        self._worker, self._servers, self._version = worker, client, version
        self._loaded = self._is_gone = False

    def evaluate(self, records: Any) -> dict[str, float] | None:
        """Returns the means over a batch, or None once the servers no longer have the version."""
        if self._is_gone:
            return None
        try:
            if not self._loaded:
                self._worker.load(self._servers.pinned(self._version))
                self._loaded = True
            return models.evaluate(self._worker, records, lookup=self._lookup)
        except RequestRefused:  # the servers restarted, or another evaluation replaced the pin
            self._is_gone = True
            return None

    def forget(self) -> None:
        """Unpins the version."""
        try:
            self._servers.unpin(self._version)
        except RequestRefused as error:
            if error.status != _NOT_FOUND and not isinstance(error, GenerationChanged):
                raise

    def _lookup(self, table: str, ids: Any) -> Any:
        return self._servers.lookup(table, ids, pin=self._version)
