"""The workload of the demo and the end-to-end tests: services and training as Kubernetes objects.

Pure: a `Scenario` in, manifests out; `e2e.demo.script` sends them. Sizes of nodes and pods
are those of the experiment that this system is measured by (2 348 CPU on 133 nodes, of
which system pods use 50.5).
"""

from dataclasses import dataclass, replace
from typing import Any

import yaml

from policy.names import ANNOTATION_MAX, ANNOTATION_MIN, LABEL_JOB, LABEL_ROLE, Role

Manifest = dict[str, Any]

SERVICES_NAMESPACE = "services"
TRAINING_NAMESPACE = "training"
SYSTEM_NAMESPACE = "kube-system"
SERVICES = "services"
"""Name of the services' Deployment and of their PriorityClass."""

SERVICE_CPU_MILLIS = 3000
TRAINER_CPU_MILLIS = 5000
PSERVER_CPU_MILLIS = 4000
MASTER_CPU_MILLIS = 1000
STOP_ANNOTATION = "edl.training/kwok-stop-time"
_PLAIN_SUPPORT = "plain-support"
_PLAIN_TRAINER = "plain-trainer"
_IMAGE = "registry.invalid/workload"  # kwok pulls nothing


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload: its objects, their numbers and the duration."""

    name: str
    big_nodes: int
    """Nodes of 18 CPU."""
    small_nodes: int
    """Nodes of 17 CPU."""
    system_cpu_millis: int
    """CPU of all system pods together: pods of 1 CPU, and one with the remainder."""
    services: tuple[int, ...]
    """How many services are wanted on each plateau, the first one included."""
    step_s: float
    """How long a plateau lasts; the first one counts from the last job's submission."""
    jobs: int
    job_gap_s: float
    pservers: int
    """Per job; each job has one master too."""
    min_trainers: int
    max_trainers: int
    warm_up_s: float
    """Left out of the mean CPU use: the time in which the workload arrives."""
    stop_time: str = "1s"
    """How long a trainer takes to end after SIGTERM, as a Go duration."""
    overcommit: float = 1.0
    """Limit of a trainer's CPU divided by its request."""

    @property
    def system_pods(self) -> int:
        """How many pods the system's CPU comes in."""
        return -(-self.system_cpu_millis // 1000)

    @property
    def job_names(self) -> tuple[str, ...]:
        """job-1, job-2, ... in the order of submission."""
        return tuple(f"job-{number}" for number in range(1, self.jobs + 1))

    @property
    def cpu_millis(self) -> dict[str, int]:
        """Node name -> CPU of the node."""
        return {
            f"node-{number:03}": 18_000 if number < self.big_nodes else 17_000
            for number in range(self.big_nodes + self.small_nodes)
        }

    @property
    def limits_quota_cpu(self) -> int:
        """Bound of the CPU limits of all trainers if they are overcommitted: the capacity of the nodes."""
        return sum(self.cpu_millis.values()) // 1000

    @property
    def seconds(self) -> float:
        """From the first job's submission to the end."""
        return (self.jobs - 1) * self.job_gap_s + len(self.services) * self.step_s


def overcommitted(scenario: Scenario, ratio: float) -> Scenario:
    """The scenario with trainers whose requests are their limits divided by `ratio`, and with as many more of them."""
    most = round(scenario.max_trainers * ratio)
    return replace(
        scenario, name=f"{scenario.name}-overcommit", max_trainers=most, overcommit=ratio
    )


def policy(scenario: Scenario) -> str:
    """Returns the text of the policy; "" to keep the policy of the installation."""
    if scenario.overcommit == 1.0:
        return ""
    return yaml.safe_dump(
        {
            "apiVersion": "edl.training/v1",
            "kind": "Policy",
            "tiers": {"graceSeconds": 10},
            "reserve": {"maxLoad": {"cpu": 0.97}},
            "overcommit": [
                {"namespaces": [TRAINING_NAMESPACE], "trainers": {"cpu": scenario.overcommit}}
            ],
            "quotas": [
                {
                    "namespace": TRAINING_NAMESPACE,
                    "limits": {"cpu": str(scenario.limits_quota_cpu)},
                }
            ],
        }
    )


FULL = Scenario(
    name="full",
    big_nodes=87,
    small_nodes=46,
    system_cpu_millis=50_500,
    services=(400, 300, 200, 100, 200, 300, 400),
    step_s=30.0,
    jobs=6,
    job_gap_s=2.0,
    pservers=10,
    min_trainers=2,
    max_trainers=60,
    warm_up_s=60.0,
)
QUICK = Scenario(
    name="quick",
    big_nodes=8,
    small_nodes=4,
    system_cpu_millis=4_500,
    services=(36, 16, 36),
    step_s=10.0,
    jobs=2,
    job_gap_s=2.0,
    pservers=2,
    min_trainers=2,
    max_trainers=20,
    warm_up_s=10.0,
)
FIRST = Scenario(
    name="first",
    big_nodes=87,
    small_nodes=46,
    system_cpu_millis=50_500,
    services=(0,),
    step_s=300.0,
    jobs=20,
    job_gap_s=10.0,
    pservers=10,
    min_trainers=2,
    max_trainers=60,
    warm_up_s=60.0,
)
"""The first experiment: only jobs, each of which wants more than the capacity."""
FIRST_QUICK = Scenario(
    name="first-quick",
    big_nodes=8,
    small_nodes=4,
    system_cpu_millis=4_500,
    services=(0,),
    step_s=20.0,
    jobs=4,
    job_gap_s=4.0,
    pservers=2,
    min_trainers=2,
    max_trainers=30,
    warm_up_s=10.0,
)


def namespaces() -> list[Manifest]:
    """Returns the two namespaces of the workload."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (SERVICES_NAMESPACE, TRAINING_NAMESPACE)
    ]


def service_class() -> Manifest:
    """Returns the services' PriorityClass: above all training, which lies below zero."""
    return _priority_class(SERVICES, 100, "PreemptLowerPriority")


def plain_classes() -> list[Manifest]:
    """Priority classes of training without EDL, which a user of plain Kubernetes can create."""
    return [
        _priority_class(_PLAIN_SUPPORT, -10, "PreemptLowerPriority"),
        _priority_class(_PLAIN_TRAINER, -1000, "Never"),
    ]


def system(scenario: Scenario) -> list[Manifest]:
    """Returns the pods every cluster has: whole CPUs, and one pod with the odd rest."""
    whole, rest_millis = divmod(scenario.system_cpu_millis, 1000)
    sizes = [("system", whole, "1"), ("system-rest", 1 if rest_millis else 0, f"{rest_millis}m")]
    return [
        _replicated(
            "Deployment",
            SYSTEM_NAMESPACE,
            name,
            count,
            labels={"app": name},
            pod=pod_spec(cpu, "64Mi", priority_class="system-cluster-critical"),
        )
        for name, count, cpu in sizes
        if count
    ]


def services(scenario: Scenario) -> Manifest:
    """Returns the online services, at the first plateau's number."""
    pod = pod_spec("3", "3Gi", priority_class=SERVICES)
    return _replicated(
        "Deployment",
        SERVICES_NAMESPACE,
        SERVICES,
        scenario.services[0],
        labels={"app": SERVICES},
        pod=pod,
    )


def support(scenario: Scenario, job: str, *, plain: bool) -> list[Manifest]:
    """Returns a job's parameter servers and its master, as ReplicaSets."""
    priority_class = _PLAIN_SUPPORT if plain else ""
    sizes = (
        (Role.PSERVER, scenario.pservers, f"{PSERVER_CPU_MILLIS}m", "5Gi"),
        (Role.MASTER, 1, f"{MASTER_CPU_MILLIS}m", "300Mi"),
    )
    return [
        _replicated(
            "ReplicaSet",
            TRAINING_NAMESPACE,
            f"{job}-{role}",
            replicas,
            labels={LABEL_JOB: job, LABEL_ROLE: role},
            pod=pod_spec(cpu, memory, priority_class=priority_class),
        )
        for role, replicas, cpu, memory in sizes
        if replicas
    ]


def elastic_job(scenario: Scenario, job: str) -> Manifest:
    """Returns an elastic Job as a user writes it: a plain batch/v1 Job with two annotations."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job,
            "namespace": TRAINING_NAMESPACE,
            "annotations": {
                ANNOTATION_MIN: str(scenario.min_trainers),
                ANNOTATION_MAX: str(scenario.max_trainers),
            },
        },
        "spec": {
            "template": {
                "metadata": {"annotations": {STOP_ANNOTATION: scenario.stop_time}},
                "spec": {**pod_spec("5", "8Gi"), "restartPolicy": "Never"},
            }
        },
    }


def plain_trainers(scenario: Scenario, job: str) -> Manifest:
    """Returns the same trainers without EDL: a ReplicaSet that always wants the maximum."""
    return _replicated(
        "ReplicaSet",
        TRAINING_NAMESPACE,
        f"{job}-{Role.TRAINER}",
        scenario.max_trainers,
        labels={LABEL_JOB: job, LABEL_ROLE: Role.TRAINER},
        pod=pod_spec("5", "8Gi", priority_class=_PLAIN_TRAINER),
        annotations={STOP_ANNOTATION: scenario.stop_time},
    )


def job_objects(scenario: Scenario, job: str, *, plain: bool) -> list[Manifest]:
    """Everything that one job is made of, in the order of creation."""
    trainers = plain_trainers(scenario, job) if plain else elastic_job(scenario, job)
    return [*support(scenario, job, plain=plain), trainers]


def _priority_class(name: str, value: int, preemption: str) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": preemption,
    }


def pod_spec(cpu: str, memory: str, *, priority_class: str = "") -> Manifest:
    """Returns the spec of a pod with one container, which runs nothing."""
    container = {
        "name": "main",
        "image": _IMAGE,
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    named = {"priorityClassName": priority_class} if priority_class else {}
    return {**named, "containers": [container]}


def _replicated(
    kind: str,
    namespace: str,
    name: str,
    replicas: int,
    *,
    labels: dict[str, str],
    pod: Manifest,
    annotations: dict[str, str] | None = None,
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": pod,
            },
        },
    }
