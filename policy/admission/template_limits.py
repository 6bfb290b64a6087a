"""How large a Job's pod template may be: every decision about the job reads a part of it.

kube-scheduler reads a template's constraints for each pod; EDL compares them with all nodes, in each
plan that has to, and keeps the template while the Job exists. Tenants write both.
"""

from collections.abc import Mapping

import orjson

from policy.admission import unstructured
from policy.errors import JobError

MAX_TEMPLATE_BYTES = 128 * 1024
MAX_CONSTRAINTS_BYTES = 16 * 1024
MAX_CONSTRAINTS = 128
"""Entries of the node selector (for each term of node affinity), expressions and tolerations."""


def check(template: Mapping[str, object]) -> None:
    """Rejects a pod template that is too large, or that says in too many words where pods may run.

    Raises:
        JobError: the field, its size, and what to do instead.
    """
    template_bytes = _size(template)
    if template_bytes > MAX_TEMPLATE_BYTES:
        raise JobError(
            f"spec.template has {template_bytes} bytes, and at most {MAX_TEMPLATE_BYTES} are allowed: "
            "put scripts and data into a ConfigMap, and mount it"
        )
    pod_spec = unstructured.mapping(template, "spec")
    entries, constraints_bytes = _entries(pod_spec), _size(constraint_fields(pod_spec))
    if entries > MAX_CONSTRAINTS or constraints_bytes > MAX_CONSTRAINTS_BYTES:
        raise JobError(
            "spec.template.spec: node selector, required node affinity and tolerations have "
            f"{entries} entries of {constraints_bytes} bytes, and at most {MAX_CONSTRAINTS} of "
            f"{MAX_CONSTRAINTS_BYTES} are allowed: give the nodes a label, and select that"
        )


def constraint_fields(pod_spec: Mapping[str, object]) -> tuple[object, object, object]:
    """(node selector, required node affinity, tolerations) of a core/v1 `PodSpec`, as written."""
    return pod_spec.get("nodeSelector"), _required(pod_spec) or None, pod_spec.get("tolerations")


def _required(pod_spec: Mapping[str, object]) -> Mapping[str, object]:
    node_affinity = unstructured.mapping(unstructured.mapping(pod_spec, "affinity"), "nodeAffinity")
    return unstructured.mapping(node_affinity, "requiredDuringSchedulingIgnoredDuringExecution")


def _entries(pod_spec: Mapping[str, object]) -> int:
    selected = len(unstructured.mapping(pod_spec, "nodeSelector"))
    terms = [
        sum(len(unstructured.objects(term, kind)) for kind in ("matchExpressions", "matchFields"))
        for term in unstructured.objects(_required(pod_spec), "nodeSelectorTerms")
    ]
    tolerations = len(unstructured.objects(pod_spec, "tolerations"))
    return sum(terms) + max(1, len(terms)) * selected + tolerations


def _size(value: object) -> int:
    """Bytes as JSON."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:  # nested deeper than any pod template
        raise JobError(f"spec.template: {error}") from error
