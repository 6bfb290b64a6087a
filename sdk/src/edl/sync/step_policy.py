"""Decides how many records a step has, and its learning rate (pure)."""

from __future__ import annotations

from edl.sync.options import SyncOptions
from edl.sync.plans import micro_size


class StepPolicy:
    """The policy of members that sum their gradients in each step; subclasses define other policies."""

    min_plans = 4
    """Members request plans when this many are left, so that readers can read ahead."""

    def __init__(self, options: SyncOptions) -> None:
        self._options = options

    def records(self, workers: int) -> int:
        """Returns the number of records of a step.

        Args:
            workers: Number of members that compute it.
        """
        options = self._options
        if options.constant_batch:
            return options.batch_size
        return micro_size(options.batch_size, options.micro_batches) * workers

    def scale(self, workers: int) -> float:
        """Returns the factor of the learning rate of a step that `workers` members compute."""
        options = self._options
        return 1.0 if options.constant_batch else workers / options.micro_batches
