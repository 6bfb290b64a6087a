"""Nodes where trainers fail at their start: which a job avoids, and which failures are the job's own.

All of it follows from the ended pods that still exist, so a restart forgets nothing and nothing
is kept. One job never tells whether its program or a node is to blame; how many nodes fail, and how
many jobs, tells more (docs/decisions/0019).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from policy.backoff import pause_s
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import START_S, LiveTrainers, failed_at_start, is_surplus
from policy.cluster.snapshot import Job, Phase, Pod
from policy.document.model import NodePool
from policy.names import Tier

MAX_AVOIDED = 10
"""Nodes that one pod avoids at most; each is an entry in its spec."""

_FIRST_S, _MAX_S = 600.0, 3600.0
"""How long a job avoids a node after a first failure there; doubles with each further one."""
_FORGET_S = 6 * 3600.0
"""Failures longer ago than this count no more."""
_BATCH_S = 10.0
"""Trainers created within this time of each other may meet a node together: one failure."""
_AGAIN_S = 600.0
"""A node that lacks room for a job's trainers again within this time counts like one that fails."""
_MANY_NODES = 3
"""A job that fails on as many nodes, and on more than it runs on, is the cause itself."""
_VOTES = 3
"""Jobs, or namespaces of others, whose trainers fail on a node before all avoid it."""


def failed_s(pod: Pod) -> float:
    """When a trainer failed; not before its creation, should the node's clock be behind."""
    return max(pod.ended_s, pod.created_s)


def batches(failed: Iterable[Pod]) -> dict[str, list[list[Pod]]]:
    """Node -> the trainers that failed there at their start, those that met it together in one list.

    A trainer created before the failure of an earlier one could be known does not count again. That
    a node lacks room is known at once.
    """
    by_node: dict[str, list[list[Pod]]] = {}
    for pod in sorted(failed, key=lambda p: (p.created_s, p.trainer_id, p.uid)):
        node_batches = by_node.setdefault(pod.node, [])
        first = node_batches[-1][0] if node_batches else None
        if first is not None and pod.created_s <= _known_s(first):
            node_batches[-1].append(pod)
        else:
            node_batches.append([pod])
    return by_node


def _known_s(first: Pod) -> float:
    """When the failure of the first trainer of a batch is known to those who create trainers."""
    return (
        failed_s(first) if first.lacked_room else max(first.created_s + _BATCH_S, failed_s(first))
    )


def blamable(failed: Iterable[Pod]) -> list[Pod]:
    """Failures at the start that say something about the node, or the job.

    All but the first lack of room on a node: two schedulers have given it away at once, and that passes. One
    whose kubelet counts otherwise than the schedulers lacks room again at once.
    """
    blamable_pods: list[Pod] = []
    for node_batches in batches(failed).values():
        before_s = -math.inf
        for batch in node_batches:
            is_again = batch[0].created_s - before_s < _AGAIN_S
            blamable_pods += [pod for pod in batch if is_again or not pod.lacked_room]
            before_s = max(map(failed_s, batch))
    return blamable_pods


def avoided_until(failed: Iterable[Pod], now_s: float) -> dict[str, float]:
    """Node -> until when a job avoids it.

    Args:
        failed: The job's trainers that failed at their start.
        now_s: Seconds since the epoch.
    """
    recent = [pod for pod in failed if now_s - failed_s(pod) < _FORGET_S]
    until_s: dict[str, float] = {}
    for node, node_batches in batches(blamable(recent)).items():
        last_s = max(failed_s(pod) for pod in node_batches[-1])
        end_s = min(last_s, now_s) + pause_s(_FIRST_S, _MAX_S, len(node_batches))
        if end_s > now_s:
            until_s[node] = end_s
    return until_s


def _blames_itself(failing: int, elsewhere: int) -> bool:
    """Whether a job is the cause of its failures: it fails on too many of its nodes.

    Args:
        failing: Number of nodes where it fails.
        elsewhere: Number of other nodes where it runs.
    """
    return failing >= _MANY_NODES and failing > elsewhere


