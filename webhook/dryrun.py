"""`python -m webhook dry-run FILE`: shows what admission would do to the objects of a YAML file.

The decisions are the same as for the API server, given PriorityClasses as EDL creates them and objects as
written. The API server sets defaults first, which can only add changes to the ones shown here.
Pure: text in, lines out. Called by `webhook.__main__`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from policy.admission.unstructured import mapping, objects
from policy.document import yaml_text
from policy.errors import DocumentError
from policy.names import GROUP, POLICY_CONFIGMAP
from runtime.printable import printable
from webhook import review
from webhook.review import AdmissionContext, AdmissionRequest, AdmissionResponse, GroupResource

_RESOURCES = {
    "Pod": GroupResource(resource="pods"),
    "Job": GroupResource(group="batch", resource="jobs"),
    "ConfigMap": GroupResource(resource="configmaps"),
}
_MAX_BYTES = 4 << 20
_MAX_DEPTH = 60
_WITH_PODS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")


class FileError(ValueError):
    """The file does not contain Kubernetes objects; the message is one line."""


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """The lines to print, and whether any object was refused."""

    lines: tuple[str, ...]
    refused: bool


def report(text: str, context: AdmissionContext) -> DryRunReport:
    """Reviews every object in `text` (YAML, one or more documents).

    Raises:
        FileError: `text` is not YAML that `policy.document.yaml_text` accepts, a document is not a
            Kubernetes object, or there is no document.
    """
    lines: list[str] = []
    refused = False
    for obj in _objects(text):
        name, responses = _review(obj, context)
        if responses is None:
            lines.append(f"{name}: EDL does not review this kind")
            continue
        refusals = [response.message for response in responses if not response.allowed]
        refusals += _unquoted(obj)
        refused = refused or bool(refusals)
        lines += [f"{name}: refused: {printable(message)}" for message in refusals]
        if not refusals:
            lines += _changes(name, responses)
    if not lines:
        raise FileError("the file contains no objects: write Kubernetes objects such as kind: Job")
    return DryRunReport(tuple(lines), refused)


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        yaml_text.check(text, "the file", _MAX_BYTES, _MAX_DEPTH)
        documents = list(yaml.load_all(text, yaml_text.LOADER))
    except DocumentError as error:
        raise FileError(str(error)) from error
    except Exception as error:  # tags can raise other errors than PyYAML's
        raise FileError(f"not valid YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise FileError("a document has no kind: write Kubernetes objects such as kind: Job")
        if document["kind"] == "List":
            yield from filter(None, objects(document, "items"))
        else:
            yield document


def _review(
    obj: Mapping[str, Any], context: AdmissionContext
) -> tuple[str, tuple[AdmissionResponse, AdmissionResponse] | None]:
    """Returns an object's display name, and its validation and mutation as if it were created.

    Raises:
        FileError: The name of a field is not a string, such as an unquoted `true`.
    """
    kind = str(obj.get("kind"))
    metadata = mapping(obj, "metadata")
    object_name = str(metadata.get("name") or metadata.get("generateName") or "(no name)")
    namespace = str(metadata.get("namespace") or "default")
    if kind == "ConfigMap" and object_name == POLICY_CONFIGMAP:
        namespace = context.namespace
    name = printable(f"{kind} {namespace}/{object_name}")
    if kind in _WITH_PODS:
        name, kind = f"pods of {name}", "Pod"
        obj = mapping(mapping(obj, "spec"), "template")
    if kind not in _RESOURCES:
        return name, None
    for key in obj:
        if not isinstance(key, str):
            raise FileError(f"{name}: the field {printable(str(key))} is not a string: quote it")
    request = AdmissionRequest(
        uid="dry-run",
        resource=_RESOURCES[kind],
        name=object_name,
        namespace=namespace,
        operation="CREATE",
        object=dict(obj),
        dry_run=True,
    )
    return name, (review.validate(request, context), review.mutate(request, context))


def _unquoted(obj: Mapping[str, Any]) -> list[str]:
    """Returns the API server's refusal for each of EDL's annotations and labels that is not a string."""
    fields = [mapping(mapping(obj, "metadata"), part) for part in ("annotations", "labels")]
    values = {str(name): value for field in fields for name, value in field.items()}
    return [
        f'{name} is not a string: write it in quotes, "{json.dumps(value, default=str)}"'
        for name, value in values.items()
        if name.startswith(f"{GROUP}/") and not isinstance(value, str)
    ]


def _changes(name: str, responses: tuple[AdmissionResponse, ...]) -> list[str]:
    operations = [operation for response in responses for operation in response.operations]
    warnings = [warning for response in responses for warning in response.warnings]
    lines = [f"{name}: {'changed:' if operations else 'allowed unchanged'}"]
    for operation in operations:
        value = json.dumps(operation["value"], default=str) if "value" in operation else ""
        path = printable(operation["path"])
        lines.append(f"  {operation['op']} {path} {value}".rstrip().replace("\x7f", "?"))
    return lines + [f"  warning: {printable(warning)}" for warning in warnings]
