"""`python -m webhook dry-run FILE`: what admission would do to the objects of a YAML file.

The same decisions as for the API server, without one: classes as EDL creates them, objects as
written (the API server fills in defaults first, which can only add to what is shown here).
Pure but for nothing: text in, lines out. Who calls: `webhook.__main__`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from policy.names import POLICY_CONFIGMAP
from webhook import review
from webhook.review import State
from webhook.wire import Answer, Request, Resource

_RESOURCES = {
    "Pod": Resource(resource="pods"),
    "Job": Resource(group="batch", resource="jobs"),
    "ConfigMap": Resource(resource="configmaps"),
}
_WITH_PODS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")


class FileError(ValueError):
    """The file holds no Kubernetes objects; one line."""


@dataclass(frozen=True, slots=True)
class Report:
    """What to print, and whether anything was refused."""

    lines: tuple[str, ...]
    refused: bool


def report(text: str, state: State) -> Report:
    """What would become of every object in `text` (YAML, one or more documents).

    Raises:
        FileError: `text` is no YAML, or a document is no object.
    """
    lines: list[str] = []
    refused = False
    for thing in _objects(text):
        name, answers = _reviewed(thing, state)
        if answers is None:
            lines.append(f"{name}: not looked at by admission")
            continue
        refusals = [answer.message for answer in answers if not answer.allowed]
        refused = refused or bool(refusals)
        lines += [f"{name}: refused: {message}" for message in refusals]
        if not refusals:
            lines += _changes(name, answers)
    return Report(tuple(lines), refused)


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise FileError(f"not valid YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise FileError("a document has no kind: write Kubernetes objects such as kind: Job")
        if document["kind"] == "List":
            yield from (item for item in document.get("items") or () if isinstance(item, dict))
        else:
            yield document


def _reviewed(thing: Mapping[str, Any], state: State) -> tuple[str, tuple[Answer, Answer] | None]:
    """How to call an object, and what validation and mutation say to it at creation."""
    kind = str(thing.get("kind"))
    metadata = thing.get("metadata") or {}
    named = str(metadata.get("name") or metadata.get("generateName") or "(no name)")
    namespace = str(metadata.get("namespace") or "default")
    if kind == "ConfigMap" and named == POLICY_CONFIGMAP:
        namespace = state.namespace
    name = f"{kind} {namespace}/{named}"
    if kind in _WITH_PODS:
        name, kind = f"pods of {name}", "Pod"
        thing = (thing.get("spec") or {}).get("template") or {}
    if kind not in _RESOURCES:
        return name, None
    asked = Request(
        uid="dry-run",
        resource=_RESOURCES[kind],
        name=named,
        namespace=namespace,
        operation="CREATE",
        object=dict(thing),
        dry_run=True,
    )
    return name, (review.validate(asked, state), review.mutate(asked, state))


def _changes(name: str, answers: tuple[Answer, ...]) -> list[str]:
    operations = [operation for answer in answers for operation in answer.operations]
    warnings = [warning for answer in answers for warning in answer.warnings]
    lines = [f"{name}: {'changed:' if operations else 'allowed as it is'}"]
    for operation in operations:
        value = json.dumps(operation["value"]) if "value" in operation else ""
        lines.append(f"  {operation['op']} {operation['path']} {value}".rstrip())
    return lines + [f"  warning: {warning}" for warning in warnings]
