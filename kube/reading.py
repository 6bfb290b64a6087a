"""Parsed answers of the API server: to any request, objects of one name, all of a kind, and the time."""

from typing import Any

from kube import decode, json_text, request
from kube.api import Api
from kube.errors import NotFound
from kube.request import Request, Resource

SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


def call(api: Api, api_request: Request) -> dict[str, Any]:
    """Sends a request; returns the object with which the API server answers.

    Raises:
        KubeError: the request failed.
    """
    api_object: dict[str, Any] = json_text.loads(api.send(api_request))
    return api_object


def find(api: Api, get_request: Request) -> dict[str, Any] | None:
    """The object of a `kube.request.get`; None where it does not exist.

    Raises:
        KubeError: any other failure.
    """
    try:
        return call(api, get_request)
    except NotFound:
        return None


def list_all(
    api: Api,
    resource: Resource,
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: str = "",
) -> list[dict[str, Any]]:
    """All objects of a kind, page by page.

    Args:
        api: The API server.
        resource: The kind.
        namespace: None for all namespaces.
        labels: A label selector.
        fields: A field selector.

    Raises:
        KubeError: a request failed.
    """
    objects: list[dict[str, Any]] = []
    token = ""
    while True:
        page_request = request.list_page(
            resource, namespace, token=token, label_selector=labels, field_selector=fields
        )
        page = call(api, page_request)
        objects += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return objects


def is_served(api: Api, resource: Resource) -> bool:
    """Whether the cluster has a kind of a named API group.

    Raises:
        KubeError: the request failed.
    """
    try:
        served = call(api, request.kinds(resource.group, resource.version))
    except NotFound:
        return False
    return any(kind.get("name") == resource.plural for kind in served.get("resources") or ())


def server_time_s(api: Api) -> float:
    """The API server's time in seconds since the epoch, to the second; 0 where it does not say.

    It is the creation time of a review of oneself, which stores nothing and everybody may ask for
    (authentication.k8s.io/v1 SelfSubjectReview).

    Raises:
        KubeError: the request failed.
    """
    review = call(api, request.create(SELF_REVIEWS, None, {}))
    return decode.seconds(review.get("metadata", {}).get("creationTimestamp"))
