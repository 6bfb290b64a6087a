"""Tolerant access to Kubernetes objects as JSON; a field of the wrong type counts as missing. Pure.

Parsers of objects that the API server has not validated use it; apimachinery's package `unstructured` does the
same for Go programs. Admission parses whole objects instead (`policy.admission.views`).
"""

from collections.abc import Mapping

Json = Mapping[str, object]

_MAX_DIGITS = 9


def mapping(owner: Json, field: str) -> Json:
    """Returns the object in a field; an empty one if the field has no object."""
    value = owner.get(field)
    return value if isinstance(value, Mapping) else {}


def objects(owner: Json, field: str) -> list[Json]:
    """Returns the objects in a list field; other elements become empty objects, to keep positions valid."""
    elements = owner.get(field)
    if not isinstance(elements, list):
        return []
    return [element if isinstance(element, Mapping) else {} for element in elements]


def number(text: object) -> int:
    """Parses an id or index of up to nine digits; -1 for anything else."""
    if isinstance(text, str) and len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    return -1
