"""Trainers that fail at their start: the nodes that a job avoids, and the failures that count against it.

Everything is computed from ended pods that still exist, so no state is kept and a restart loses nothing.
One failure does not show whether the job's program or the node is to blame; the numbers of failing nodes
and jobs do (docs/decisions/0019).
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
"""Largest number of nodes that one pod avoids; each is an entry in its spec."""

_FIRST_S, _MAX_S = 600.0, 3600.0
"""How long a job avoids a node after a first failure there, and at most; each failure doubles the time."""
_FORGET_S = 6 * 3600.0
"""Failures older than this do not count."""
_BATCH_S = 10.0
"""Trainers created within this time of each other may fail on a node together, which counts as one failure."""
_AGAIN_S = 600.0
"""If a node lacks capacity for a job's trainers again within this time, that counts as a failure."""
_MANY_NODES = 3
"""A job that fails on this many nodes, and on more nodes than it runs on, is itself the cause."""
_VOTES = 3
"""Number of jobs, or of other namespaces, whose trainers fail on a node before all jobs avoid it."""


def failed_s(pod: Pod) -> float:
    """Returns when a trainer failed; at least its creation time, in case the node's clock is slow."""
    return max(pod.ended_s, pod.created_s)


def batches(failed: Iterable[Pod]) -> dict[str, list[list[Pod]]]:
    """Returns node -> trainers that failed there at their start; trainers that failed together share a list.

    A trainer joins the list of an earlier failure if it was created before that failure could be known.
    A lack of capacity is known at once.
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
    """Returns when the reconciler knows about the failure of a batch's first trainer."""
    return (
        failed_s(first) if first.lacked_room else max(first.created_s + _BATCH_S, failed_s(first))
    )


def blamable(failed: Iterable[Pod]) -> list[Pod]:
    """Returns the trainers whose failure at the start says something about the node or the job.

    A node's first lack of capacity is left out: two schedulers used the same capacity, which happens
    rarely. If the kubelet counts differently from the schedulers, the next trainer lacks capacity too.
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
    """Returns node -> end of the time for which a job avoids it.

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
    """Returns whether a job is itself the cause of its failures, because it fails on too many nodes.

    Args:
        failing: Number of nodes where it fails.
        elsewhere: Number of other nodes where it runs.
    """
    return failing >= _MANY_NODES and failing > elsewhere


def _proved_s(pods: Iterable[Pod]) -> list[tuple[float, str]]:
    """Returns (time at which its start had succeeded, node) for each running trainer."""
    return [(pod.started_s + START_S, pod.node) for pod in _running(pods)]


def _running(pods: Iterable[Pod]) -> list[Pod]:
    return [
        pod for pod in pods if pod.phase is Phase.RUNNING and not pod.deleting and pod.started_s > 0
    ]


def _nodes_at(failed: Iterable[Pod], pods: Iterable[Pod]) -> dict[float, tuple[int, int]]:
    """Returns time of a failure -> (number of nodes that failed around then, of other nodes that ran).

    A single pass in order of time does this, because a job may have thousands of failures.
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
    """Judges which failures of one job's pods count against the job."""

    def __init__(self, pods: Collection[Pod]) -> None:
        """Reads all pods of the job, ended and live ones."""
        failed = blamable(pod for pod in pods if failed_at_start(pod))
        self._nodes_at = _nodes_at(failed, pods)
        self._running = sum(p.phase is Phase.RUNNING and not p.deleting for p in pods)
        self._first = {
            node_batch[0].uid
            for node_batches in batches(failed).values()
            for node_batch in node_batches
        }

    def repeats(self, pod: Pod) -> bool:
        """Returns whether a failure says nothing new.

        This is so for the second and later trainers that failed on a node together, and for a node's
        first lack of capacity.
        """
        return failed_at_start(pod) and pod.uid not in self._first

    def excuses(self, pod: Pod, min_trainers: int) -> bool:
        """Returns whether the failure does not count towards the job's `backoffLimit`."""
        return self.is_of_node(pod) or self.is_of_surplus(pod, min_trainers)

    def is_of_node(self, pod: Pod) -> bool:
        """Returns whether the node is to blame: the job runs elsewhere, or the failure repeats another."""
        if not failed_at_start(pod):
            return False
        failing, elsewhere = self._nodes_at.get(failed_s(pod), (0, 0))
        if _blames_itself(failing, elsewhere):
            return False
        return elsewhere > 0 or self.repeats(pod)

    def is_of_surplus(self, pod: Pod, min_trainers: int) -> bool:
        """Returns whether a surplus trainer failed while the job's minimum, and at least one trainer, runs."""
        return is_surplus(pod) and self._running >= max(1, min_trainers)


