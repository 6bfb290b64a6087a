"""What synchronous and asynchronous training share."""

from __future__ import annotations

import argparse

from edl import model as models
from edl.data.export import Export
from edl.jobs import training_flags
from edl.jobs.evaluator import NAME, Evaluator
from edl.jobs.progress_lines import ReportInterval
from edl.master.session import Session


class TrainingJob:
    """Base of training jobs: the model, its data, evaluation and export."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: The model or the data is invalid.
        """
        self._args = args
        self._model = models.load(args.model)
        self._data = models.data(args.data, "training")
        self._held_out = models.data(args.evaluate, NAME) if args.evaluate else None
        self._evaluate_every = training_flags.evaluation_steps(args, self._data.source.shape())
        self._code = {**self._model.code, "seed": str(args.seed)}
        self._evaluator: Evaluator | None = None
        self._interval = ReportInterval()

    def _announce(self, member: Session) -> Export | None:
        """Announces evaluation and export to the master: the job is not done before them."""
        args = self._args
        export = Export(member=member) if args.export or args.evaluate else None
        if self._held_out is not None:
            self._evaluator = Evaluator(self._held_out, args.batch_size, member)
        return export
