"""A synthetic cluster that lives, for the page: an API server in memory, with records, changes and callers.

The objects are those of `bench.clusters`; the records are written by the reconciler's own writer. Used by
`bench.page`, `bench.page_server`, and tests of the page.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import orjson

from bench import clusters, objects
from kube import errors
from kube.api import Api, Stream
from kube.request import CONFIGMAPS, DECISIONLOGS, JOBS, NODES, PODS, Request, Resource
from lab.fake_api import FakeApi
from lab.fake_api.storage import Key
from policy.cluster.snapshot import Job, Phase, Pod
from policy.decisions import Decision, Figure
from policy.names import (
    ANNOTATION_MASTER,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SYSTEM_NAMESPACE,
    Role,
    Tier,
)
from policy.priority_classes import CLASS_OF, EDL_CLASSES
from policy.reasons import Observation, Reason
from policy.records import CLUSTER, Record
from reconciler.records.inbox import RecordInbox
from reconciler.records.writer import RecordWriter

NAMESPACE = "ml-vision"
"""The one that the caller `vision` sees."""
_REASONS = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.AT_MAX, Reason.GROWING)


@dataclass(frozen=True)
class Rights:
    """The rights of a caller; `namespaces` is None for all namespaces."""

    namespaces: Collection[str] | None = ()
    nodes: bool = False
    secrets: bool = False
    kinds: Collection[Resource] = field(default=(DECISIONLOGS, JOBS, PODS))

    def allows(self, attributes: dict[str, str]) -> bool:
        """Returns whether they include the attributes of a SelfSubjectAccessReview."""
        plural, namespace = attributes["resource"], attributes["namespace"]
        if plural == NODES.plural:
            return self.nodes
        if plural not in {kind.plural for kind in self.kinds}:
            return False
        return self.namespaces is None or (namespace != "" and namespace in self.namespaces)


CALLERS = {
    "admin": Rights(None, nodes=True, secrets=True),
    "vision": Rights((NAMESPACE,)),
    "nobody": Rights(),
}
"""Token -> rights of its owner."""


class CallerApi:
    """The API server as one caller has it: reviews of oneself, and Secrets."""

    def __init__(self, api: Api, token: str, callers: dict[str, Rights]) -> None:
        """Asks nothing yet."""
        self._api, self._token, self._callers = api, token, callers

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api`."""
        rights = self._callers.get(self._token)
        if rights is None:
            raise errors.Unauthorized("Unauthorized", status=401, request=request.line)
        if request.path.endswith("/selfsubjectreviews"):
            return orjson.dumps({"metadata": {}, "status": {"userInfo": {"username": self._token}}})
        if request.path.endswith("/selfsubjectaccessreviews"):
            attributes = orjson.loads(request.body)["spec"]["resourceAttributes"]
            return orjson.dumps({"status": {"allowed": rights.allows(attributes)}})
        if "/secrets/" not in request.path or not rights.secrets:
            raise errors.Forbidden("RBAC", status=403, request=request.line)
        return self._api.send(request)

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """No caller watches."""
        raise errors.Forbidden("RBAC", status=403, request=request.line)


