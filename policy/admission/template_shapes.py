"""Whether the fields of a role's template have the types of a pod template (core/v1). Pure.

The API server checks a Job's own template; of those in annotations it knows the text alone, until the first
pod is created. What EDL reads of them until then has to be what it seems.
"""

from collections.abc import Mapping
from typing import Any, Final

from policy.errors import JobError

_TEXT: Final = "a text"
_NUMBER: Final = "a whole number"
_PORT: Final = "a number from 1 to 65535"
_MAX_PORT = 65_535
_TEXTS: Final = {"*": _TEXT}
_OBJECT: Final[dict[str, Any]] = {}
_RESOURCES = {"requests": _OBJECT, "limits": _OBJECT}
_EXPRESSIONS = [{"key!": _TEXT, "operator!": _TEXT, "values": [_TEXT]}]
_TERM = {"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}
_CONTAINER = {
    "env": [{"name!": _TEXT}],
    "ports": [{"containerPort!": _PORT}],
    "resources": _RESOURCES,
    "volumeMounts": [_OBJECT],
}
_POD = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [_OBJECT],
        },
        "podAffinity": _OBJECT,
        "podAntiAffinity": _OBJECT,
    },
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "imagePullSecrets": [_OBJECT],
    "nodeSelector": _TEXTS,
    "serviceAccountName": _TEXT,
    "terminationGracePeriodSeconds": _NUMBER,
    "tolerations": [dict.fromkeys(("key", "operator", "value", "effect"), _TEXT)],
    "volumes": [{"name!": _TEXT}],
}
_TEMPLATE = {"metadata": {"labels": _TEXTS, "annotations": _TEXTS}, "spec": _POD}
"""Field -> its shape: words for a value, a list with the shape of its elements, or an object with those of its
fields, where `!` stands behind the name of one that has to be there, and `*` for all."""


def check(name: str, template: Mapping[str, Any]) -> None:
    """Rejects a template in which a field that EDL reads has another type.

    Args:
        name: Of the annotation, for messages.
        template: The template.

    Raises:
        JobError: the first such field, and what belongs there.
    """
    _check(f"{name}: ", template, _TEMPLATE)


def _check(at: str, value: object, shape: Any) -> None:
    if isinstance(shape, str):
        if not _is(value, shape):
            raise JobError(f"{at}: write {shape}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise JobError(f"{at}: write a list")
        for index, element in enumerate(value):
            _check(f"{at}[{index}]", element, shape[0])
    else:
        if not isinstance(value, Mapping):
            raise JobError(f"{at}: write an object")
        _check_fields(at, value, shape)


def _check_fields(at: str, value: Mapping[str, object], shape: Mapping[str, Any]) -> None:
    inner = at if at.endswith(": ") else f"{at}."
    if "*" in shape:
        for name, text in value.items():
            _check(f"{inner}{name[:40]}", text, shape["*"])
        return
    for key, field_shape in shape.items():
        name = key.removesuffix("!")
        if value.get(name) is not None:
            _check(f"{inner}{name}", value[name], field_shape)
        elif name != key:
            raise JobError(f"{inner}{name} is missing: write {field_shape}")


def _is(value: object, kind: str) -> bool:
    if kind == _TEXT:
        return isinstance(value, str)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and (kind != _PORT or 0 < value <= _MAX_PORT)  # type: ignore[operator]
