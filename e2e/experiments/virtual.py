"""Plays a scenario in virtual time: the same objects as on a real cluster, the same recorder."""

from dataclasses import replace
from typing import Any

from e2e import workload
from e2e.cluster.nodes import node
from e2e.measure.pods import Kind, PodView
from e2e.measure.record import Recorder, Timeline
from e2e.workload import Manifest, Scenario
from kube import decode
from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy
from policy.names import CLASS_SUPPORT, MANAGER, Role, Tier
from policy.priority_classes import EDL_CLASSES
from simulator.cluster import PodChange
from simulator.run import play as simulate
from simulator.timing import Timing
from simulator.workload import Arrival, Workload

_QUIET_S = 10.0
"""System pods come this long before the first job."""
_SYSTEM_PRIORITY = 2_000_000_000
_KINDS = {Role.TRAINER: Kind.TRAINER, Role.PSERVER: Kind.SUPPORT, Role.MASTER: Kind.SUPPORT}


def play(
    scenario: Scenario, policy: Policy | None = None, timing: Timing | None = None
) -> Timeline:
    """What happens to every pod; times in seconds from the first job's submission.

    Services are not played: no scenario in virtual time has any yet.
    """
    changes = simulate(workload_of(scenario), policy, timing)
    tape = _Tape()
    recorder = Recorder(lambda: tape.now_s)
    recorder.begin()
    recorder.step(0)
    for number, job in enumerate(scenario.job_names):
        tape.now_s = number * scenario.job_gap_s
        recorder.submit(job)
    for change in changes:
        tape.now_s = change.at_s - _QUIET_S
        recorder.change(_view(change.old, change), _view(change.new, change))
    tape.now_s = scenario.seconds
    return recorder.timeline(scenario.cpu_millis)


class _Tape:
    """The recorder's clock: the time of the change that is being recorded."""

    now_s = 0.0


def workload_of(scenario: Scenario) -> Workload:
    """Returns the objects of a scenario, but for its services, as arrivals of a simulation."""
    system = [
        pod for manifest in workload.system(scenario) for pod in _pods(manifest, _SYSTEM_PRIORITY)
    ]
    jobs = [
        Arrival(
            _QUIET_S + number * scenario.job_gap_s,
            tuple(
                replace(pod, tier=Tier.SUPPORT)
                for manifest in workload.support(scenario, job, plain=False)
                for pod in _pods(manifest, EDL_CLASSES[CLASS_SUPPORT].value)
            ),
            _job(workload.elastic_job(scenario, job)),
        )
        for number, job in enumerate(scenario.job_names)
    ]
    return Workload(
        nodes=tuple(_node(name, millis) for name, millis in scenario.cpu_millis.items()),
        arrivals=(Arrival(0.0, tuple(system)), *jobs),
        end_s=_QUIET_S + scenario.seconds,
    )


def _node(name: str, millis: int) -> Node:
    decoded = decode.node(node(name, cpu=f"{millis}m", memory="96Gi", pods=110))
    return replace(decoded, ready=True, taints=())


def _job(manifest: Manifest) -> Job:
    """Returns a Job as the webhook hands it over."""
    metadata = {**manifest["metadata"], "uid": manifest["metadata"]["name"]}
    spec = {**manifest["spec"], "managedBy": MANAGER}
    job = decode.job({**manifest, "metadata": metadata, "spec": spec})
    assert job is not None, f"{metadata['name']} has no bounds"
    return job


def _pods(manifest: Manifest, priority: int) -> list[Pod]:
    """Returns the pods that a controller makes of a Deployment or ReplicaSet."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    template: dict[str, Any] = spec["template"]
    pods = []
    for number in range(spec["replicas"]):
        name = f"{metadata['name']}-{number}"
        named = {
            "name": name,
            "uid": f"{metadata['namespace']}/{name}",
            "namespace": metadata["namespace"],
            "labels": template["metadata"]["labels"],
        }
        pod = decode.pod({"metadata": named, "spec": template["spec"]})
        pods.append(replace(pod, priority=priority))
    return pods


def _view(pod: Pod | None, change: PodChange) -> PodView | None:
    """Returns a pod as the recorder knows it from the API."""
    if pod is None:
        return None
    return PodView(
        uid=pod.uid,
        name=pod.name,
        kind=Kind.SYSTEM if pod.role is None else _KINDS[pod.role],
        job=pod.job,
        surplus=pod.tier is Tier.SURPLUS,
        cpu_millis=pod.requests.get("cpu", 0),
        node=pod.node,
        nominated=pod.nominated,
        phase=pod.phase,
        deleting=pod.deleting,
        disruption=(change.disruption or "") if pod.deleting else "",
    )
