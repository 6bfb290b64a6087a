"""One trainer of `edl predict`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from edl import model as models
from edl.data.batches import batches, describe
from edl.data.export import Export
from edl.jobs import outputs
from edl.jobs.progress_lines import RESULT, STEP, ReportInterval, format_count, print_line
from edl.master.session import Session
from edl.master.settings import load

log = logging.getLogger("edl")

DATASET = _KIND = "prediction"


class PredictionJob:
    """The prediction of one trainer; `edl.jobs.trainer.run` calls it with a session."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Loads the model, the parameters and the data.

        Raises:
            EdlError: The model, the parameters or the data is invalid.
        """
        self._args = args
        self._model = models.load(args.model)
        self._data = models.data(args.data, DATASET)
        models.check_records(self._model, self._data)
        tasks = describe(
            self._data, args.batch_size, kind=_KIND, shuffle_seed=None, task_records=None
        )
        shape, task_records = self._data.source.shape(), tasks["task_records"]
        outputs.check_others(Path(args.output), shape, task_records)
        self._replica = models.replica(self._model, trainer=load().trainer)
        self.step = models.restore(self._replica, args.parameters)
        self._interval = ReportInterval()

    def __call__(self, member: Session) -> bool:
        """Predicts this trainer's share; one trainer then writes the index."""
        args, folder = self._args, Path(self._args.output)
        export = Export(member=member)
        loop = batches(self._data, args.batch_size, kind=_KIND, member=member)
        writer = outputs.OutputWriter(folder, self._data.source.shape())
        done = 0
        for records in loop:
            writer.add(loop.portions, models.predict(self._replica, records))
            done += loop.records
            speed = self._interval.note(loop.records)
            if speed is not None:
                print_line(f"{STEP}predicted here", format_count(done, "record"), speed)
        if member.stopping:
            return False
        export.run(self._finish)
        return True

    def _finish(self) -> None:
        args = self._args
        single_file = Path(args.join) if args.join else None
        missing = outputs.finish(Path(args.output), self._data.source.shape(), single_file)
        count = format_count(len(outputs.parts(Path(args.output))), "file")
        missing_text = f"; missing {', '.join(missing)}, whose tasks failed" if missing else ""
        print(
            f"{RESULT}{self._model.name} has predicted: {count} in {args.output}{missing_text}",
            flush=True,
        )
