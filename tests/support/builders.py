"""Short builders for the core's records: a test names what matters to it and nothing else.

CPU and memory are given in whole cores and GiB, as people speak of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policy.admission.views import JobView
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Node, Phase, Pod, ServerSpec, Snapshot
from policy.names import Role, Tier

GI = 2**30
NOW_S = 100_000.0
"""When tests take place; what is older than an hour is "long ago"."""
LONG_AGO_S = NOW_S - 3_600.0
PRIORITIES = {Tier.SURPLUS: -1000, Tier.GUARANTEED: -8, Tier.SUPPORT: -5}


def shape(cpu: float = 0, memory: float = 0, gpus: int = 0) -> dict[str, int]:
    """Requests of one pod; what is 0 is left out."""
    requests = {
        "cpu": round(cpu * 1000),
        "memory": round(memory * GI),
        "nvidia.com/gpu": gpus,
        "pods": 1,
    }
    return {name: amount for name, amount in requests.items() if amount}


def node(
    name: str, cpu: float = 18, *, memory: float = 64, gpus: int = 0, pods: int = 110, **fields: Any
) -> Node:
    """A node that is ready and open."""
    return Node(name, shape(cpu, memory, gpus) | {"pods": pods}, **fields)


def job(
    name: str, low: int = 1, high: int = 10, *, cpu: float = 5, memory: float = 0, **fields: Any
) -> Job:
    """An elastic job of `low` to `high` trainers in namespace "ml", the pods of which are ours."""
    values: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "uid": f"uid-{name}",
        "min_trainers": low,
        "max_trainers": high,
        "requests": shape(cpu, memory),
        "created_s": LONG_AGO_S,
    }
    return Job(**values | fields)


def job_view(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> JobView:
    """A batch/v1 Job as admission reads it."""
    return JobView.parse({"metadata": {"annotations": annotations}, "spec": spec})


def trainer(
    owner: Job, number: int, where: str = "", tier: Tier = Tier.SURPLUS, **fields: Any
) -> Pod:
    """A trainer of a job: it has long run on node `where`, or it waits."""
    values: dict[str, Any] = {
        "namespace": owner.namespace,
        "name": f"{owner.name}-trainer-{number}",
        "uid": f"{owner.name}-{number:03}",
        "requests": owner.requests,
        "limits": owner.limits,
        "priority": PRIORITIES[tier],
        "preempts": tier is not Tier.SURPLUS,
        "node": where,
        "phase": Phase.RUNNING if where else Phase.PENDING,
        "ready": bool(where),
        "created_s": LONG_AGO_S,
        "started_s": LONG_AGO_S if where else 0.0,
        "ran_s": NOW_S - LONG_AGO_S if where else 0.0,
        "owner_uid": owner.uid,
        "job": owner.name,
        "role": Role.TRAINER,
        "tier": tier,
        "trainer_id": number,
        "constraints": owner.constraints,
    }
    return Pod(**values | fields)


def trainers(owner: Job, places: Iterable[str]) -> list[Pod]:
    """Trainers on the nodes named, the first `min` of them guaranteed."""
    return [
        trainer(
            owner,
            number,
            where,
            Tier.GUARANTEED if number < owner.min_trainers else Tier.SURPLUS,
        )
        for number, where in enumerate(places)
    ]


def service(name: str, cpu: float = 3, where: str = "", *, memory: float = 0, **fields: Any) -> Pod:
    """A pod of an online service: on node `where`, or waiting."""
    values: dict[str, Any] = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "requests": shape(cpu, memory),
        "node": where,
        "phase": Phase.RUNNING if where else Phase.PENDING,
        "created_s": LONG_AGO_S,
    }
    return Pod(**values | fields)


def support(owner: Job, name: str, where: str = "", cpu: float = 1) -> Pod:
    """The master of a job."""
    return replace(
        service(name, cpu, where),
        namespace=owner.namespace,
        priority=PRIORITIES[Tier.SUPPORT],
        role=Role.MASTER,
        tier=Tier.SUPPORT,
        job=owner.name,
    )


def servers(count: int = 2, cpu: float = 1, memory: float = 0, claim: str = "") -> ServerSpec:
    """Parameter servers that a job asks for."""
    return ServerSpec(count, shape(cpu, memory), claim)


def server(owner: Job, number: int, where: str = "", **fields: Any) -> Pod:
    """A parameter server that EDL made: on node `where`, or waiting."""
    assert owner.servers is not None
    values: dict[str, Any] = {
        "name": f"{owner.name}-ps-{number}",
        "uid": f"{owner.name}-ps-{number}",
        "requests": owner.servers.requests,
        "ready": bool(where),
        "owner_uid": owner.uid,
        "role": Role.PSERVER,
        "server": number,
    }
    return replace(support(owner, "", where), **values | fields)


def cluster_state(
    nodes: Sequence[Node] = (), jobs: Sequence[Job] = (), pods: Sequence[Pod] = ()
) -> ClusterState:
    """A cluster."""
    return ClusterState.of(Snapshot(nodes=tuple(nodes), pods=tuple(pods), jobs=tuple(jobs)))
