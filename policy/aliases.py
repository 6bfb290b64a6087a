"""Names in place of names: the same for the same, and in the same order. Pure.

Decisions break ties by the order of names, so aliases sort as what they stand for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from policy.names import DEFAULT_SCHEDULER, NODE_NAME
from policy.plan_input import PlanInput
from policy.snapshot import Constraints, Requirement
from policy.stranding import KNOWN_TAINTS

_NUMERIC = ("Gt", "Lt")
_WELL_KNOWN = ("kubernetes.io/", "k8s.io/", "edl.training/", *KNOWN_TAINTS)
"""Parts of keys of labels and taints that Kubernetes, its autoscalers and EDL have set."""


class Aliases:
    """The aliases of one kind of name; "" stays "", and so do the unchanged names."""

    def __init__(self, kind: str, names: Iterable[str], unchanged: Iterable[str] = ()) -> None:
        """Names the names.

        Args:
            kind: What all aliases begin with.
            names: All names of this kind, in any order.
            unchanged: Those that are their own alias.
        """
        self._aliases = {"": "", **{name: name for name in unchanged}}
        new = sorted(set(names) - self._aliases.keys())
        width = len(str(len(new)))
        self._aliases |= {name: f"{kind}-{i:0{width}}" for i, name in enumerate(new)}

    def __call__(self, name: str) -> str:
        """The alias of a name."""
        return self._aliases[name]


@dataclass(slots=True)
class _Names:
    """The names in a plan's input, by kind."""

    namespaces: set[str] = field(default_factory=set)
    objects: set[str] = field(default_factory=set)
    """Of pods and jobs, which refer to each other."""
    uids: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    schedulers: set[str] = field(default_factory=set)
    containers: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    """Of labels and taints."""
    values: set[str] = field(default_factory=set)
    compared: set[str] = field(default_factory=set)
    """Keys of labels whose values are compared as numbers."""


class AliasesOf:
    """The aliases for one plan's input, by kind."""

    def __init__(self, plan_input: PlanInput) -> None:
        """Collects the names."""
        names = _Names()
        _add_cluster(names, plan_input)
        _add_history(names, plan_input)
        _add_policy(names, plan_input)
        for constraints in constraints_of(plan_input):
            _add_constraints(names, constraints)
        numbers = {
            node.labels[key]
            for node in plan_input.snapshot.nodes
            for key in names.compared & node.labels.keys()
        }
        # Keys of jobs are sorted with the slash between namespace and name.
        self._namespaces = Aliases("namespace", (f"{name}/" for name in names.namespaces))
        self.namespace_names = sorted(names.namespaces)
        self.objects = Aliases("name", names.objects)
        self.uids = Aliases("uid", names.uids)
        self.nodes = Aliases("node", names.nodes)
        self.queues = Aliases("queue", names.queues)
        self.schedulers = Aliases("scheduler", names.schedulers, (DEFAULT_SCHEDULER,))
        self.containers = Aliases("container", names.containers)
        well_known = (key for key in names.keys if any(part in key for part in _WELL_KNOWN))
        self.keys = Aliases("key", names.keys, (NODE_NAME, *well_known))
        self.values = Aliases("value", names.values, numbers)

    def namespace(self, name: str) -> str:
        """The alias of a namespace."""
        return self._namespaces(f"{name}/")

    def job_key(self, key: str) -> str:
        """The alias of namespace/name."""
        namespace, _, name = key.partition("/")
        return f"{self.namespace(namespace)}/{self.objects(name)}"


def constraints_of(plan_input: PlanInput) -> set[Constraints]:
    """All constraints in a plan's input."""
    snapshot, failed = plan_input.snapshot, plan_input.history.failed_moves
    return {
        *(pod.constraints for pod in snapshot.pods),
        *(job.constraints for job in snapshot.jobs),
        *(job.server_constraints for job in snapshot.jobs),
        *(key.constraints for key in failed),
    }


def is_number(requirement: Requirement) -> bool:
    """Whether the values of a requirement are compared as numbers."""
    return requirement.operator in _NUMERIC


def _add_cluster(names: _Names, plan_input: PlanInput) -> None:
    snapshot = plan_input.snapshot
    for node in snapshot.nodes:
        names.nodes.add(node.name)
        names.keys |= {*node.labels, *(taint.key for taint in node.taints)}
        names.values |= {*node.labels.values(), *(taint.value for taint in node.taints)}
    for pod in snapshot.pods:
        names.namespaces.add(pod.namespace)
        names.objects |= {pod.name, pod.job}
        names.uids |= {pod.uid, pod.owner_uid}
        names.nodes |= {pod.node, pod.planned, pod.nominated}
        names.schedulers |= {pod.scheduler, pod.asked_scheduler}
        names.containers |= {container for container, _ in pod.exits}
    for job in snapshot.jobs:
        names.namespaces.add(job.namespace)
        names.objects.add(job.name)
        names.uids.add(job.uid)
        names.queues.add(job.queue)
        names.schedulers.add(job.scheduler)
        names.containers |= {rule.container for rule in job.failure_rules}


def _add_history(names: _Names, plan_input: PlanInput) -> None:
    history = plan_input.history
    line = history.line
    names.uids |= {
        *(plan_input.own_times or ()),
        *history.reclaimed_for,
        *history.moved,
        *history.offered,
        *history.quota_reliefs,
        *history.short_since,
        *history.vain_requests,
        *history.creation_backoffs,
        *history.demands,
        *line.blocked_since,
    }
    names.queues |= {entry.demand.queue for entry in history.demands.values()}
    names.nodes |= {*history.cooling, *history.unneeded_since}
    for node, key in history.tainted_since or ():
        names.nodes.add(node)
        names.keys.add(key)
    names.schedulers.add(history.scheduling.scheduler)
    for job_key in (*line.vain, *([line.head.key] if line.head is not None else ())):
        namespace, _, name = job_key.partition("/")
        names.namespaces.add(namespace)
        names.objects.add(name)
    if line.head is not None:
        names.uids.add(line.head.uid)


def _add_policy(names: _Names, plan_input: PlanInput) -> None:
    policy = plan_input.policy
    names.namespaces |= {quota.namespace for quota in policy.quotas if quota.namespace}
    names.queues |= {
        *(queue.name for queue in policy.queues),
        *(quota.queue for quota in policy.quotas if quota.queue),
        *policy.fairness.queue_weights,
        *policy.autoscaling.queues,
    }
    names.schedulers.add(policy.scheduling.scheduler_name)
    for pool in policy.node_pools:
        names.keys |= pool.labels.keys()
        names.values |= set(pool.labels.values())


def _add_constraints(names: _Names, constraints: Constraints) -> None:
    names.nodes |= set(constraints.avoided)
    for requirement in (part for term in constraints.terms for part in term):
        names.keys.add(requirement.key)
        if requirement.key == NODE_NAME:
            names.nodes |= set(requirement.values)
        elif is_number(requirement):
            names.compared.add(requirement.key)
        else:
            names.values |= set(requirement.values)
    names.keys |= {toleration.key for toleration in constraints.tolerations}
    names.values |= {toleration.value for toleration in constraints.tolerations}
