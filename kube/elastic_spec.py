"""Reads the annotations of an elastic Job into fields of `policy.cluster.snapshot.Job`. Pure.

Called by `kube.decode`. An invalid Job that is already stored gets an `error` and defaults otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from kube import podspec
from policy.admission import job_options, job_spec, servers, sidecar, template_limits
from policy.cluster.snapshot import Resources, ServerSpec
from policy.errors import JobError
from policy.names import ANNOTATION_MASTER_CPU, ANNOTATION_MASTER_MEMORY


@dataclass(frozen=True, slots=True)
class ElasticSpec:
    """The fields of `policy.cluster.snapshot.Job` with the same names; `low` and `high` are its bounds."""

    low: int = 0
    high: int = 0
    weight: int = 1
    queue: str = ""
    master: bool = False
    master_settings: Mapping[str, str] = field(default_factory=dict)
    master_requests: Resources = field(default_factory=dict)
    master_template_json: bytes = b""
    token_generation: int = 1
    servers: ServerSpec | None = None
    sizes: tuple[int, ...] = ()
    processes: int = 1
    environment: tuple[str, ...] = ()
    error: str = ""


def read(
    annotations: Mapping[str, str], spec: Mapping[str, Any], template: Mapping[str, Any]
) -> ElasticSpec:
    """Reads the annotations and the spec of a Job; the result of an invalid one has `error`."""
    try:
        template_limits.check(template)
        job_spec.check_spec(spec)
        job_spec.check_stored(spec)
        low, high = job_spec.bounds(annotations)
        master_template = job_options.master_template(annotations)
        return ElasticSpec(
            low,
            high,
            job_spec.weight(annotations),
            job_spec.queue(annotations),
            job_spec.master(annotations),
            job_spec.master_settings(annotations) | _amounts(annotations),
            _master_requests(annotations, master_template),
            master_template,
            job_spec.token_generation(annotations),
            _with_template(servers.requested(annotations)),
            job_options.sizes(annotations),
            job_options.processes(annotations),
            job_options.environment(annotations),
        )
    except JobError as error:
        return ElasticSpec(error=str(error))


def _amounts(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns CPU and memory for EDL's master on the pod that hosts it; `_master_requests` checks them."""
    names = (ANNOTATION_MASTER_CPU, ANNOTATION_MASTER_MEMORY)
    return {name: annotations[name] for name in names if name in annotations}


def _master_requests(annotations: Mapping[str, str], template: bytes) -> Resources:
    """Returns the requests of the master's container; for EDL's master without any, an empty mapping."""
    if not template:
        given = job_options.master_requests(annotations)
        return {**sidecar.REQUESTS, **given} if given else {}
    requests = dict(_shape(template)[0])
    requests.pop("pods", None)  # it is a container of a trainer
    return requests


def _with_template(spec: ServerSpec | None) -> ServerSpec | None:
    """Returns the servers with the values of their own template, if they have one."""
    if spec is None or not spec.template_json:
        return spec
    requests, limits = _shape(spec.template_json)
    pod_spec = orjson.loads(spec.template_json)["spec"]
    placed = replace(spec, constraints=podspec.constraints(pod_spec))
    return replace(placed, requests=requests, limits=limits) if spec.ports else placed


@lru_cache(maxsize=1024)
def _shape(template: bytes) -> tuple[Resources, Resources]:
    """Returns requests and limits of a pod created from a template."""
    pod_spec = orjson.loads(template)["spec"]
    return podspec.requests(pod_spec), podspec.limits(pod_spec)
