"""Writes what each plan was made of, with the plan: to be planned again, and compared (decision 0060)."""

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
    """The newest snapshots of this process, as files of one folder."""

    def __init__(self, folder: Path, kept: int) -> None:
        """Writes nothing yet.

        Args:
            folder: Where the files are; it is created. Those of an earlier process are overwritten.
            kept: Number of files; the newest replaces the oldest.
        """
        self._folder = folder
        self._kept = kept
        self._numbers = count()

    @classmethod
    def of(cls, settings: ReconcilerSettings) -> "TickSnapshots | None":
        """Those that the settings ask for."""
        folder = settings.snapshot_folder
        return None if folder is None else cls(folder, settings.snapshots_kept)

    def record(
        self, cluster: ClusterState, policy: Policy, now_s: float, history: History, plan: Plan
    ) -> None:
        """Writes one; what cannot be written is logged and costs nothing else."""
        name = f"{_PREFIX}{next(self._numbers) % self._kept:05}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            plan_input = PlanInput.of(cluster, policy, now_s, history)
            text = snapshot_file.dumps(SnapshotFile(plan_input, plan))
            partial_file = self._folder / f"{name}.partial"  # readers see whole files alone
            partial_file.write_bytes(text)
            partial_file.replace(self._folder / name)
        except Exception as error:  # noqa: BLE001 - a tick must not fail because of what watches it
            log.warning("could not write snapshot", extra=keys(file=name, error=str(error)))
