"""Writes each plan and its input to a file, so that plans can be replayed and compared (decision 0060)."""

import logging
from itertools import count
from pathlib import Path

from policy.cluster.cluster_state import ClusterState
from policy.document.model import Policy
from policy.planning import snapshot_file
from policy.planning.plan import History, Plan
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile
from reconciler.settings import ReconcilerSettings
from runtime.logs import keys

log = logging.getLogger(__name__)

_PREFIX = "tick-"


class TickSnapshots:
    """The newest snapshots of this process, as files in a folder."""

    def __init__(self, folder: Path, kept: int) -> None:
        """Initializes the snapshots without writing any.

        Args:
            folder: The folder of the files, created if missing. Files of an earlier process are overwritten.
            kept: Maximum number of files; then the newest replaces the oldest.
        """
        self._folder = folder
        self._kept = kept
        self._numbers = count()

    @classmethod
    def of(cls, settings: ReconcilerSettings) -> "TickSnapshots | None":
        """Returns the snapshots that the settings request, or None."""
        folder = settings.snapshot_folder
        return None if folder is None else cls(folder, settings.snapshots_kept)

    def record(
        self, cluster: ClusterState, policy: Policy, now_s: float, history: History, plan: Plan
    ) -> None:
        """Writes one snapshot; a failure is logged and has no other effect."""
        name = f"{_PREFIX}{next(self._numbers) % self._kept:05}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            plan_input = PlanInput.of(cluster, policy, now_s, history)
            text = snapshot_file.dumps(SnapshotFile(plan_input, plan))
            partial_file = (
                self._folder / f"{name}.partial"
            )  # so that readers only see complete files
            partial_file.write_bytes(text)
            partial_file.replace(self._folder / name)
        except Exception as error:  # noqa: BLE001 - a debugging aid must not make the tick fail
            log.warning("could not write snapshot", extra=keys(file=name, error=str(error)))