def _proved_s(pods: Iterable[Pod]) -> list[tuple[float, str]]:
    """For each trainer that runs: when it had run for longer than failures take, and its node."""
    return [(pod.started_s + START_S, pod.node) for pod in _running(pods)]


def _running(pods: Iterable[Pod]) -> list[Pod]:
    return [
        pod for pod in pods if pod.phase is Phase.RUNNING and not pod.deleting and pod.started_s > 0
    ]


def _nodes_at(failed: Iterable[Pod], pods: Iterable[Pod]) -> dict[float, tuple[int, int]]:
    """Time of a failure -> number of nodes that failed around it, and of others that ran then.

    One pass in order of time: a job may have thousands of failures.
    """
    failures = sorted((failed_s(pod), pod.node) for pod in failed)
    proved = sorted(_proved_s(pods))
    failing = Counter[str]()
    running: set[str] = set()
    elsewhere: set[str] = set()
    numbers: dict[float, tuple[int, int]] = {}
    entered = expired = proved_count = 0
    for at_s, _ in failures:
        while entered < len(failures) and failures[entered][0] < at_s + _FIRST_S:
            node = failures[entered][1]
            failing[node] += 1
            elsewhere.discard(node)
            entered += 1
        while failures[expired][0] <= at_s - _FIRST_S:
            node = failures[expired][1]
            failing[node] -= 1
            if not failing[node]:
                del failing[node]
                elsewhere |= running & {node}
            expired += 1
        while proved_count < len(proved) and proved[proved_count][0] <= at_s:
            node = proved[proved_count][1]
            running.add(node)
            if node not in failing:
                elsewhere.add(node)
            proved_count += 1
        numbers[at_s] = len(failing), len(elsewhere)
    return numbers


class Blame:
    """The failures of one job that count against it, from all its pods."""

    def __init__(self, pods: Collection[Pod]) -> None:
        """Looks at ended pods and at live ones."""
        failed = blamable(pod for pod in pods if failed_at_start(pod))
        self._nodes_at = _nodes_at(failed, pods)
        self._running = sum(p.phase is Phase.RUNNING and not p.deleting for p in pods)
        self._first = {
            node_batch[0].uid
            for node_batches in batches(failed).values()
            for node_batch in node_batches
        }

    def repeats(self, pod: Pod) -> bool:
        """Whether the failure says nothing new.

        It is a further one of trainers that met a node together, or a first lack of room.
        """
        return failed_at_start(pod) and pod.uid not in self._first

    def excuses(self, pod: Pod, min_trainers: int) -> bool:
        """Whether the failure does not count towards the job's `backoffLimit`."""
        return self.is_of_node(pod) or self.is_of_surplus(pod, min_trainers)

    def is_of_node(self, pod: Pod) -> bool:
        """Whether the node is to blame: the job runs elsewhere, or has had this failure already."""
        if not failed_at_start(pod):
            return False
        failing, elsewhere = self._nodes_at.get(failed_s(pod), (0, 0))
        if _blames_itself(failing, elsewhere):
            return False
        return elsewhere > 0 or self.repeats(pod)

    def is_of_surplus(self, pod: Pod, min_trainers: int) -> bool:
        """Whether a surplus trainer failed while the job's minimum, and at least one other, runs."""
        return is_surplus(pod) and self._running >= max(1, min_trainers)


