"""The schedule of training: how often, in which order and in which tasks records are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edl.data.batches import describe

if TYPE_CHECKING:
    from edl.master import protocol
    from edl.sources.base import Dataset


@dataclass(frozen=True)
class DataSchedule:
    """Arguments of the functions that train, as described in `edl.batches`; built with keywords."""

    epochs: int | None = None
    shuffle_seed: int | None = None
    shuffle: str = "records"
    task_records: int | None = None

    def describe(self, dataset: Dataset, batch_size: int, *, overlap: bool) -> protocol.Json:
        """Returns the description of a data set for the master.

        Args:
            dataset: The same in all trainers.
            batch_size: Records of a step.
            overlap: Whether an epoch may begin while other trainers still train on the previous one.

        Raises:
            DataError: A value is out of its range.
            SettingError: EDL_EPOCHS is needed, and is not a whole number.
        """
        return describe(
            dataset,
            batch_size,
            epochs=self.epochs,
            shuffle_seed=self.shuffle_seed,
            shuffle=self.shuffle,
            task_records=self.task_records,
            overlap=overlap,
        )
