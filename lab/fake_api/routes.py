"""Maps request paths to objects and collections. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kube import errors
from kube.request import Request, Resource
from lab.fake_api.storage import Key


@dataclass(frozen=True, slots=True)
class Route:
    """The parsed path of a request. `name` is "" for collections."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """The object's key in the storage."""
        return Key(self.resource, self.namespace or "", self.name)


def route(request: Request, resources: Iterable[Resource]) -> Route:
    """Parses the path of `request`.

    Raises:
        NotFound: There is no such resource, or its scope is wrong.
    """
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    group, segments = ("", parts[1:]) if parts[0] == "api" else ("/".join(parts[1:2]), parts[2:])
    version, segments = "".join(segments[:1]), segments[1:]
    namespace = None
    if len(segments) > 2 and segments[0] == "namespaces":  # noqa: PLR2004 - namespaces/NAME/PLURAL
        namespace, segments = segments[1], segments[2:]
    for resource in resources:
        resource_path = (resource.group, resource.version, resource.plural)
        if resource_path == (group, version, "".join(segments[:1])) and _namespace_fits(
            resource, namespace, segments
        ):
            return Route(resource, namespace, "".join(segments[1:2]), "/".join(segments[2:]))
    raise _not_found(request)


def kinds(request: Request, resources: Iterable[Resource]) -> dict[str, Any] | None:
    """Returns the APIResourceList that `request` asks for, or None if it asks for something else.

    Raises:
        NotFound: The version of the group has no kinds.
    """
    root, _, path = request.path.partition("/apis/")
    group, _, version = path.partition("/")
    if root or not version or "/" in version:
        return None
    of_group = [each for each in resources if (each.group, each.version) == (group, version)]
    if not of_group:
        raise _not_found(request)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in of_group
        ],
    }


def _not_found(request: Request) -> errors.NotFound:
    text = "the server could not find the requested resource"
    return errors.NotFound(text, status=404, reason="NotFound", request=request.line)


def _namespace_fits(resource: Resource, namespace: str | None, segments: list[str]) -> bool:
    """Returns whether the path has a namespace exactly if the kind is namespaced; lists may span all."""
    whole_collection = len(segments) == 1
    return resource.namespaced == (namespace is not None) or (
        resource.namespaced and whole_collection
    )
