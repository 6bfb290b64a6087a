"""The environment variables of containers in a job with a master.

Admission adds them to every trainer: addresses of master and parameter servers, the trainer's id,
and how other trainers reach it. Pure. Called by `policy.admission.mutation`, `policy.admission.sidecar`, and by
`reconciler` for the parameter servers.
"""

from collections.abc import Mapping

from policy.admission import unstructured
from policy.admission.patch import Patch
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_KEPT_ENVIRONMENT,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MAX,
    ANNOTATION_SERVER_ADDRESSES,
    ANNOTATION_TOKEN_SECRET,
    EXCHANGE_PORT,
    LABEL_JOB,
    LABEL_TRAINER_ID,
    MASTER_TOKEN_KEY,
    object_name,
)

MASTER_SUFFIX = "-edl-master"
TOKEN_VOLUME = "edl-token"  # noqa: S105 - a volume's name
_TOKEN_FOLDER = "/var/run/secrets/edl"  # noqa: S105 - a path
DEFAULT_GRACE_S = 30
"""core/v1 default of terminationGracePeriodSeconds."""
_EXIT_S = 1
"""What remains of a pod's grace for the end of its process."""
Variable = dict[str, object]
"""core/v1 EnvVar."""


def token_secret(job: str, annotations: Mapping[str, str]) -> str:
    """The Secret with the job's token; pods that EDL did not create do not name it."""
    return annotations.get(ANNOTATION_TOKEN_SECRET) or object_name(job, MASTER_SUFFIX)


def of_server(job: str) -> list[Variable]:
    """The variables of EDL's own containers in a job: its name, and the file with its token."""
    return [
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN_FILE", "value": f"{_TOKEN_FOLDER}/{MASTER_TOKEN_KEY}"},
    ]


def token_volume(secret: str) -> dict[str, object]:
    """The volume with the job's token, which only its owner and EDL's containers can read."""
    return {
        "name": TOKEN_VOLUME,
        "secret": {
            "secretName": secret,
            "items": [{"key": MASTER_TOKEN_KEY, "path": MASTER_TOKEN_KEY}],
        },
    }


def token_mount() -> dict[str, object]:
    """Where EDL's containers have that volume."""
    return {"name": TOKEN_VOLUME, "mountPath": _TOKEN_FOLDER, "readOnly": True}


def add(patch: Patch, pod: Mapping[str, object], grace_cap_s: int) -> list[str]:
    """Adds the variables to every container of a pod that has its master's address.

    Variables that the user has set stay; an annotation on the pod lists those that differ.

    Args:
        patch: Receives the changes.
        pod: core/v1 Pod.
        grace_cap_s: The cap on its terminationGracePeriodSeconds.

    Returns:
        One warning where such variables differ.
    """
    labels = unstructured.labels(pod)
    annotations = unstructured.annotations(pod)
    address, job = annotations.get(ANNOTATION_MASTER_ADDRESS), labels.get(LABEL_JOB)
    if not address or not job:
        return []
    token = {"name": token_secret(job, annotations), "key": MASTER_TOKEN_KEY}
    variables: list[Variable] = [
        {"name": "EDL_MASTER", "value": address},
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN", "valueFrom": {"secretKeyRef": token}},
        *_of_peers(annotations),
    ]
    if number := labels.get(LABEL_TRAINER_ID):
        variables.append({"name": "EDL_TRAINER", "value": f"trainer-{number}"})
    spec = unstructured.mapping(pod, "spec")
    grace = _of_grace(spec.get("terminationGracePeriodSeconds"), grace_cap_s)
    user_set: list[str] = []
    for position, container in enumerate(unstructured.objects(spec, "containers")):
        path = ("spec", "containers", position, "env")
        _add_variables(patch, path, container, grace)
        user_set += _add_variables(patch, path, container, variables)
    if not user_set:
        return []
    names = ",".join(user_set)
    patch.put(("metadata", "annotations", ANNOTATION_KEPT_ENVIRONMENT), names)
    return [
        f"EDL keeps your values of these variables, so the program may not find the job's master: {names}"
    ]


def _of_grace(requested: object, cap_s: int) -> list[Variable]:
    """How long the trainer has from SIGTERM to its exit, where the user has chosen it.

    30 s is the API server's default, and the cap is what admission made of it: both count as not
    chosen, and the SDK's own, shorter time applies, so that a reclaim waits less.
    """
    if not isinstance(requested, int) or requested in (DEFAULT_GRACE_S, cap_s) or requested < 1:
        return []
    grace_s = min(requested, cap_s)
    seconds = max(grace_s - _EXIT_S, grace_s / 2)
    return [{"name": "EDL_GRACE_S", "value": f"{seconds:g}"}]


def _of_peers(annotations: Mapping[str, str]) -> list[Variable]:
    """The trainer's own address, those of the parameter servers, and what the Job says of its data.

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
        "EDL_DATA": annotations.get(ANNOTATION_DATA),
        "EDL_EPOCHS": annotations.get(ANNOTATION_EPOCHS),
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
