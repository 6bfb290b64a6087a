"""Reads a cluster for the admin's commands; all I/O goes through `kube.api`, and creations are dry runs."""

from collections.abc import Mapping
from typing import Any

from admin.before import Right
from kube import request
from kube.api import Api
from kube.errors import KubeError
from kube.reading import call, find, list_all
from kube.request import Request, Resource

ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
CLUSTERROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CLUSTERROLEBINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ADMISSIONPOLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ENDPOINTSLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
KINDS = (
    request.NAMESPACES,
    request.PRIORITYCLASSES,
    CLUSTERROLES,
    CLUSTERROLEBINDINGS,
    request.MUTATINGWEBHOOKS,
    request.VALIDATINGWEBHOOKS,
    ADMISSIONPOLICIES,
    request.CUSTOMRESOURCEDEFINITIONS,
    request.DEPLOYMENTS,
    request.SERVICES,
)
"""The kinds of objects in an installation of EDL."""


class Reader:
    """Reads objects from an API server and parses them."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def version(self) -> Mapping[str, Any]:
        """Returns the API server's version information."""
        return call(self._api, Request("GET", "/version"))

    def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Returns an object, or None if it does not exist."""
        return find(self._api, request.get(resource, namespace, name))

    def all(
        self, resource: Resource, namespace: str | None = None, *, labels: str = ""
    ) -> list[dict[str, Any]]:
        """Returns all objects of a kind; reads them page by page."""
        return list_all(self._api, resource, namespace, labels=labels)

    def dry_run(
        self, resource: Resource, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the object that a creation would store."""
        return call(self._api, request.create(resource, namespace, body, dry_run=True))

    def refusal(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> str:
        """Returns why the API server would refuse to create an object, or "" if it would not."""
        try:
            self.dry_run(resource, namespace, body)
        except KubeError as error:
            return str(error)
        return ""

    def is_allowed(self, right: Right) -> bool:
        """Returns whether the caller has a permission."""
        attributes = {"verb": right.verb, "group": right.group, "resource": right.plural}
        if right.namespace:
            attributes["namespace"] = right.namespace
        body = {"spec": {"resourceAttributes": attributes}}
        answer = call(self._api, request.create(ACCESS_REVIEWS, None, body))
        return bool(answer.get("status", {}).get("allowed"))
