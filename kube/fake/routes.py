"""Which object or collection a request is about. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from kube import errors
from kube.fake.store import Key
from kube.request import Request, Resource


@dataclass(frozen=True, slots=True)
class Route:
    """A request's path, understood. `name` is "" for collections."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Where the object is kept."""
        return Key(self.resource, self.namespace or "", self.name)


def route(request: Request, resources: Iterable[Resource]) -> Route:
    """What `request` is about.

    Raises:
        NotFound: no such kind, in that way.
    """
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    group, rest = ("", parts[1:]) if parts[0] == "api" else ("/".join(parts[1:2]), parts[2:])
    version, rest = "".join(rest[:1]), rest[1:]
    namespace = None
    if len(rest) > 2 and rest[0] == "namespaces":  # noqa: PLR2004 - namespaces/NAME/PLURAL
        namespace, rest = rest[1], rest[2:]
    for resource in resources:
        known = (resource.group, resource.version, resource.plural)
        if known == (group, version, "".join(rest[:1])) and _placed(resource, namespace, rest):
            return Route(resource, namespace, "".join(rest[1:2]), "/".join(rest[2:]))
    text = "the server could not find the requested resource"
    raise errors.NotFound(text, status=404, reason="NotFound", request=request.line)


def _placed(resource: Resource, namespace: str | None, rest: list[str]) -> bool:
    """Whether the namespace is given exactly where the kind has one (lists may span all)."""
    whole_collection = len(rest) == 1
    return resource.namespaced == (namespace is not None) or (
        resource.namespaced and whole_collection
    )
