"""Checks the bodies of calls, which `edl_protocol.master` describes. Pure."""

from dataclasses import asdict
from typing import TypeVar

from edl_protocol.fields import Message
from edl_protocol.master import VERSION, DatasetDescription

from runtime.call_checks import Json, check_body

Body = TypeVar("Body", bound=Message)
_MAX_VERSION_DIGITS = 6
_RULED = ("epochs", "records", "files")
"""Fields that must satisfy rules beyond their own type."""


def check(kind: type[Body], raw: bytes, version: str = "") -> Body:
    """Reads a body; raises like `runtime.call_checks.check_body`.

    Args:
        kind: The class of the body.
        raw: The bytes of the body.
        version: The caller's version, as in the header `VERSION_HEADER`; "" if it sent no version.
    """
    is_number = version.isascii() and version.isdecimal() and len(version) <= _MAX_VERSION_DIGITS
    is_newer = is_number and int(version) > VERSION
    return check_body(kind, raw, _RULED, ignores_unknown=is_newer)


def dataset_shape(description: DatasetDescription) -> Json:
    """Returns a description as the ledger stores it: without the two sources that are not set."""
    fields = asdict(description)
    sources = {name: fields.pop(name) for name in ("records", "files", "stream")}
    return {name: value for name, value in sources.items() if value} | fields
