"""Overcommit: trainers request a part of what they may use, so that nodes run more of them.

The policy names a ratio of limit to request for CPU and memory, by namespace and queue. Limits stay as the
author wrote them; where there is none, the request becomes the limit, so that a trainer uses no more
than it asked for and counts the same against quotas on limits (docs/decisions/0054). Devices and other
extended resources cannot be overcommitted: Kubernetes demands equal requests and limits.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from math import ceil
from typing import Any

from policy import quantity
from policy.admission import unstructured
from policy.cluster.snapshot import Job
from policy.document.queue_model import Overcommit
from policy.errors import QuantityError

Ratios = Mapping[str, float]
"""Resource -> limit divided by request, 1 to 10."""
_CONTAINERS = ("containers", "initContainers")


def ratios_of(rules: Iterable[Overcommit], namespace: str, queue: str) -> Ratios:
    """The ratios of trainers of a namespace and queue by the first rule that selects them."""
    for rule in rules:
        selected = any(fnmatchcase(namespace, pattern) for pattern in rule.namespaces)
        if selected and any(fnmatchcase(queue, pattern) for pattern in rule.queues):
            return {name: ratio for name, ratio in rule.trainers.items() if ratio > 1}
    return {}


def as_written(job: Job) -> Job:
    """The job itself: no policy is known."""
    return job


def lowered(job: Job, ratios: Ratios) -> Job:
    """The job with lower requests in its pod template; the same job where nothing changes.

    Its amounts are those of the old template: who reads pod specs counts them again.
    """
    if not (ratios and job.managed):
        return job
    template = dict(job.template)
    spec = dict(unstructured.mapping(template, "spec"))
    for field in _CONTAINERS:
        if field in spec:
            containers = unstructured.objects(spec, field)
            spec[field] = [_with_lower_requests(container, ratios) for container in containers]
    new = {**template, "spec": _with_lower_requests(spec, ratios)}
    if new == template:
        return job
    return replace(job, template_json=json.dumps(new, separators=(",", ":")).encode())


def _with_lower_requests(owner: Mapping[str, object], ratios: Ratios) -> Mapping[str, object]:
    """A container, or a pod spec with resources of its own, with lower requests and with limits."""
    resources = unstructured.mapping(owner, "resources")
    requests = dict(unstructured.mapping(resources, "requests"))
    limits = dict(unstructured.mapping(resources, "limits"))
    for name, ratio in ratios.items():
        limit = limits.get(name, requests.get(name))
        if limit is None:
            continue
        try:
            limit_amount = quantity.parse(name, str(limit))
            request = min(
                quantity.parse(name, str(requests.get(name, limit))), ceil(limit_amount / ratio)
            )
        except QuantityError:
            continue  # the API server refuses such a pod and says so
        requests[name], limits[name] = quantity.show(name, request), limit
    if (requests, limits) == (resources.get("requests", {}), resources.get("limits", {})):
        return owner
    changed: dict[str, Any] = {**resources, "requests": requests, "limits": limits}
    return {**owner, "resources": changed}
