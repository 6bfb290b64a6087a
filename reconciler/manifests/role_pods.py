"""Adds user programs as masters and parameter servers, and the environment variables of all roles. Pure.

Called by the manifests of trainers, servers and masters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from policy.admission import frameworks
from policy.admission.frameworks import RolePod
from policy.admission.role_templates import ports
from policy.cluster.snapshot import Job
from policy.names import GROUP, MASTER_CONTAINER, MASTER_PORT, Role

_PREFIX = f"{GROUP}/"
_EDL, _STORE = "edl-master", "torch-store"


def master_ports(job: Job) -> dict[str, int]:
    """Returns port name -> number for the Service of a job's master; the first port is its address."""
    if job.master_template_json:
        return port_names(ports(orjson.loads(job.master_template_json)))
    store = {_STORE: frameworks.STORE_PORT} if frameworks.TORCH in job.environment else {}
    return {_EDL: MASTER_PORT, **store}


def port_names(numbers: Sequence[int]) -> dict[str, int]:
    """Returns port name -> number for the Service of a user's program."""
    return {f"port-{number}": number for number in numbers}


def add_roles(job: Job, spec: dict[str, Any], role_pod: RolePod, *, hosts_master: bool) -> None:
    """Adds the variables to a trainer's pod, and the user's master if the pod hosts it."""
    add_variables(job, spec, replace(role_pod, hosts_master=hosts_master))
    if hosts_master and job.master_template_json:
        add_master(job, spec, replace(role_pod, role=Role.MASTER, number=0))


def add_variables(job: Job, spec: dict[str, Any], role_pod: RolePod) -> None:
    """Adds the variables of the job's frameworks to a pod's containers, except those they already set.

    They are put first, so that the user's variables can refer to them.
    """
    if frameworks.has_variables(job):
        for container in spec.get("containers") or ():
            container["env"] = _environment(job, container, role_pod)


def add_master(job: Job, spec: dict[str, Any], role_pod: RolePod) -> None:
    """Adds the user's master, as a native sidecar, to the pod of the trainer that hosts it.

    Its volumes are added too; a volume that the trainer already has under the same name is kept.
    """
    template = orjson.loads(job.master_template_json)["spec"]
    container = {**template["containers"][0], "name": MASTER_CONTAINER, "restartPolicy": "Always"}
    container["env"] = _environment(job, container, role_pod)
    spec["initContainers"] = [container, *(spec.get("initContainers") or ())]
    present = {volume.get("name") for volume in spec.get("volumes") or ()}
    volumes = [v for v in template.get("volumes") or () if v.get("name") not in present]
    if volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]


def user_metadata(template_json: bytes) -> dict[str, dict[str, str]]:
    """Returns labels and annotations of a user's template, without EDL's names, which only EDL writes."""
    metadata = orjson.loads(template_json).get("metadata") or {}
    return {
        field: {n: t for n, t in (metadata.get(field) or {}).items() if not n.startswith(_PREFIX)}
        for field in ("labels", "annotations")
    }


def server_spec(job: Job, template_json: bytes, role_pod: RolePod) -> dict[str, Any]:
    """Returns the pod spec of a parameter server that runs a user's program."""
    spec: dict[str, Any] = orjson.loads(template_json)["spec"]
    add_variables(job, spec, role_pod)
    return {**spec, "restartPolicy": "Always"}


def _environment(job: Job, container: Mapping[str, Any], role_pod: RolePod) -> list[dict[str, Any]]:
    present = container.get("env") or []
    names = {variable.get("name") for variable in present}
    added = [v for v in frameworks.variables(job, role_pod) if v["name"] not in names]
    return [*added, *present]
