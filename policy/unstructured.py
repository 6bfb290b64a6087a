"""Tolerant access to Kubernetes objects as JSON; a field of the wrong type counts as missing. Pure.

Admission receives objects before the API server has validated them. apimachinery's package
`unstructured` does the same for Go programs.
"""

from collections.abc import Mapping

Json = Mapping[str, object]


def spec(pod: Json) -> Json:
    """The pod's spec; empty where it has none."""
    field = pod.get("spec")
    return field if isinstance(field, Mapping) else {}


def objects(owner: Json, field: str) -> list[Json]:
    """A list of objects; other elements count as empty objects, so that positions are kept."""
    elements = owner.get(field)
    if not isinstance(elements, list):
        return []
    return [element if isinstance(element, Mapping) else {} for element in elements]


def has_name(elements: list[Json], name: str) -> bool:
    """Whether one of the objects has that name."""
    return any(element.get("name") == name for element in elements)


def string_map(pod: Json, field: str) -> dict[str, str]:
    """Labels or annotations; values other than strings are left out."""
    metadata = pod.get("metadata")
    values = metadata.get(field) if isinstance(metadata, Mapping) else None
    if not isinstance(values, Mapping):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str)}
