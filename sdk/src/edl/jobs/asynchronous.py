"""One trainer of `edl train --async`."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from edl import model as models
from edl import servers
from edl.commands import training
from edl.jobs.learning import Learning
from edl.jobs.telling import RESULT, STEP, line, numbers, several
from edl.servers.errors import Declined, Moved
from edl.servers.fleet import Servers
from edl.servers.options import Rules, Step
from edl.session import Session
from edl.settings import load

_NOT_FOUND = 404
_TRIES = 3
"""Of the last evaluation, where servers go back to a checkpoint meanwhile."""


class Asynchronous(Learning):
    """Callable with a session; see `edl.jobs.trainer.run`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Loads the model and the data.

        Raises:
            EdlError: Something of it cannot be used.
        """
        super().__init__(asked)
        self._worker = models.worker(self._model, seed=asked.seed, trainer=load().trainer)
        self._rules = Rules(
            max_staleness=asked.max_staleness,
            modulate=asked.modulate,
            checkpoint_steps=training.checkpoint_steps(asked),
            checkpoint_seconds=0.0,
            checkpoint_keep=3,
        )
        self._evaluated: int | None = None
        """How many evaluations were due when it last looked."""

    def __call__(self, member: Session) -> bool:
        """Trains, evaluates, exports."""
        asked = self._asked
        export = self._announce(member)
        result = servers.train(
            self._worker,
            self._data,
            asked.batch_size,
            epochs=asked.epochs,
            shuffle_seed=asked.seed,
            **self._rules._asdict(),
            code=self._code,
            on_nan=asked.on_nan,
            on_step=self._tell,
            member=member,
        )
        if not result.whole:
            return False
        with closing(
            servers.connect(self._worker, code=self._code, rules=self._rules, member=member)
        ) as found:
            self._evaluate_last(found, member)
            if export is not None:
                export.run(lambda: self._export(found))
            print(RESULT + self._summary(result, found, member), flush=True)
        return True

    def _evaluate_last(self, found: Servers, member: Session) -> None:
        for _ in range(_TRIES):
            if self._evaluator is None or member.stopping:
                return
            try:
                if self._evaluate(found, found.version):
                    return
            except Moved:
                found.refresh()

    def _tell(self, step: Step) -> None:
        speed = self._pace.note(step.records, step.exchange_s)
        if speed is not None:
            head = f"{STEP}{step.version}, epoch {step.epoch + 1} of {self._asked.epochs}"
            line(head, numbers(step.metrics), speed, f"batch {step.number} of this trainer")
        if self._evaluator is not None and self._every:
            due = step.version // self._every
            before, self._evaluated = self._evaluated, due
            if before is not None and due > before:
                self._evaluate(step.servers, due * self._every)

    def _evaluate(self, found: Servers, version: int) -> bool:
        """All trainers evaluate what the servers had when the first one came to it.

        Returns:
            Whether its result is known.

        Raises:
            Moved: The servers have gone back, before the version was kept.
        """
        evaluator = self._evaluator
        if evaluator is None:
            return False
        known = evaluator.known(version)
        if known is None:
            found.pin(version)
        model = _Pinned(self._worker, found, version)
        metrics = evaluator.run(version, model.evaluate, asks=True)
        if known is None and metrics:
            line(f"{STEP}{version}, evaluation", numbers(metrics))
            model.forget()
        return bool(metrics)

    def _export(self, found: Servers) -> None:
        while self._asked.export:
            found.refresh()
            self._worker.load(found.dense)
            try:
                models.export(self._worker, Path(self._asked.export), lookup=found.lookup)
            except Moved:  # some rows are of a model that is gone
                continue
            return

    def _summary(self, result: servers.Result, found: Servers, member: Session) -> str:
        status = member.control().status()
        records = int(status["datasets"][self._data.name]["done_records"])
        made = f"{several(found.version, 'step')}, {several(records, 'record')}"
        parts = [f"{self._model.name} is trained: {made}, {numbers(result.metrics)} here"]
        newest = None if self._evaluator is None else self._evaluator.newest
        if newest is not None:
            parts.append(f"evaluation of step {newest[0]}: {numbers(newest[1])}")
        if result.skipped:
            parts.append(f"{several(result.skipped, 'step')} left out, their loss was no number")
        lost = status.get("setbacks") or {}
        if lost.get("steps"):
            parts.append(f"{several(lost['steps'], 'step')} lost with servers and done without")
        parts.append(f"{several(len(status['trainers']), 'trainer')} at the end")
        return "; ".join(parts)


class _Pinned:
    """The model as servers have pinned it."""

    def __init__(self, worker: Any, found: Servers, version: int) -> None:
        self._worker, self._servers, self._version = worker, found, version
        self._loaded = self._gone = False

    def evaluate(self, records: Any) -> dict[str, float] | None:
        """Means over a batch; None once servers have it no more."""
        if self._gone:
            return None
        try:
            if not self._loaded:
                self._worker.load(self._servers.pinned(self._version))
                self._loaded = True
            return models.evaluate(self._worker, records, lookup=self._lookup)
        except Declined:  # they were started anew, or another evaluation took its place
            self._gone = True
            return None

    def forget(self) -> None:
        """It is not needed any more."""
        try:
            self._servers.unpin(self._version)
        except Declined as error:
            if error.status != _NOT_FOUND and not isinstance(error, Moved):
                raise

    def _lookup(self, table: str, ids: Any) -> Any:
        return self._servers.lookup(table, ids, pin=self._version)
