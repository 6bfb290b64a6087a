"""The settings of a stored elastic Job, for a `policy.cluster.snapshot.Job`. Pure.

Called by `kube.decode`. An invalid stored Job has an error and default settings.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import orjson

from kube import podspec
from policy.admission import job_settings, job_spec, sidecar
from policy.admission.job_settings import JobSettings
from policy.admission.views import JobView
from policy.cluster.snapshot import Resources, ServerSpec
from policy.errors import JobError
from policy.names import ANNOTATION_MASTER_CPU, ANNOTATION_MASTER_MEMORY


@dataclass(frozen=True, slots=True)
class ElasticSpec:
    """The settings of a Job, or the error that makes it invalid."""

    settings: JobSettings = field(default_factory=JobSettings)
    error: str = ""


def read(job: JobView) -> ElasticSpec:
    """Reads annotations and spec of a Job.

    The settings also contain values from the templates: the requests of servers and master, and the
    constraints on the nodes of servers.
    """
    try:
        job_spec.check_size(job.template_document, job.template)
        job_spec.check_spec(job)
        job_spec.check_stored(job)
        settings = job_settings.parse(job.annotations)
    except JobError as error:
        return ElasticSpec(error=str(error))
    amounts = {
        name: job.annotations[name]
        for name in (ANNOTATION_MASTER_CPU, ANNOTATION_MASTER_MEMORY)
        if name in job.annotations
    }
    return ElasticSpec(
        replace(
            settings,
            master_settings={**settings.master_settings, **amounts},
            master_requests=_master_requests(settings),
            servers=_with_template(settings.servers),
        )
    )


def _master_requests(settings: JobSettings) -> Resources:
    """Returns the requests of the master's container; empty for EDL's defaults."""
    if not settings.master_template_json:
        given = settings.master_requests
        return {**sidecar.REQUESTS, **given} if given else {}
    requests = dict(_shape(settings.master_template_json)[0])
    requests.pop("pods", None)  # the master is a container in a trainer's pod
    return requests


def _with_template(spec: ServerSpec | None) -> ServerSpec | None:
    """Returns the servers with the requests, limits and constraints of their template, if any."""
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
