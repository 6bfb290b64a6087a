"""Asks the API server who a caller is and what the caller may do, with the caller's own credentials.

Every authenticated user may send these two requests (the role `system:basic-user`), and nothing is stored.
So no EDL server needs permission to review other users' tokens or rights (docs/decisions/0061).
"""

from dataclasses import dataclass, replace

from kube import request
from kube.api import Api
from kube.reading import SELF_REVIEWS, call
from kube.request import Resource

TIMEOUT_S = 5.0
_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class AccessRight:
    """A verb on a kind of object; namespace "" means all namespaces, and name "" means any object."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""


def user(api: Api) -> str:
    """Returns the API server's name for the caller.

    Raises:
        Unauthorized: The credentials are invalid or have expired.
        KubeError: Another failure.
    """
    review = call(api, replace(request.create(SELF_REVIEWS, None, {}), timeout_s=TIMEOUT_S))
    return str(review["status"]["userInfo"].get("username", ""))


def may(api: Api, right: AccessRight) -> bool:
    """Returns whether the caller has a right.

    Raises:
        Unauthorized: As for `user`.
        KubeError: Another failure.
    """
    attributes = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {"spec": {"resourceAttributes": attributes}}
    review = call(api, replace(request.create(_REVIEWS, None, body), timeout_s=TIMEOUT_S))
    return review["status"].get("allowed") is True
