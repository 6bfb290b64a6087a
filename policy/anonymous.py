"""A snapshot without names, on which the same decisions are made. Pure.

Amounts, times, sizes and resource names stay: they are what decisions are made of.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeVar

from policy import quota_refusal
from policy.aliases import AliasesOf, is_number
from policy.failure_rules import FailureRule
from policy.model import NodePool, Policy
from policy.model_fields import labels_match
from policy.names import NODE_NAME
from policy.plan import FailedMove, Head, History, MoveKey
from policy.plan_input import PlanInput, without_templates
from policy.queue_model import Queue, Quota
from policy.snapshot import (
    Constraints,
    Job,
    JobStatus,
    Node,
    Pod,
    Requirement,
    ServerSpec,
    Snapshot,
)

T = TypeVar("T")

_VACATE = "edl.training/vacate"
"""Label of the nodes that `autoscaling.vacate` selects."""
_NO_NAMESPACE = "-"
"""Matches no namespace."""


def anonymous(plan_input: PlanInput) -> PlanInput:
    """The same input with aliases for all names, and without texts that people have written.

    A policy's patterns become the list of what they match.
    """
    return _Anonymous(plan_input).result()


class _Anonymous:
    """One input, with its aliases."""

    def __init__(self, plan_input: PlanInput) -> None:
        self._input = plan_input
        self._aliases = AliasesOf(plan_input)
        self._constraints: dict[Constraints, Constraints] = {}

    def result(self) -> PlanInput:
        snapshot, own_times = self._input.snapshot, self._input.own_times
        return PlanInput(
            self._input.at_s,
            Snapshot(
                tuple(map(self._node, snapshot.nodes)),
                tuple(map(self._pod, snapshot.pods)),
                tuple(map(self._job, snapshot.jobs)),
            ),
            self._policy(self._input.policy),
            self._history(self._input.history),
            None if own_times is None else self._by_uid(own_times),
        )

    def _node(self, node: Node) -> Node:
        keys, values = self._aliases.keys, self._aliases.values
        labels = {keys(key): values(value) for key, value in node.labels.items()}
        vacate = self._input.policy.autoscaling.vacate
        if vacate and labels_match(node.labels, vacate):
            labels[_VACATE] = "true"
        taints = tuple(
            replace(taint, key=keys(taint.key), value=values(taint.value)) for taint in node.taints
        )
        return replace(node, name=self._aliases.nodes(node.name), labels=labels, taints=taints)

    def _pod(self, pod: Pod) -> Pod:
        aliases = self._aliases
        return replace(
            pod,
            namespace=aliases.namespace(pod.namespace),
            name=aliases.objects(pod.name),
            uid=aliases.uids(pod.uid),
            owner_uid=aliases.uids(pod.owner_uid),
            job=aliases.objects(pod.job),
            node=aliases.nodes(pod.node),
            planned=aliases.nodes(pod.planned),
            nominated=aliases.nodes(pod.nominated),
            scheduler=aliases.schedulers(pod.scheduler),
            asked_scheduler=aliases.schedulers(pod.asked_scheduler),
            exits=tuple((aliases.containers(name), code) for name, code in pod.exits),
            constraints=self._constrained(pod.constraints),
            address="",
        )

    def _job(self, job: Job) -> Job:
        aliases = self._aliases
        return replace(
            without_templates(job),
            namespace=aliases.namespace(job.namespace),
            name=aliases.objects(job.name),
            uid=aliases.uids(job.uid),
            queue=aliases.queues(job.queue),
            scheduler=aliases.schedulers(job.scheduler),
            constraints=self._constrained(job.constraints),
            master_settings={},
            servers=self._servers(job.servers),
            account="account",
            failure_rules=tuple(map(self._rule, job.failure_rules)),
            status=_status(job.status),
            accounting=replace(job.accounting, fatal="fatal" if job.accounting.fatal else ""),
            accounting_text="",
            resource_version="",
            error="invalid" if job.error else "",
            refusal=_refusal(job.refusal),
        )

    def _servers(self, spec: ServerSpec | None) -> ServerSpec | None:
        if spec is None:
            return None
        constraints = spec.constraints and self._constrained(spec.constraints)
        template = b"{}" if spec.template_json else b""
        claim = "claim" if spec.claim else ""
        return replace(spec, claim=claim, constraints=constraints, template_json=template)

    def _rule(self, rule: FailureRule) -> FailureRule:
        return replace(rule, container=self._aliases.containers(rule.container))

    def _constrained(self, constraints: Constraints) -> Constraints:
        aliased = self._constraints.get(constraints)
        if aliased is None:
            keys, values = self._aliases.keys, self._aliases.values
            aliased = self._constraints[constraints] = Constraints(
                tuple(tuple(map(self._requirement, term)) for term in constraints.terms),
                tuple(
                    replace(toleration, key=keys(toleration.key), value=values(toleration.value))
                    for toleration in constraints.tolerations
                ),
                tuple(map(self._aliases.nodes, constraints.avoided)),
            )
        return aliased

    def _requirement(self, requirement: Requirement) -> Requirement:
        key, values = requirement.key, requirement.values
        if key == NODE_NAME:
            values = tuple(map(self._aliases.nodes, values))
        elif not is_number(requirement):
            values = tuple(map(self._aliases.values, values))
        return Requirement(self._aliases.keys(key), requirement.operator, values)

    def _by_uid(self, mapping: Mapping[str, T]) -> dict[str, T]:
        return {self._aliases.uids(uid): value for uid, value in mapping.items()}

    def _by_node(self, mapping: Mapping[str, T]) -> dict[str, T]:
        return {self._aliases.nodes(node): value for node, value in mapping.items()}

    def _history(self, history: History) -> History:
        aliases, line, tainted = self._aliases, history.line, history.tainted_since
        backoffs = {
            uid: replace(backoff, error=_refusal(backoff.error))
            for uid, backoff in history.creation_backoffs.items()
        }
        demands = {
            uid: replace(
                entry, demand=entry.demand._replace(queue=aliases.queues(entry.demand.queue))
            )
            for uid, entry in history.demands.items()
        }
        return replace(
            history,
            cooling=self._by_node(history.cooling),
            reclaimed_for=self._by_uid(history.reclaimed_for),
            failed_moves=self._failed_moves(history.failed_moves),
            moved=frozenset(map(aliases.uids, history.moved)),
            offered=self._by_uid(history.offered),
            quota_reliefs=self._by_uid(history.quota_reliefs),
            short_since=self._by_uid(history.short_since),
            unneeded_since=self._by_node(history.unneeded_since),
            tainted_since=None
            if tainted is None
            else {(aliases.nodes(n), aliases.keys(k)): since for (n, k), since in tainted.items()},
            vain_requests=self._by_uid(history.vain_requests),
            scheduling=replace(
                history.scheduling, scheduler=aliases.schedulers(history.scheduling.scheduler)
            ),
            creation_backoffs=self._by_uid(backoffs),
            demands=self._by_uid(demands),
            line=replace(
                line,
                blocked_since=self._by_uid(line.blocked_since),
                head=self._head(line.head),
                vain={aliases.job_key(key): hold for key, hold in line.vain.items()},
            ),
        )

    def _failed_moves(self, moves: Mapping[MoveKey, FailedMove]) -> dict[MoveKey, FailedMove]:
        return {self._move_key(key): move for key, move in moves.items()}

    def _move_key(self, key: MoveKey) -> MoveKey:
        queues = self._aliases.queues
        scope = tuple(queues(part) if isinstance(part, str) else part for part in key.scope)
        return key._replace(constraints=self._constrained(key.constraints), scope=scope)

    def _head(self, head: Head | None) -> Head | None:
        if head is None:
            return None
        return Head(self._aliases.job_key(head.key), self._aliases.uids(head.uid), head.since_s)

    def _policy(self, policy: Policy) -> Policy:
        queues = self._aliases.queues
        fairness, autoscaling, scheduling = policy.fairness, policy.autoscaling, policy.scheduling
        weights = {queues(name): weight for name, weight in fairness.queue_weights.items()}
        modes = {queues(name): mode for name, mode in autoscaling.queues.items()}
        vacate = {_VACATE: "true"} if autoscaling.vacate else {}
        scheduler = self._aliases.schedulers(scheduling.scheduler_name)
        changed = {
            "training": (),  # roles are decided in the records
            "overcommit": (),  # and so are requests
            "scheduling": scheduling.model_copy(update={"scheduler_name": scheduler}),
            "fairness": fairness.model_copy(update={"queue_weights": weights}),
            "autoscaling": autoscaling.model_copy(update={"queues": modes, "vacate": vacate}),
            "queues": tuple(map(self._queue, policy.queues)),
            "quotas": tuple(map(self._quota, policy.quotas)),
            "sizes": tuple(
                rule.model_copy(update={"namespaces": self._matching(rule.namespaces)})
                for rule in policy.sizes
            ),
            "windows": tuple(
                window.model_copy(update={"name": f"window-{number}"})
                for number, window in enumerate(policy.windows)
            ),
            "node_pools": tuple(map(self._pool, range(len(policy.node_pools)), policy.node_pools)),
            "namespaces": self._matching(policy.namespaces),
            "protected_namespaces": self._matching(policy.protected_namespaces),
        }
        return policy.model_copy(update=changed)

    def _queue(self, queue: Queue) -> Queue:
        name, namespaces = self._aliases.queues(queue.name), self._matching(queue.namespaces)
        return queue.model_copy(update={"name": name, "namespaces": namespaces})

    def _quota(self, quota: Quota) -> Quota:
        queue = quota.queue and self._aliases.queues(quota.queue)
        namespace = quota.namespace and self._aliases.namespace(quota.namespace)
        return quota.model_copy(update={"queue": queue, "namespace": namespace})

    def _pool(self, number: int, pool: NodePool) -> NodePool:
        keys, values = self._aliases.keys, self._aliases.values
        labels = {keys(key): values(value) for key, value in pool.labels.items()}
        return pool.model_copy(update={"name": f"pool-{number}", "labels": labels})

    def _matching(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """The namespaces that match one of the patterns, by their aliases."""
        if "*" in patterns:
            return ("*",)
        matching = (
            self._aliases.namespace(name)
            for name in self._aliases.namespace_names
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        )
        return tuple(matching) or (_NO_NAMESPACE,)


def _status(status: JobStatus) -> JobStatus:
    return replace(
        status, conditions=tuple(replace(condition, message="") for condition in status.conditions)
    )


def _refusal(text: str) -> str:
    """The API server's words without names: of an exceeded quota, the amounts."""
    return quota_refusal.without_name(text) or ("refused" if text else "")
