"""Turns plans into decision records: what changed of each job, with what only a look can tell.

Rules note the figures they have at hand. That no node has room leaves open how far from it the
nearest one is, and telling costs a look at every node; so it is told of changes alone, and of as
many as a round has time for.
"""

from policy.decisions import NONE, Figures
from policy.index import Index
from policy.model import NodePool
from policy.planning import JobPlan, Plan
from policy.reasons import Reason
from policy.snapshot import Constraints, Job
from policy.vicinity import nearest
from reconciler import reports
from runtime.records import Records

_MOST_LOOKS = 2_000
"""Nodes looked at in one round before the rest goes without: a few milliseconds."""

_Wish = tuple[tuple[tuple[str, int], ...], Constraints]


class Witness:
    """Owned by the loop's thread."""

    def __init__(self, records: Records) -> None:
        """Begins with nothing known.

        Args:
            records: Where records are kept.
        """
        self._records = records
        self._plans: dict[str, JobPlan] = {}

    def planned(self, made: Plan, index: Index, pools: tuple[NodePool, ...], now_s: float) -> None:
        """Keeps what was decided of each job whose reason, figures or numbers are new."""
        looks = _Looks(index, pools)
        for wanted in made.jobs:
            last = self._plans.get(wanted.key)
            if last is None or _differs(last, wanted):
                more = NONE
                if wanted.reason is Reason.NO_ROOM:
                    more = looks.at(index.jobs[wanted.key])
                self._records.note(wanted.key, reports.of_job(wanted, more, now_s))
        self._plans = {wanted.key: wanted for wanted in made.jobs}

    def forget(self, key: str) -> None:
        """A job that is gone; another of its name begins anew."""
        self._plans.pop(key, None)
        self._records.forget(key)


def _differs(old: JobPlan, new: JobPlan) -> bool:
    """All but the share, which moves with every node."""
    return (old.reason, old.live, old.target, old.figures) != (
        new.reason,
        new.live,
        new.target,
        new.figures,
    )


class _Looks:
    """What one round has seen of the nodes."""

    def __init__(self, index: Index, pools: tuple[NodePool, ...]) -> None:
        self._index = index
        self._pools = pools
        self._left = _MOST_LOOKS
        self._seen: dict[_Wish, Figures] = {}

    def at(self, job: Job) -> Figures:
        """The node nearest to having room for one of the job's trainers; empty for no time left."""
        wish = (tuple(sorted(job.requests.items())), job.constraints)
        found = self._seen.get(wish)
        if found is None and self._left > 0:
            open_nodes = self._index.open_nodes(job.constraints, self._pools)
            self._left -= len(open_nodes)
            found = self._seen[wish] = nearest(job.requests, open_nodes, self._index.available)
        return found or NONE
