"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386). Pure: documents are never modified."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from kube import errors


def merged(document: Any, patch: Any) -> Any:
    """Applies a merge patch: null removes, objects are merged, other values replace."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Applies all operations of a JSON Patch in order.

    Raises:
        Invalid: An operation does not apply; the document is then unchanged.
    """
    result = deepcopy(document)
    for operation in operations:
        result = _apply(result, operation)
    return result


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if _value_to_test(document, path) != operation.get("value"):
                raise _invalid(f"testing value {operation['path']} failed")
            return document
        case "add":
            return _add(document, path, deepcopy(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, deepcopy(operation.get("value")))
        case "move":
            source = _pointer(operation["from"])
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, deepcopy(_get(document, _pointer(operation["from"]))))
        case other:
            raise errors.KubeError(f"unknown operation {other!r}", status=400, reason="BadRequest")


def _pointer(text: str) -> list[str]:
    """Parses a JSON Pointer (RFC 6901); "" is the whole document."""
    if not text:
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _get(document: Any, path: list[str]) -> Any:
    for key in path:
        document = _child(document, key)
    return document


def _value_to_test(document: Any, path: list[str]) -> Any:
    """Returns the value that a `test` compares; a key that is missing in an object counts as null."""
    parent = _get(document, path[:-1])
    if path and isinstance(parent, dict):
        return parent.get(path[-1])
    return _get(document, path)


def _child(parent: Any, key: str) -> Any:
    try:
        return parent[_index(parent, key)] if isinstance(parent, list) else parent[key]
    except (KeyError, IndexError, TypeError) as error:
        raise _invalid(f"there is no {key!r}") from error


def _index(items: list[Any], key: str) -> int:
    if not key.isdecimal() or int(key) >= len(items):
        raise _invalid(f"{key!r} is not an index of a list of {len(items)}")
    return int(key)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, key = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(
            len(parent) if key == "-" or key == str(len(parent)) else _index(parent, key), value
        )
    elif isinstance(parent, dict):
        parent[key] = value
    else:
        raise _invalid(f"nothing can be added at {key!r}")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """Replaces a value; a missing key is added, as the API server does although the RFC forbids it."""
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
        return document
    return _add(_remove(document, path), path, value)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise _invalid("the whole document cannot be removed")
    parent, key = _get(document, path[:-1]), path[-1]
    _child(parent, key)
    del parent[_index(parent, key) if isinstance(parent, list) else key]
    return document


def _invalid(reason: str) -> errors.Invalid:
    text = f"the server rejected our request due to an error in our request: {reason}"
    return errors.Invalid(text, status=422, reason="Invalid")