class AvoidedNodes:
    """The nodes that jobs avoid in one plan."""

    def __init__(self, cluster: ClusterState, pools: tuple[NodePool, ...], now_s: float) -> None:
        """Counts on which nodes each job fails, from the cluster's state.

        Args:
            cluster: The cluster.
            pools: The policy's node pools.
            now_s: Seconds since the epoch.
        """
        self._cluster = cluster
        self._pools = pools
        self._own: dict[str, dict[str, float]] = {}
        self._votes: dict[str, dict[str, list[float]]] = {}
        """Node -> namespace -> for each of its jobs, the end of the time for which it avoids the node."""
        self._voted_by_namespace: dict[str, dict[str, float]] = {}
        self.by_job: dict[str, Mapping[str, float]] = {}
        """`Plan.avoided` of the jobs that were passed to `avoiding`."""
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
        """Returns node -> end of the time for which a job avoids it; only the `MAX_AVOIDED` latest ends.

        A job avoids nodes where its own trainers failed, unless the job itself is the cause. It also
        avoids nodes where trainers of several other jobs failed, if those jobs run elsewhere. All jobs in
        another namespace count as one: they may belong to one tenant and have the same fault.
        """
        avoided = dict(self._own.get(job.key, {}))
        for node, end_s in self._voted(job.namespace).items():
            avoided[node] = max(avoided.get(node, 0.0), end_s)
        latest = sorted(avoided.items(), key=lambda item: (-item[1], item[0]))
        return dict(islice(latest, MAX_AVOIDED))

    def _voted(self, namespace: str) -> Mapping[str, float]:
        """Returns node -> end of the time for which all jobs in a namespace avoid it; cached by namespace."""
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
        """Returns the job with constraints that exclude the nodes it avoids.

        The job is returned unchanged if no node would remain: it then has to try failed nodes again.
        """
        avoided = self.of(job) if self._own and job.managed else {}
        if not avoided or not self._has_other(job, avoided):
            return job
        self.by_job[job.key] = avoided
        constraints = replace(job.constraints, avoided=tuple(sorted(avoided)))
        return replace(job, constraints=constraints)

    def waive(self, key: str) -> None:
        """Lets a job's guaranteed trainers run on nodes that it avoids, because no other has capacity."""
        self._waived.add(key)

    def names(self, job: Job, tier: Tier | None = None) -> tuple[str, ...]:
        """Returns the nodes that new trainers of the job must not run on, in order of name.

        Args:
            job: The job.
            tier: Tier of the trainers; None for trainers that wait for an autoscaler.
        """
        waived = tier is Tier.GUARANTEED and job.key in self._waived
        return () if waived else tuple(sorted(self.by_job.get(job.key, ())))

    def _has_other(self, job: Job, avoided: Collection[str]) -> bool:
        """Returns whether a trainer could ever run on another node."""
        nodes = self._cluster.nodes
        return any(
            name not in avoided and amounts.within(job.requests, nodes[name].allocatable)
            for name in self._cluster.open_nodes(job.constraints, self._pools)
        )
