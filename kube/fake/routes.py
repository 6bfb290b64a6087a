"""Maps request paths to objects and collections. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from kube import errors
from kube.fake.storage import Key
from kube.request import Request, Resource


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
        NotFound: there is no such resource, or its scope is wrong.
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
    text = "the server could not find the requested resource"
    raise errors.NotFound(text, status=404, reason="NotFound", request=request.line)


def _namespace_fits(resource: Resource, namespace: str | None, segments: list[str]) -> bool:
    """Whether the path has a namespace exactly if the kind is namespaced; lists may span all."""
    whole_collection = len(segments) == 1
    return resource.namespaced == (namespace is not None) or (
        resource.namespaced and whole_collection
    )
