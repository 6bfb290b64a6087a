"""What the containers of a job with a master are told in their environment.

Admission adds it to every trainer: where master and parameter servers are, who it is itself, and
how other trainers reach it. Pure. Who calls: `policy.mutation`, `policy.sidecar`, and `reconciler`
for the parameter servers.
"""

from collections.abc import Mapping

from policy import reading
from policy.names import (
    ANNOTATION_KEPT,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MAX,
    ANNOTATION_SERVER_ADDRESSES,
    EXCHANGE_PORT,
    LABEL_JOB,
    LABEL_TRAINER_ID,
    MASTER_TOKEN_KEY,
    object_name,
)
from policy.patch import Patch

MASTER_SUFFIX = "-master"
Variable = dict[str, object]
"""core/v1 EnvVar."""


def of_job(job: str) -> list[Variable]:
    """What all of a job are told alike: its name and its token."""
    secret = {"name": object_name(job, MASTER_SUFFIX), "key": MASTER_TOKEN_KEY}
    return [
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]


def add(patch: Patch, pod: Mapping[str, object]) -> list[str]:
    """Tells every container of a pod that knows its master's address.

    Variables that the user has set stay; an annotation on the pod names those that differ.

    Returns:
        One warning where some were kept.
    """
    labels, annotations = reading.texts(pod, "labels"), reading.texts(pod, "annotations")
    address, job = annotations.get(ANNOTATION_MASTER_ADDRESS), labels.get(LABEL_JOB)
    if not address or not job:
        return []
    variables: list[Variable] = [{"name": "EDL_MASTER", "value": address}]
    variables += [*of_job(job), *_of_peers(annotations)]
    if number := labels.get(LABEL_TRAINER_ID):
        variables.append({"name": "EDL_TRAINER", "value": f"trainer-{number}"})
    kept: list[str] = []
    for place, container in enumerate(reading.entries(reading.spec(pod), "containers")):
        path = ("spec", "containers", place, "env")
        kept += _add_variables(patch, path, container, variables)
    if not kept:
        return []
    names = ",".join(kept)
    patch.put(("metadata", "annotations", ANNOTATION_KEPT), names)
    return [f"kept as you set them, so they may miss the job's master: {names}"]


def _of_peers(annotations: Mapping[str, str]) -> list[Variable]:
    """How others reach it, and whom it can reach beside the master.

    The reference is written as the API server stores it, or it would differ in the next look.
    """
    own = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    told: list[Variable] = [
        {"name": "EDL_ADDRESS", "valueFrom": own},
        {"name": "EDL_EXCHANGE_PORT", "value": str(EXCHANGE_PORT)},
    ]
    found = {
        "EDL_MAX_TRAINERS": annotations.get(ANNOTATION_MAX),
        "EDL_PARAMETER_SERVERS": annotations.get(ANNOTATION_SERVER_ADDRESSES),
    }
    return told + [{"name": name, "value": value} for name, value in found.items() if value]


def _add_variables(
    patch: Patch,
    path: tuple[str | int, ...],
    container: Mapping[str, object],
    variables: list[Variable],
) -> list[str]:
    """Adds what is missing; which of those that are there differ, as container/NAME."""
    there = {str(entry.get("name")): entry for entry in reading.entries(container, "env")}
    for variable in variables:
        if variable["name"] not in there:
            patch.push(path, variable)
    return [
        f"{container.get('name')}/{variable['name']}"
        for variable in variables
        if there.get(str(variable["name"]), variable) != variable
    ]
