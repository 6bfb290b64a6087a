"""Reads pods as admission gets them: JSON of any shape, whose oddities count as "not there". Pure."""

from collections.abc import Mapping

Json = Mapping[str, object]


def spec(pod: Json) -> Json:
    """The pod's spec; empty where it has none."""
    found = pod.get("spec")
    return found if isinstance(found, Mapping) else {}


def entries(owner: Json, field: str) -> list[Json]:
    """A list of objects; anything else in it counts as an empty object, so that places hold."""
    found = owner.get(field)
    if not isinstance(found, list):
        return []
    return [entry if isinstance(entry, Mapping) else {} for entry in found]


def named(found: list[Json], name: str) -> bool:
    """Whether one of them has that name."""
    return any(entry.get("name") == name for entry in found)


def texts(pod: Json, field: str) -> dict[str, str]:
    """Labels or annotations; what is no text in them is left out."""
    metadata = pod.get("metadata")
    found = metadata.get(field) if isinstance(metadata, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
