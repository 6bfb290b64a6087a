"""Whether a cluster has settled, by the input of the reconciler's newest plan instead of a wait.

The reconciler writes that where `--snapshot-folder` names a folder (decision 0060).
"""

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from policy.cluster.snapshot import Phase
from policy.document.model import Policy
from policy.errors import SnapshotError
from policy.planning import snapshot_file
from policy.planning.plan_input import PlanInput
from runtime import clock

_AHEAD_S = 600.0
"""Longer than all that makes a plan wait on an unchanged cluster."""
_POLL_S = 0.05


def unsettled(
    plan_input: PlanInput, policy: Policy, jobs: Collection[str], service_count: int
) -> str:
    """What still goes on in a cluster; "" for nothing.

    A cluster has settled if every pod runs, and a plan has nothing to do, now and after all delays.

    Args:
        plan_input: What the newest plan was made of.
        policy: The one that should be in force.
        jobs: Keys of the jobs that should be there.
        service_count: How many pods of services should be there.
    """
    snapshot = plan_input.snapshot
    services = [pod for pod in snapshot.pods if not pod.is_training]
    under_way = [pod.key for pod in snapshot.pods if pod.deleting or pod.phase is not Phase.RUNNING]
    obstacles = (
        ("the policy is not in force", plan_input.policy != policy),
        ("jobs have not come", {job.key for job in snapshot.jobs} != set(jobs)),
        ("a job is being checked", any(job.unprobed for job in snapshot.jobs)),
        ("services have not come", len(services) != service_count),
        (f"pods do not run: {', '.join(under_way[:3])}", bool(under_way)),
    )
    for text, holds in obstacles:
        if holds:
            return text
    later = (replace(plan_input, at_s=plan_input.at_s + ahead_s) for ahead_s in (0.0, _AHEAD_S))
    return "" if all(each.plan().empty for each in later) else "a plan has something to do"


class Ticks:
    """The folder for the inputs of a reconciler's plans."""

    def __init__(self, folder: Path) -> None:
        """The folder may not be there yet."""
        self.folder = folder

    def newest(self) -> PlanInput | None:
        """Returns the input of the newest plan; None if there is none, or if it is being written."""
        files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        try:
            return snapshot_file.loads(files[-1].read_bytes()).input
        except (IndexError, SnapshotError):
            return None

    def settle(
        self, policy: Policy, jobs: Collection[str], service_count: int, within_s: float
    ) -> str:
        """Waits until the cluster has settled; what still goes on when time is up, "" for nothing.

        Plans from before the call do not count. Arguments are as of `unsettled`.
        """
        deadline_s, since_s = clock.monotonic_s() + within_s, clock.epoch_s()
        unfinished = "no plan was made"
        while clock.monotonic_s() < deadline_s:
            newest = self.newest()
            if newest is not None and newest.at_s > since_s:
                unfinished = unsettled(newest, policy, jobs, service_count)
                if not unfinished:
                    return ""
            time.sleep(_POLL_S)
        return unfinished
