"""One trainer of `edl predict`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from edl import model as models
from edl.batches import batches
from edl.export import Export
from edl.jobs import outputs
from edl.jobs.telling import RESULT, STEP, Pace, line, several
from edl.session import Session
from edl.settings import load

log = logging.getLogger("edl")

DATASET = "prediction"


class Predicting:
    """Callable with a session; see `edl.jobs.trainer.run`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Loads model, parameters and data.

        Raises:
            EdlError: Something of it cannot be used.
        """
        self._asked = asked
        self._model = models.load(asked.model)
        self._data = models.data(asked.data, DATASET)
        self._replica = models.replica(self._model, trainer=load().trainer)
        self.step = models.restore(self._replica, asked.parameters)
        self._pace = Pace()

    def __call__(self, member: Session) -> bool:
        """Predicts this trainer's share; one trainer finishes."""
        asked, folder = self._asked, Path(self._asked.output)
        export = Export(member=member)
        loop = batches(self._data, asked.batch_size, kind="prediction", member=member)
        made = outputs.Outputs(folder, self._data.source.shape())
        done = 0
        for records in loop:
            made.add(loop.portions, models.predict(self._replica, records))
            done += loop.records
            speed = self._pace.note(loop.records)
            if speed is not None:
                line(f"{STEP}predicted here", several(done, "record"), speed)
        if member.stopping:
            return False
        export.run(self._finish)
        return True

    def _finish(self) -> None:
        asked = self._asked
        whole = Path(asked.join) if asked.join else None
        missing = outputs.finish(Path(asked.output), self._data.source.shape(), whole)
        count = several(len(outputs.parts(Path(asked.output))), "file")
        lacks = f"; without {', '.join(missing)}, whose tasks failed" if missing else ""
        print(
            f"{RESULT}{self._model.name} has predicted: {count} in {asked.output}{lacks}",
            flush=True,
        )
