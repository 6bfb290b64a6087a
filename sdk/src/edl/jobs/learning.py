"""What the trainers of `edl train` share, whichever way they train."""

from __future__ import annotations

import argparse

from edl import model as models
from edl.commands import training
from edl.export import Export
from edl.jobs.evaluating import NAME, Evaluator
from edl.jobs.telling import Pace
from edl.session import Session


class Learning:
    """The model, its data, and what comes at the end."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: Something of it cannot be used.
        """
        self._asked = asked
        self._model = models.load(asked.model)
        self._data = models.data(asked.data, "training")
        self._held_out = models.data(asked.evaluate, NAME) if asked.evaluate else None
        self._every = training.evaluation_steps(asked, self._data.source.shape())
        self._code = {**self._model.code, "seed": str(asked.seed)}
        self._evaluator: Evaluator | None = None
        self._pace = Pace()

    def _announce(self, member: Session) -> Export | None:
        """What comes after training: until it has run, the job is not done."""
        asked = self._asked
        export = Export(member=member) if asked.export or asked.evaluate else None
        if self._held_out is not None:
            self._evaluator = Evaluator(self._held_out, asked.batch_size, member)
        return export
