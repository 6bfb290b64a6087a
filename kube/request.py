"""API requests as values: built here, sent by `kube.client`. Pure.

All code that accesses the API server uses them. Requests can be compared and printed, so a dry run shows
exactly what a real run sends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
SEND_TIMEOUT_S = 30.0
WATCH_TIMEOUT_S = 75.0
"""Time-out of a watch: longer than the interval of bookmarks (about a minute), so a watch that is silent for this
long is broken."""
PAGE = 500
"""Number of objects per page; parsing more of them at once blocks other threads (GIL) for too long."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API: group, version, plural and kind; the group of core/v1 is ""."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` in its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("", "v1", "events", "Event")
JOBS = Resource("batch", "v1", "jobs", "Job")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
TRAININGJOBS = Resource("edl.training", "v1", "trainingjobs", "TrainingJob")
DECISIONLOGS = Resource("edl.training", "v1", "decisionlogs", "DecisionLog")
SERVICES = Resource("", "v1", "services", "Service")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLEBINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
NETWORKPOLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PODDISRUPTIONBUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITYCLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
MUTATINGWEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATINGWEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CUSTOMRESOURCEDEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
RESOURCES = (
    NODES,
    NAMESPACES,
    PODS,
    CONFIGMAPS,
    SECRETS,
    EVENTS,
    JOBS,
    DEPLOYMENTS,
    REPLICASETS,
    TRAININGJOBS,
    DECISIONLOGS,
    SERVICES,
    ROLES,
    ROLEBINDINGS,
    NETWORKPOLICIES,
    LEASES,
    PODDISRUPTIONBUDGETS,
    PRIORITYCLASSES,
    MUTATINGWEBHOOKS,
    VALIDATINGWEBHOOKS,
    CUSTOMRESOURCEDEFINITIONS,
)
"""Every kind that EDL uses."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request to the API server, without address and credentials."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = JSON
    timeout_s: float = SEND_TIMEOUT_S
    """How long the server may be silent before the request fails."""

    @property
    def target(self) -> str:
        """Path and query of the request line."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def line(self) -> str:
        """Method and path, for messages; queries (long tokens) and bodies are kept out of logs."""
        return f"{self.method} {self.path}"


def path_of(
    resource: Resource, namespace: str | None, name: str | None = None, subresource: str = ""
) -> str:
    """Returns the path of an object or, without a name, of a collection.

    Args:
        resource: The kind.
        namespace: None for cluster-scoped kinds, and for collections of all namespaces.
        name: None for the collection.
        subresource: "status", "eviction", "binding"; "" for the object itself.

    Raises:
        ValueError: A namespace or name is missing, or would change the path.
    """
    root = f"/apis/{resource.group}" if resource.group else "/api"
    parts = [root, resource.version]
    if namespace is not None and resource.namespaced:
        parts += ["namespaces", _segment(namespace)]
    elif resource.namespaced and name is not None:
        raise ValueError(f"{resource.plural}/{name}: a namespace is missing")
    parts.append(resource.plural)
    if name is not None:
        parts.append(_segment(name))
    if subresource:
        parts.append(_segment(subresource))
    return "/".join(parts)


def get(resource: Resource, namespace: str | None, name: str) -> Request:
    """Returns a request to read one object."""
    return Request("GET", path_of(resource, namespace, name))


def kinds(group: str, version: str) -> Request:
    """Returns a request for the kinds of an API group's version (discovery), which needs no permission."""
    return Request("GET", f"/apis/{group}/{version}")


def list_page(
    resource: Resource,
    namespace: str | None = None,
    *,
    limit: int = PAGE,
    token: str = "",
    field_selector: str = "",
    label_selector: str = "",
) -> Request:
    """Returns a request for one page of a list; `token` is `metadata.continue` of the previous page."""
    query = _query(
        limit=str(limit) if limit else "",
        **{"continue": token},
        fieldSelector=field_selector,
        labelSelector=label_selector,
    )
    return Request("GET", path_of(resource, namespace), query)


def watch(
    resource: Resource,
    namespace: str | None = None,
    *,
    resource_version: str,
    timeout_s: int,
    field_selector: str = "",
    label_selector: str = "",
) -> Request:
    """Returns a request to watch a collection from `resource_version` on, for `timeout_s`, with bookmarks."""
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        resourceVersion=resource_version,
        timeoutSeconds=str(timeout_s),
        fieldSelector=field_selector,
        labelSelector=label_selector,
    )
    return Request("GET", path_of(resource, namespace), query, timeout_s=WATCH_TIMEOUT_S)


def create(
    resource: Resource,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    dry_run: bool = False,
    strict: bool = False,
) -> Request:
    """Returns a request to create an object; sets `apiVersion` and `kind`.

    Args:
        resource: Kind of the object.
        namespace: Namespace of the object; None for a cluster-scoped kind.
        body: The object.
        dry_run: Whether the API server admits the object without storing it.
        strict: Whether unknown fields are refused with 400 instead of being dropped.
    """
    if resource.namespaced and namespace is None:
        raise ValueError(f"create {resource.plural}: a namespace is missing")
    query = _query(dryRun="All" if dry_run else "", fieldValidation="Strict" if strict else "")
    return Request("POST", path_of(resource, namespace), query, body=_object(resource, body))


def replace(
    resource: Resource,
    namespace: str | None,
    name: str,
    body: Mapping[str, Any],
    *,
    subresource: str = "",
) -> Request:
    """Returns a request to replace an object.

    If the body has a `metadata.resourceVersion`, the stored object must still have this version.
    """
    path = path_of(resource, namespace, name, subresource)
    return Request("PUT", path, body=_object(resource, body))


def delete(
    resource: Resource,
    namespace: str | None,
    name: str,
    *,
    uid: str = "",
    grace_s: int | None = None,
) -> Request:
    """Returns a request to delete an object; with `uid`, a later object of the same name is not deleted."""
    options = {**_options("meta.k8s.io/v1", uid, grace_s), "propagationPolicy": "Background"}
    return Request("DELETE", path_of(resource, namespace, name), body=orjson.dumps(options))


def json_patch(
    resource: Resource,
    namespace: str | None,
    name: str,
    ops: Sequence[Mapping[str, Any]],
) -> Request:
    """Returns a request to apply RFC 6902 operations; if a `test` fails, none is applied (Invalid)."""
    path = path_of(resource, namespace, name)
    return Request("PATCH", path, body=orjson.dumps(list(ops)), content_type=JSON_PATCH)


def merge_patch(
    resource: Resource,
    namespace: str | None,
    name: str,
    body: Mapping[str, Any],
    *,
    subresource: str = "",
) -> Request:
    """Returns a request to apply an RFC 7386 patch; a `metadata.resourceVersion` in it is an optimistic lock."""
    path = path_of(resource, namespace, name, subresource)
    return Request("PATCH", path, body=orjson.dumps(body), content_type=MERGE_PATCH)


def evict(namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> Request:
    """Returns a request to evict a pod; evictions respect disruption budgets and mark pods as disrupted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": _options("v1", uid, grace_s),
    }
    return Request("POST", path_of(PODS, namespace, name, "eviction"), body=orjson.dumps(body))


def _options(api_version: str, uid: str, grace_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": api_version, "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def _object(resource: Resource, body: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": resource.api_version, "kind": resource.kind, **body})


def _query(**pairs: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs.items() if value)


def _segment(text: str) -> str:
    """Quotes one path segment; valid API names need no quoting, but hostile names must not change the path."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is not a valid object name")
    return quote(text, safe="")
