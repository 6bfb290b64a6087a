"""Sends requests and parses the responses: single objects, lists of a kind, and the server's time."""

from typing import Any

from kube import decode, json_text, request
from kube.api import Api
from kube.errors import NotFound
from kube.request import Request, Resource

SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


def call(api: Api, api_request: Request) -> dict[str, Any]:
    """Sends a request; returns the object in the response.

    Raises:
        KubeError: The request failed.
    """
    api_object: dict[str, Any] = json_text.loads(api.send(api_request))
    return api_object


def find(api: Api, get_request: Request) -> dict[str, Any] | None:
    """Sends a `kube.request.get`; returns the object, or None if it does not exist.

    Raises:
        KubeError: Any other failure.
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
    """Returns all objects of a kind; reads them page by page.

    Args:
        api: Sends the requests.
        resource: The kind.
        namespace: None for all namespaces.
        labels: A label selector.
        fields: A field selector.

    Raises:
        KubeError: A request failed.
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
    """Returns whether the API server serves a kind, which must be in a named API group (not in core/v1).

    Raises:
        KubeError: The request failed.
    """
    try:
        served = call(api, request.kinds(resource.group, resource.version))
    except NotFound:
        return False
    return any(kind.get("name") == resource.plural for kind in served.get("resources") or ())


def server_time_s(api: Api) -> float:
    """Returns the API server's time in whole seconds since the epoch, or 0 if the response has no time.

    This is the creation time of a SelfSubjectReview (authentication.k8s.io/v1), which stores nothing and
    needs no permission.

    Raises:
        KubeError: The request failed.
    """
    review = call(api, request.create(SELF_REVIEWS, None, {}))
    return decode.seconds(review.get("metadata", {}).get("creationTimestamp"))
