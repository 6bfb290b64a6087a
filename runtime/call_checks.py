"""Checks and refuses HTTP calls, for the pure parts of a job's servers. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

MAX_DIGITS = 15
"""Digits of a number in a path."""
_MAX_FIELD_CHARS = 200
"""Messages show only this many characters of a field's name."""

Body = TypeVar("Body")
Json = dict[str, Any]
"""A JSON object."""
_READERS: dict[Any, TypeAdapter[Any]] = {}


class RefusedError(Exception):
    """A call is refused; repeating it would not help.

    Attributes:
        status: The HTTP status, 400 to 499, or 507 if memory does not suffice.
        field: The wrong field, or None.
    """

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Takes a message of one line: what is wrong, and how to correct it."""
        super().__init__(message)
        self.status = status
        self.field = field


def check_body(
    kind: type[Body], raw: bytes, ruled: Sequence[str] = (), *, ignores_unknown: bool = False
) -> Body:
    """Reads a JSON body.

    Args:
        kind: The body's class, a dataclass whose fields say what is allowed.
        raw: The bytes of the body.
        ruled: Fields that must satisfy rules beyond their own type. The message of a broken rule
            begins with the wrong field's name.
        ignores_unknown: Whether fields that the class does not have are ignored instead of refused.

    Raises:
        RefusedError: 400 if the body is not JSON, 422 if a field is wrong; the error names the
            field.
    """
    try:
        return reader(kind).validate_json(raw, extra="ignore" if ignores_unknown else None)
    except ValidationError as error:
        raise refusal(error, ruled) from error


def check_fields(kind: type[Body], fields: Mapping[str, Any]) -> Body:
    """Reads the header of a frame; raises like `check_body`."""
    try:
        return check_body(kind, orjson.dumps(fields))
    except orjson.JSONEncodeError as error:
        raise RefusedError(400, "the header is nested too deeply") from error


def reader(kind: type[Body]) -> TypeAdapter[Body]:
    """Returns the adapter that checks and reads messages of a class."""
    known = _READERS.get(kind)
    if known is None:
        known = _READERS[kind] = TypeAdapter(kind)
    return known


def refusal(error: ValidationError, ruled: Sequence[str] = ()) -> RefusedError:
    """Returns the refusal of a wrong body; `ruled` is as in `check_body`."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = _one_line(".".join(str(part) for part in first["loc"]))
    if first["type"] == "json_invalid":
        return RefusedError(400, f"the body is not JSON: {first['msg']}")
    message = first["msg"].removeprefix("Value error, ")
    if not field:
        named = [name for name in ruled if name in message]
        return RefusedError(
            422, f"the body is wrong: {message}", min(named, key=message.index, default=None)
        )
    if first["type"] == "unexpected_keyword_argument":
        message = "no such field"
    return RefusedError(422, f"{field}: {message}", field)


def _one_line(field: str) -> str:
    """Returns a field's name for a message: callers may send any characters, and any length."""
    return field if field.isprintable() and len(field) <= _MAX_FIELD_CHARS else f"{field!r:.200}"


def whole_number(text: str, name: str) -> int:
    """Parses a whole number in a path, from 0, with at most MAX_DIGITS digits.

    Args:
        text: The part of the path.
        name: The field's name, for messages.

    Raises:
        RefusedError: 422, the text is not such a number.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        raise RefusedError(422, f"{name} must be a whole number", name)
    return int(text)
