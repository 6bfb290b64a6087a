"""Tolerant access to Kubernetes objects as JSON; a field of the wrong type counts as missing. Pure.

For parsers of objects that the API server has not validated; apimachinery's package `unstructured` does the
same for Go programs. Admission parses whole objects (`policy.admission.views`).
"""

from collections.abc import Mapping

Json = Mapping[str, object]

_MAX_DIGITS = 9


def mapping(owner: Json, field: str) -> Json:
    """Returns the object in a field; empty if there is none."""
    value = owner.get(field)
    return value if isinstance(value, Mapping) else {}


def objects(owner: Json, field: str) -> list[Json]:
    """Returns the objects in a list; other elements count as empty objects, so that positions stay valid."""
    elements = owner.get(field)
    if not isinstance(elements, list):
        return []
    return [element if isinstance(element, Mapping) else {} for element in elements]


def number(text: object) -> int:
    """Parses an id or index of up to nine digits; -1 for anything else."""
    if isinstance(text, str) and len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    return -1
