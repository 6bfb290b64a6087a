"""Common parts of all objects of a job. The Job owns them, so they are deleted with it. Pure."""

from collections.abc import Mapping
from typing import Any

from kube.request import JOBS, Resource
from kube.training_job import TrainingJob
from policy.cluster.snapshot import Job
from policy.names import LABEL_JOB


def metadata(job: Job, name: str, *, blocks: bool = False) -> dict[str, Any]:
    """Returns the metadata of an object that a Job owns.

    Args:
        job: The owner.
        name: Name of the object.
        blocks: Whether a foreground deletion of the Job waits for the object.
    """
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {LABEL_JOB: job.name},
        "ownerReferences": [reference(JOBS, job.name, job.uid, blocks=blocks)],
    }


def reference(kind: Resource, name: str, uid: str, *, blocks: bool) -> dict[str, Any]:
    """Returns the owner reference that makes the garbage collector delete an object with its owner.

    Args:
        kind: Kind of the owner.
        name: Name of the owner.
        uid: uid of the owner.
        blocks: Whether a foreground deletion of the owner waits for the object.
    """
    owner: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {**owner, "blockOwnerDeletion": True} if blocks else owner


def is_own(owner: Job | TrainingJob, api_object: Mapping[str, Any]) -> bool:
    """Returns whether an object belongs to this owner, and not to a user or to a namesake of the owner."""
    references = (api_object.get("metadata") or {}).get("ownerReferences") or ()
    return any(reference.get("uid") == owner.uid for reference in references)


def service(
    job: Job, name: str, selector: Mapping[str, str], ports: Mapping[str, int]
) -> dict[str, Any]:
    """Returns a Service for the job's pods with the given labels, whether or not they are ready.

    Args:
        job: The owner.
        name: Name of the Service.
        selector: Labels of the pods, in addition to the job's label.
        ports: Port name -> number.
    """
    return {
        "metadata": metadata(job, name),
        "spec": {
            "selector": {LABEL_JOB: job.name, **selector},
            "publishNotReadyAddresses": True,
            "ports": [
                {"name": port_name, "port": port, "targetPort": port}
                for port_name, port in ports.items()
            ],
        },
    }


def service_url(service_object: Mapping[str, Any], port: int) -> str:
    """Returns the URL of a Service read from the API server, or "" if it has no cluster IP."""
    address = (service_object.get("spec") or {}).get("clusterIP") or ""
    if address in ("", "None"):
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"
