"""What a caller may do, as the API server says when it is asked with the caller's own credentials.

Whoever may call the API server may ask these two (the role `system:basic-user`), and nothing is stored. So no
server of EDL needs the right to review the tokens or the rights of others (docs/decisions/0061).
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
    """A verb on a kind of object; `namespace` "" is all of them, `name` "" any object."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""


def user(api: Api) -> str:
    """The name that the API server has for the caller.

    Raises:
        Unauthorized: the credentials are not (any more) good.
        KubeError: another failure.
    """
    review = call(api, replace(request.create(SELF_REVIEWS, None, {}), timeout_s=TIMEOUT_S))
    return str(review["status"]["userInfo"].get("username", ""))


def may(api: Api, right: AccessRight) -> bool:
    """Whether the caller has a right.

    Raises:
        Unauthorized: as `user`.
        KubeError: another failure.
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
