"""Overcommit: trainers request less than they may use, so that each node runs more trainers.

By namespace and queue, the policy sets a ratio of limit to request for CPU and memory. Limits stay as the
author wrote them. For a resource without a limit, the original request becomes the limit: the trainer then
uses no more than it asked for, and counts the same against quotas on limits (docs/decisions/0054). Devices
and other extended resources cannot be overcommitted: Kubernetes demands equal requests and limits.
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
    """Returns the ratios for trainers in a namespace and queue, from the first rule that selects them."""
    for rule in rules:
        selected = any(fnmatchcase(namespace, pattern) for pattern in rule.namespaces)
        if selected and any(fnmatchcase(queue, pattern) for pattern in rule.queues):
            return {name: ratio for name, ratio in rule.trainers.items() if ratio > 1}
    return {}


def as_written(job: Job) -> Job:
    """Returns the job unchanged, because no policy is known."""
    return job


def lowered(job: Job, ratios: Ratios) -> Job:
    """Returns the job with lower requests in its pod template; the same object if nothing changes.

    `requests` and `limits` of the returned job still come from the old template; the caller computes
    them again from the new one.
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
    """Returns a container (or a pod spec with pod-level resources) with lower requests and with limits."""
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
