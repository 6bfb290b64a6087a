"""Evaluates a model version: trainers evaluate shares of the data, and the master adds up the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Optional

from edl import clock
from edl.backoff import Backoff
from edl.data.batches import batches
from edl.errors import Refused
from edl.master import protocol
from edl.master.session import Session
from edl.sources.base import Dataset
from edl_protocol.master import MODEL_GONE

NAME = "evaluation"
_UNKNOWN = 404
_REQUEST_S = 1.0
"""How long other trainers wait for the responsible trainer to start an evaluation."""
_POLL_S = 0.02
Evaluate = Callable[[Any], Optional[Mapping[str, float]]]
"""Returns the means over one batch, or None if that model version no longer exists."""

Finish = Callable[[Mapping[str, float]], dict[str, float]]
"""Computes the values of metrics from means over all records."""


class Evaluator:
    """Runs one trainer's share of evaluations; all trainers evaluate the same versions."""

    def __init__(self, dataset: Dataset, batch_size: int, member: Session) -> None:
        """Sends nothing yet: the training data must be described first, so that it is trained first."""
        self._dataset, self._batch_size, self._member = dataset, batch_size, member
        self.newest: tuple[int, dict[str, float]] | None = None
        """Version and metrics of the last complete evaluation."""

    def run(
        self, version: int, evaluate: Evaluate, *, asks: bool, finish: Finish = dict
    ) -> dict[str, float]:
        """Takes part in an evaluation until it is complete.

        Args:
            version: Model version, the same in all trainers.
            evaluate: Computes the metrics of a batch with that version.
            asks: Whether this trainer starts the evaluation; other trainers start it only if this
                has not happened after a while.
            finish: Computes the values of metrics from means over all records.

        Returns:
            Metrics over all records; empty if this trainer is stopping, or the model was lost before
            all records were evaluated.
        """
        self._request_evaluation(version, at_once=asks)
        loop = self._loop()
        for records in loop:
            batch_metrics = evaluate(records) if loop.model_version == version else None
            loop.report(**({MODEL_GONE: 1.0} if batch_metrics is None else batch_metrics))
        evaluation_round = self.counted_round(version)
        if evaluation_round is None or not evaluation_round["complete"]:
            return {}
        means = evaluation_round["metrics"]
        metrics = finish({name: value for name, value in means.items() if value is not None})
        self.newest = version, metrics
        return metrics

    def counted_round(self, version: int) -> protocol.Json | None:
        """Returns the newest valid evaluation of a version, or None if there is none."""
        control = self._member.control()
        try:
            evaluation = self._member.retry_while_away(lambda: control.evaluation(version))
        except Refused as error:
            if error.status != _UNKNOWN:
                raise
            return None
        valid_rounds = [
            round_
            for round_ in evaluation["rounds"]
            if round_.get("dataset") == self._dataset.name and MODEL_GONE not in round_["metrics"]
        ]
        return valid_rounds[-1] if valid_rounds else None

    def _loop(self) -> Any:
        return batches(
            self._dataset, self._batch_size, epochs=0, kind="evaluation", member=self._member
        )

    def _request_evaluation(self, version: int, *, at_once: bool) -> None:
        until_s = clock.monotonic_s() + (0.0 if at_once else _REQUEST_S)
        pause = Backoff(_POLL_S, _REQUEST_S / 10)
        while self.counted_round(version) is None and not self._member.stopping:
            if clock.monotonic_s() >= until_s:
                self._member.retry_while_away(lambda: self._start_evaluation(version))
                return
            threading.Event().wait(pause.next_s())

    def _start_evaluation(self, version: int) -> None:
        name = self._dataset.name
        self._member.describe(name, self._loop().description)
        self._member.control().evaluate(version, name)
