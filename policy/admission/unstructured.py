"""Tolerant access to Kubernetes objects as JSON; a field of the wrong type counts as missing. Pure.

Admission receives objects before the API server has validated them. apimachinery's package
`unstructured` does the same for Go programs.
"""

from collections.abc import Mapping

Json = Mapping[str, object]

_MAX_DIGITS = 9


def mapping(owner: Json, field: str) -> Json:
    """An object in another; empty where there is none."""
    value = owner.get(field)
    return value if isinstance(value, Mapping) else {}


def objects(owner: Json, field: str) -> list[Json]:
    """A list of objects; other elements count as empty objects, so that positions are kept."""
    elements = owner.get(field)
    if not isinstance(elements, list):
        return []
    return [element if isinstance(element, Mapping) else {} for element in elements]


def has_name(elements: list[Json], name: str) -> bool:
    """Whether one of the objects has that name."""
    return any(element.get("name") == name for element in elements)


def labels(owner: Json) -> dict[str, str]:
    """The object's labels; values other than strings are left out."""
    return _strings(owner, "labels")


def annotations(owner: Json) -> dict[str, str]:
    """The object's annotations; values other than strings are left out."""
    return _strings(owner, "annotations")


def number(text: object) -> int:
    """An id or index of up to nine digits; -1 for anything else."""
    if isinstance(text, str) and len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    return -1


def _strings(owner: Json, field: str) -> dict[str, str]:
    values = mapping(mapping(owner, "metadata"), field)
    return {name: value for name, value in values.items() if isinstance(value, str)}
