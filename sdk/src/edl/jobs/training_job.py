"""The base class of synchronous and asynchronous training jobs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from edl import model as models
from edl.data.export import Export
from edl.jobs import training_flags
from edl.jobs.evaluator import NAME, Evaluator
from edl.jobs.progress_lines import ReportInterval, format_count, format_metrics
from edl.master.session import Session


class TrainingJob:
    """Base class of training jobs: holds the model, its data, the evaluator and the export."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: The model or the data is invalid.
        """
        self._args = args
        self._model = models.load(args.model)
        self._data = models.data(args.data, "training")
        self._held_out = models.data(args.evaluate, NAME) if args.evaluate else None
        for dataset in (self._data, self._held_out):
            if dataset is not None:
                models.check_records(self._model, dataset)
        self._evaluate_every = training_flags.evaluation_steps(args, self._data.source.shape())
        self._code = {**self._model.code, "seed": str(args.seed)}
        self._evaluator: Evaluator | None = None
        self._interval = ReportInterval()

    def _announce(self, member: Session) -> Export | None:
        """Announces evaluation and export to the master, so that the job does not end before them."""
        args = self._args
        export = Export(member=member) if args.export or args.evaluate else None
        if self._held_out is not None:
            self._evaluator = Evaluator(self._held_out, args.batch_size, member)
        return export

    def _redone_part(self, status: Mapping[str, Any]) -> list[str]:
        """Returns the part of the result line about records trained again after the model was lost."""
        dataset = status.get("datasets", {}).get(self._data.name, {})
        redone = int(dataset.get("redone_records") or 0)
        return [f"{format_count(redone, 'record')} trained again after a loss"] if redone else []

    def _summary_parts(self, steps: int, records: int, metrics: str, skipped: int) -> list[str]:
        """Returns the parts of the result line that both modes have."""
        amount = f"{format_count(steps, 'step')}, {format_count(records, 'record')}"
        parts = [f"{self._model.name} is trained: {amount}, {metrics}"]
        evaluation = None if self._evaluator is None else self._evaluator.newest
        if evaluation is not None:
            parts.append(f"evaluation of step {evaluation[0]}: {format_metrics(evaluation[1])}")
        if skipped:
            parts.append(f"{format_count(skipped, 'step')} skipped because the loss was not finite")
        return parts
