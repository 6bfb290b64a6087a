"""The environment variables of containers in a job with a master.

Admission adds them to every trainer: addresses of master and parameter servers, the trainer's id,
and how other trainers reach it. Pure. Called by `policy.mutation`, `policy.sidecar`, and by
`reconciler` for the parameter servers.
"""

from collections.abc import Mapping

from policy import unstructured
from policy.names import (
    ANNOTATION_KEPT_ENVIRONMENT,
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
    """The variables that all containers of a job share: the job's name and its token."""
    secret = {"name": object_name(job, MASTER_SUFFIX), "key": MASTER_TOKEN_KEY}
    return [
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]


def add(patch: Patch, pod: Mapping[str, object]) -> list[str]:
    """Adds the variables to every container of a pod that has its master's address.

    Variables that the user has set stay; an annotation on the pod lists those that differ.

    Returns:
        One warning where such variables differ.
    """
    labels = unstructured.labels(pod)
    annotations = unstructured.annotations(pod)
    address, job = annotations.get(ANNOTATION_MASTER_ADDRESS), labels.get(LABEL_JOB)
    if not address or not job:
        return []
    variables: list[Variable] = [{"name": "EDL_MASTER", "value": address}]
    variables += [*of_job(job), *_of_peers(annotations)]
    if number := labels.get(LABEL_TRAINER_ID):
        variables.append({"name": "EDL_TRAINER", "value": f"trainer-{number}"})
    user_set: list[str] = []
    for position, container in enumerate(
        unstructured.objects(unstructured.mapping(pod, "spec"), "containers")
    ):
        path = ("spec", "containers", position, "env")
        user_set += _add_variables(patch, path, container, variables)
    if not user_set:
        return []
    names = ",".join(user_set)
    patch.put(("metadata", "annotations", ANNOTATION_KEPT_ENVIRONMENT), names)
    return [f"kept as you set them, so they may miss the job's master: {names}"]


def _of_peers(annotations: Mapping[str, str]) -> list[Variable]:
    """The trainer's own address, and those of the parameter servers.

    The reference is written as the API server stores it, so that a later comparison finds it equal.
    """
    own = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    variables: list[Variable] = [
        {"name": "EDL_ADDRESS", "valueFrom": own},
        {"name": "EDL_EXCHANGE_PORT", "value": str(EXCHANGE_PORT)},
    ]
    optional = {
        "EDL_MAX_TRAINERS": annotations.get(ANNOTATION_MAX),
        "EDL_PARAMETER_SERVERS": annotations.get(ANNOTATION_SERVER_ADDRESSES),
    }
    return variables + [{"name": name, "value": value} for name, value in optional.items() if value]


def _add_variables(
    patch: Patch,
    path: tuple[str | int, ...],
    container: Mapping[str, object],
    variables: list[Variable],
) -> list[str]:
    """Adds missing variables; returns the existing ones that differ, as container/NAME."""
    existing = {str(entry.get("name")): entry for entry in unstructured.objects(container, "env")}
    for variable in variables:
        if variable["name"] not in existing:
            patch.push(path, variable)
    return [
        f"{container.get('name')}/{variable['name']}"
        for variable in variables
        if existing.get(str(variable["name"]), variable) != variable
    ]
