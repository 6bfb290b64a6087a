"""Parses the policy document: YAML text to a `Policy`, or an error of one line."""

from hashlib import sha256

import yaml
from pydantic import ValidationError

from policy.errors import DocumentError
from policy.model import Policy

MAX_BYTES = 256 * 1024


def parse(text: str) -> Policy:
    """The policy in `text`; an empty document is the default policy.

    Raises:
        DocumentError: not YAML, not a mapping, too long, an unknown field, an invalid value. The
            message names every invalid field.
    """
    if len(_bytes(text)) > MAX_BYTES:
        raise DocumentError(f"the policy is longer than {MAX_BYTES} bytes")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"the policy is not valid YAML: {_one_line(error)}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise DocumentError(
            "the policy must be a mapping such as `reserve: {maxLoad: {cpu: 0.97}}`"
        )
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        raise DocumentError("; ".join(_problems(error))) from error


def fingerprint(text: str) -> str:
    """Twelve hex digits that identify this version of the document in logs, events and metrics."""
    return sha256(_bytes(text)).hexdigest()[:12]


def _problems(error: ValidationError) -> list[str]:
    """One `field: problem` per error, in document order."""
    problems = []
    for fault in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in fault["loc"]) or "policy"
        if fault["type"] == "extra_forbidden":
            problems.append(f"{field}: unknown field")
        else:
            problems.append(f"{field}: {fault['msg'].removeprefix('Value error, ')}")
    return problems


def _bytes(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON allows, is passed on for the YAML parser to reject."""
    return text.encode(errors="surrogatepass")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