class LiveCluster(FakeApi):
    """The API server of a synthetic cluster, and what happens in it."""

    def __init__(self, nodes: int, epoch_s: Callable[[], float], seed: int = 1) -> None:
        """Creates all objects, with a decision about each job.

        Args:
            nodes: How many; a fifth as many jobs.
            epoch_s: The clock.
            seed: Of what happens.
        """
        super().__init__()
        self.callers = dict(CALLERS)
        self._epoch_s = epoch_s
        self._random = Random(seed)  # noqa: S311 - repeatable on purpose
        self._inbox = RecordInbox()
        self._writer = RecordWriter(self, self._inbox, lambda: True, epoch_s=epoch_s)
        self._steps = 0
        self.jobs: dict[str, Job] = {}
        self.trainers: dict[str, list[Pod]] = {}
        """Job key -> its trainers."""
        self._next_ids: dict[str, int] = {}
        self._with_masters: set[str] = set()
        self._nodes: list[str] = []
        self._fill(nodes)
        self.decide(list(self.jobs))
        self.add_burst(36)
        self._add_objective()
        self.write()

    def with_token(self, token: str) -> Api:
        """Returns the API server with the rights of a caller."""
        return CallerApi(self, token, self.callers)

    def _fill(self, nodes: int) -> None:
        snapshot = clusters.cluster(nodes)
        ago_s = self._epoch_s() - clusters.NOW_S
        policy = orjson.dumps(clusters.policy().model_dump(mode="json", by_alias=True)).decode()
        metadata = {"name": POLICY_CONFIGMAP, "uid": "policy"}
        body = {"metadata": metadata, "data": {POLICY_KEY: policy}}
        self._keep(CONFIGMAPS, SYSTEM_NAMESPACE, body)
        for node in snapshot.nodes:
            self._keep(NODES, "", objects.node(node))
            self._nodes.append(node.name)
        for pod in snapshot.pods:
            moved = replace(pod, created_s=pod.created_s + ago_s, ready=pod.ready or bool(pod.node))
            self._keep(PODS, pod.namespace, objects.pod(moved))
            if pod.role is Role.TRAINER:
                self.trainers.setdefault(f"{pod.namespace}/{pod.job}", []).append(moved)
        for job in snapshot.jobs:
            self.jobs[job.key] = replace(job, created_s=job.created_s + ago_s)
            self._put_job(job.key)

    def _keep(self, resource: Resource, namespace: str, body: dict[str, Any]) -> None:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = {"namespace": namespace, **body["metadata"]} if namespace else body["metadata"]
        key = Key(resource, namespace, metadata["name"])
        self._storage.put(key, {**kind, **body, "metadata": metadata})

    def _put_job(self, key: str) -> None:
        job, count = self.jobs[key], len(self.trainers.get(key, ()))
        body = {**objects.job(job), "status": {"active": count}}
        body["metadata"]["annotations"] |= self._annotations(key)
        self._keep(JOBS, job.namespace, body)

    def _annotations(self, key: str) -> dict[str, str]:
        """Those of a job besides its bounds."""
        return {ANNOTATION_MASTER: "true"} if key in self._with_masters else {}

    # What happens

    def step(self) -> None:
        """One job grows or shrinks by a trainer; at times a burst of services comes."""
        self._steps += 1
        key = self._random.choice(list(self.jobs))
        self.resize(key, 1 if self._random.random() < 0.5 else -1)  # noqa: PLR2004 - a coin
        self.decide([key])
        if self._steps % 20 == 0:
            self.add_burst(self._random.randint(1, 40))
            self._add_objective()
        self.write()

    def write(self) -> None:
        """Writes the records that wait."""
        self._writer.round()

    def tell(self, namespace: str, record: Record) -> None:
        """Writes a record into a namespace's log."""
        self._inbox.put(namespace, record)
        self.write()

    def give_master(self, key: str) -> None:
        """Gives a job a master of EDL, without a pod."""
        self._with_masters.add(key)
        self._put_job(key)

    def delete_job(self, key: str) -> None:
        """Deletes a job with its trainers, as a user does."""
        self.resize(key, -len(self.trainers.get(key, ())))
        job = self.jobs.pop(key)
        self._storage.remove(Key(JOBS, job.namespace, job.name))

    def resize(self, key: str, change: int) -> None:
        """Adds trainers to a job; removes trainers if the number is below 0."""
        job, trainers = self.jobs[key], self.trainers.setdefault(key, [])
        for _ in range(-change):
            if trainers:
                pod = trainers.pop()
                self._storage.remove(Key(PODS, pod.namespace, pod.name))
        for _ in range(change):
            trainers.append(self._new_trainer(job))
        self._put_job(key)

    def _new_trainer(self, job: Job) -> Pod:
        number = self._next_ids.get(job.key, 1_000)
        self._next_ids[job.key] = number + 1
        name = f"{job.name}-trainer-{number}"
        values = EDL_CLASSES[CLASS_OF[Tier.SURPLUS]]
        pod = Pod(
            *(job.namespace, name, f"uid-{job.key}-{number}", job.requests),
            priority=values.value,
            preempts=False,
            node=self._random.choice(self._nodes),
            phase=Phase.RUNNING,
            ready=True,
            created_s=self._epoch_s(),
            started_s=self._epoch_s(),
            owner_uid=job.uid,
            job=job.name,
            role=Role.TRAINER,
            tier=Tier.SURPLUS,
            trainer_id=number,
        )
        self._keep(PODS, pod.namespace, objects.pod(pod))
        return pod

    def decide(self, keys: list[str]) -> None:
        """A new decision about each of these jobs."""
        now_s = self._epoch_s()
        for key in keys:
            job, count = self.jobs[key], len(self.trainers.get(key, ()))
            figures: dict[str, Figure] = {
                "live": count,
                "target": count,
                "trainers": count,
                "max": job.max_trainers,
                "needs": job.requests,
                "resource": "cpu",
                "used": "930",
                "limit": "950",
            }
            reason = self._random.choice(_REASONS)
            self._inbox.put_current(key, Decision(f"job {key}", reason, figures, now_s))

    def add_burst(self, services: int) -> None:
        """A burst of services that took a trainer each, from a few jobs."""
        now_s = self._epoch_s()
        giving = self._random.sample(list(self.jobs), min(5, len(self.jobs)))
        trainers = {job: {"count": services // 5 + 1, "lostSeconds": 4.2} for job in giving}
        stages = {
            name: {"median": longest / 2, "max": longest}
            for name, longest in (("decide", 0.2), ("free", 1.9), ("start", 1.1), ("total", 3.2))
        }
        figures: dict[str, Any] = {
            "services": {"shop/web": {"count": services, "running": services, "worstSeconds": 3.2}},
            "trainers": trainers,
            "stages": stages,
            "lostSeconds": 21.0,
        }
        text = f"{services} of {services} services running, slowest 3.2 s"
        about = f"reclaim {int(now_s * 1000):x}"
        burst = Record(now_s, about, Observation.RECLAIMED, text, figures, since_s=now_s - 9.0)
        self._inbox.put(CLUSTER, burst)
        for job in giving:
            namespace = job.partition("/")[0]
            own = {name: group for name, group in trainers.items() if name.startswith(namespace)}
            shown = {"another namespace": figures["services"]["shop/web"]}
            masked = replace(burst, figures={**figures, "services": shown, "trainers": own})
            self._inbox.put(namespace, masked)
            pod = f"pod {job}-trainer-{self._steps}"
            release: dict[str, Figure] = {"service": "shop/web-1", "needs": {"cpu": 2000}}
            self._inbox.put_decision(job, Decision(pod, Reason.SERVICES_FIRST, release, now_s))

    def _add_objective(self) -> None:
        now_s = self._epoch_s()
        kept = 950 + self._steps
        hour_s = now_s - now_s % 300
        buckets = [[hour_s - 300 * age, 40 + age % 7, age % 3] for age in range(48)][::-1]
        figures = {
            "share": 0.95,
            "seconds": 5,
            "windowHours": 24,
            "kept": kept,
            "missed": 12,
            "budgetLeft": 0.75,
            "burn": {"1h": 0.4, "6h": 0.1},
            "buckets": buckets,
        }
        text = f"{kept} of {kept + 12} services within 5 s (objective 0.95), 75% of the budget left"
        record = Record(now_s, "objective reclaim", Observation.OBJECTIVE, text, figures)
        self._inbox.put(CLUSTER, record, is_current=True)
