"""Field and label selectors, in the subset that EDL uses. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from kube import errors

Object = Mapping[str, Any]

_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.schedulerName",
    "status.phase",
    "status.nominatedNodeName",
)


def selects(obj: Object, fields: str, labels: str) -> bool:
    """Returns whether `obj` matches both selectors, which `check` has accepted."""
    return _fields_match(obj, fields) and labels_match(labels_of(obj), labels)


def labels_of(obj: Object) -> Mapping[str, str]:
    """Returns an object's labels; an empty mapping if it has none."""
    labels: Mapping[str, str] = obj.get("metadata", {}).get("labels") or {}
    return labels


def labels_match(labels: Mapping[str, str], selector: str) -> bool:
    """Returns whether labels match equality (`a=b`, `a==b`, `a!=b`) and existence (`a`, `!a`) terms."""
    return all(_label_matches(labels, part) for part in _parts(selector))


def matches(labels: Mapping[str, str], selector: Object | None) -> bool:
    """Returns whether labels match a metav1 `LabelSelector`; None matches nothing, an empty one all."""
    if selector is None:
        return False
    match_labels = selector.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in match_labels.items()) and all(
        _OPERATORS[e["operator"]](labels.get(e["key"]), e.get("values") or ())
        for e in selector.get("matchExpressions") or ()
    )


_OPERATORS: Mapping[str, Callable[[str | None, Any], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def _label_matches(labels: Mapping[str, str], part: str) -> bool:
    name, operator, value = _split(part)
    if operator == "!=":
        return labels.get(name) != value
    if operator:
        return labels.get(name) == value
    return name[1:] not in labels if name.startswith("!") else name in labels


def check(fields: str) -> None:
    """Rejects unsupported field selectors.

    Raises:
        KubeError: A selector is not supported; status 400.
    """
    for part in _parts(fields):
        path, operator, _ = _split(part)
        if path not in _FIELDS or not operator:
            raise errors.KubeError(
                f"field selector not supported: {part}", status=400, reason="BadRequest"
            )


def _fields_match(obj: Object, selector: str) -> bool:
    for part in _parts(selector):
        path, operator, value = _split(part)
        if (_field(obj, path) == value) == (operator == "!="):
            return False
    return True


def _field(obj: Object, path: str) -> str:
    value: Any = obj
    for key in path.split("."):
        value = (value or {}).get(key)
    return value or ""


def _parts(selector: str) -> list[str]:
    return [part.strip() for part in selector.split(",") if part.strip()]


def _split(part: str) -> tuple[str, str, str]:
    """Splits a term into name, operator ("" for existence) and value."""
    for operator in ("!=", "==", "="):
        name, separator, value = part.partition(operator)
        if separator:
            return name.strip(), operator, value.strip()
    return part, "", ""
