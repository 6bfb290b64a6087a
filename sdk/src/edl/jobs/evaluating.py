"""Evaluations of a model version: each trainer takes a share, the master sums up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Optional, TypeVar

from edl import clock, wire
from edl.backoff import Backoff
from edl.batches import batches
from edl.errors import Refused, Unavailable
from edl.session import Session
from edl.sources.base import Dataset

T = TypeVar("T")

NAME = "evaluation"
LEFT = "left"
"""A metric of tasks whose model is there no more: such an evaluation does not count."""
_UNKNOWN = 404
_ASKED_S = 1.0
"""How long to wait for the one who is to ask, before asking oneself."""
_LOOK_S = 0.02
Evaluate = Callable[[Any], Optional[Mapping[str, float]]]
"""Means over one batch; None where the model of that version is there no more."""


class Evaluator:
    """Of one trainer; all trainers of the job evaluate the same versions."""

    def __init__(self, dataset: Dataset, batch_size: int, member: Session) -> None:
        """Asks nothing yet, and says nothing: what is described first is trained first."""
        self._dataset, self._batch_size, self._member = dataset, batch_size, member
        self.newest: tuple[int, dict[str, float]] | None = None
        """Version and metrics of the last one that was seen whole."""

    def run(self, version: int, evaluate: Evaluate, *, asks: bool) -> dict[str, float]:
        """Takes part in an evaluation until all of it is done.

        Args:
            version: Of the model, which all trainers hold.
            evaluate: Computes metrics of a batch with that model.
            asks: Whether this is the trainer who asks the master for it; one does at once, and
                the others where they hear of no evaluation for long.

        Returns:
            Means over all records; empty where there are none: this trainer is to leave, or the
            model was gone before all were evaluated.
        """
        self._ask(version, at_once=asks)
        loop = self._loop()
        for records in loop:
            found = evaluate(records) if loop.model_version == version else None
            loop.report(**({LEFT: 1.0} if found is None else found))
        told = self.known(version)
        if told is None or not told["complete"]:
            return {}
        metrics = {name: value for name, value in told["metrics"].items() if value is not None}
        self.newest = version, metrics
        return metrics

    def known(self, version: int) -> wire.Json | None:
        """The newest evaluation of a version that counts."""
        control = self._member.control()
        try:
            found = self._patiently(lambda: control.evaluation(version))
        except Refused as error:
            if error.status != _UNKNOWN:
                raise
            return None
        mine = [one for one in found["rounds"] if one.get("dataset") == self._dataset.name]
        fine = [one for one in mine if LEFT not in one["metrics"]]
        return fine[-1] if fine else None

    def _loop(self) -> Any:
        return batches(
            self._dataset, self._batch_size, epochs=0, kind="evaluation", member=self._member
        )

    def _ask(self, version: int, *, at_once: bool) -> None:
        until_s = clock.monotonic_s() + (0.0 if at_once else _ASKED_S)
        pause = Backoff(_LOOK_S, _ASKED_S / 10)
        while self.known(version) is None and not self._member.stopping:
            if clock.monotonic_s() >= until_s:
                self._patiently(lambda: self._demand(version))
                return
            threading.Event().wait(pause.next_s())

    def _demand(self, version: int) -> None:
        name = self._dataset.name
        self._member.describe(name, self._loop().description)
        self._member.control().evaluate(version, name)

    def _patiently(self, act: Callable[[], T]) -> T:
        """Does it, as often as the master is away."""
        pause, until_s = Backoff(), clock.monotonic_s() + self._member.settings.patience_s
        while True:
            try:
                return act()
            except Unavailable:  # noqa: PERF203 - it waits much longer than this costs
                if clock.monotonic_s() > until_s or self._member.stopping:
                    raise
                threading.Event().wait(pause.next_s())
