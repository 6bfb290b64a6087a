"""Parses the policy document: YAML text to a `Policy`, or an error of one line."""

from collections.abc import Iterable
from hashlib import sha256
from typing import get_args

import yaml
from pydantic import BaseModel, ValidationError

from policy.document import yaml_text
from policy.document.model import Policy
from policy.errors import DocumentError
from policy.nearest import advice

MAX_BYTES = 64 * 1024
_MAX_PROBLEMS = 20


def parse(text: str) -> Policy:
    """The policy in `text`; an empty document is the default policy.

    Raises:
        DocumentError: not YAML, not a mapping, too long or too deep, an anchor or alias, an unknown
            field, an invalid value. The message names the first invalid fields and counts the rest.

    The time is linear in the length: anyone who reaches the webhook can send a document, and
    nested aliases make a gigabyte of a few hundred bytes.
    """
    try:
        yaml_text.check(text, "the policy", MAX_BYTES)
        document = yaml.load(text, yaml_text.LOADER)  # noqa: S506 - a SafeLoader
    except DocumentError:
        raise
    except Exception as error:
        # PyYAML's constructors raise whatever their tags lead to (`!!int ''` an IndexError), and a
        # document that ends in another error would be stored, because admission fails open.
        raise DocumentError(f"the policy is not valid YAML: {_one_line(error)}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise DocumentError(
            "the policy must be a mapping such as `reserve: {maxLoad: {cpu: 0.97}}`"
        )
    try:
        return Policy.model_validate(document, by_name=False, by_alias=True)
    except ValidationError as error:
        raise DocumentError("; ".join(_problems(error))) from error


def fingerprint(text: str) -> str:
    """Twelve hex digits that identify this version of the document in logs, events and metrics."""
    return sha256(yaml_text.encoded(text)).hexdigest()[:12]


def _problems(error: ValidationError) -> list[str]:
    """One `field: problem` for each of the first errors, in document order, and how many more there are."""
    faults = error.errors(include_url=False, include_context=False)
    problems = []
    for fault in faults[:_MAX_PROBLEMS]:
        field = ".".join(str(part) for part in fault["loc"]) or "policy"
        if fault["type"] == "extra_forbidden":
            problems.append(f"{field}: unknown field{_nearest_field(fault['loc'])}")
        else:
            problems.append(f"{field}: {fault['msg'].removeprefix('Value error, ')}")
    more = len(faults) - _MAX_PROBLEMS
    return problems if more <= 0 else [*problems, f"and {more} more"]


def _nearest_field(location: tuple[int | str, ...]) -> str:
    """Advice about an unknown field: the nearest of those that its part of the document has."""
    part: type[BaseModel] = Policy
    for step in location[:-1]:
        if isinstance(step, str):
            part = _model_in(part, step)
    return advice(str(location[-1]), _names(part))


def _model_in(part: type[BaseModel], name: str) -> type[BaseModel]:
    """The model of a field, or of the elements of its tuple."""
    (annotation,) = (f.annotation for f in part.model_fields.values() if f.alias == name)
    kinds = (annotation, *get_args(annotation))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


def _names(part: type[BaseModel]) -> Iterable[str]:
    return (str(field.alias) for field in part.model_fields.values())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace(' in "<unicode string>",', " in")