class AvoidedNodes:
    """The nodes that jobs avoid in one plan."""

    def __init__(self, cluster: ClusterState, pools: tuple[NodePool, ...], now_s: float) -> None:
        """Counts which jobs fail where; reads the cluster's state.

        Args:
            cluster: The cluster.
            pools: The policy's node pools.
            now_s: Seconds since the epoch.
        """
        self._cluster = cluster
        self._pools = pools
        self._own: dict[str, dict[str, float]] = {}
        self._votes: dict[str, dict[str, list[float]]] = {}
        """Node -> namespace -> until when each of its jobs avoids the node."""
        self._voted_by_namespace: dict[str, dict[str, float]] = {}
        self.by_job: dict[str, Mapping[str, float]] = {}
        """As `Plan.avoided`, of the jobs that `avoiding` was asked for."""
        self._waived: set[str] = set()
        """Keys of jobs whose guaranteed trainers may run on the nodes that the job avoids."""
        for job in cluster.jobs.values():
            trainers = cluster.live_trainers(job)
            if trainers.failed_at_start:
                self._add(job, trainers, now_s)

    def _add(self, job: Job, trainers: LiveTrainers, now_s: float) -> None:
        own = avoided_until(trainers.failed_at_start, now_s)
        started_s = partial(self._cluster.first_seen.started_s, now_s=now_s)
        proved = {p.node for p in _running(trainers.pods) if started_s(p) + START_S <= now_s}
        elsewhere = len(proved - own.keys())
        if _blames_itself(len(own), elsewhere):
            return
        self._own[job.key] = own
        for node, end_s in own.items() if elsewhere else ():
            self._votes.setdefault(node, {}).setdefault(job.namespace, []).append(end_s)

    def of(self, job: Job) -> dict[str, float]:
        """Node -> until when a job avoids it, the latest `MAX_AVOIDED`.

        It avoids nodes where its own trainers failed, unless it blames itself, and those where
        several other jobs' did that run elsewhere. All jobs of another namespace count as one: they
        may be one tenant's, with the same fault.
        """
        avoided = dict(self._own.get(job.key, {}))
        for node, end_s in self._voted(job.namespace).items():
            avoided[node] = max(avoided.get(node, 0.0), end_s)
        latest = sorted(avoided.items(), key=lambda item: (-item[1], item[0]))
        return dict(islice(latest, MAX_AVOIDED))

    def _voted(self, namespace: str) -> Mapping[str, float]:
        """Node -> until when all jobs of a namespace avoid it; counted once for each."""
        voted = self._voted_by_namespace.get(namespace)
        if voted is None:
            voted = self._voted_by_namespace[namespace] = {}
            for node, by_namespace in self._votes.items():
                others = [max(ends) for name, ends in by_namespace.items() if name != namespace]
                ends = sorted([*others, *by_namespace.get(namespace, ())], reverse=True)
                if len(ends) >= _VOTES:
                    voted[node] = ends[_VOTES - 1]
        return voted

    def avoiding(self, job: Job) -> Job:
        """The job with constraints that exclude the nodes it avoids.

        Unchanged where no node would be left: it then has to try those that failed again.
        """
        avoided = self.of(job) if self._own and job.managed else {}
        if not avoided or not self._has_other(job, avoided):
            return job
        self.by_job[job.key] = avoided
        constraints = replace(job.constraints, avoided=tuple(sorted(avoided)))
        return replace(job, constraints=constraints)

    def waive(self, key: str) -> None:
        """Lets guaranteed trainers of a job run on nodes that it avoids: no other has room."""
        self._waived.add(key)

    def names(self, job: Job, tier: Tier | None = None) -> tuple[str, ...]:
        """The nodes that new trainers of the job must not run on, in order of name.

        Args:
            job: The job.
            tier: Tier of trainers for which nodes were chosen; None for those that wait for nodes.
        """
        waived = tier is Tier.GUARANTEED and job.key in self._waived
        return () if waived else tuple(sorted(self.by_job.get(job.key, ())))

    def _has_other(self, job: Job, avoided: Collection[str]) -> bool:
        """Whether a trainer could ever run on another node."""
        nodes = self._cluster.nodes
        return any(
            name not in avoided and amounts.within(job.requests, nodes[name].allocatable)
            for name in self._cluster.open_nodes(job.constraints, self._pools)
        )
