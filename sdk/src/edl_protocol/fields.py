"""How messages are described: dataclasses whose types have limits. Pure.

A server checks the messages that it receives against these descriptions: pydantic reads the limits,
and names the wrong field. Trainers construct the same classes, and send the results of `to_json`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, Optional, Union

Json = dict[str, Any]
"""A JSON object."""
MOST = 1 << 53
"""The largest number: integers up to here survive every JSON reader."""


@dataclass(frozen=True)
class Limits:
    """Limits of a field, named as in JSON Schema and pydantic; None means no limit."""

    ge: Optional[Union[int, float]] = None  # noqa: UP007, UP045 - Python 3.9 evaluates this type
    le: Optional[Union[int, float]] = None  # noqa: UP007, UP045 - as above
    min_length: Optional[int] = None  # noqa: UP045 - as above
    max_length: Optional[int] = None  # noqa: UP045 - as above
    pattern: Optional[str] = None  # noqa: UP045 - as above
    allow_inf_nan: Optional[bool] = None  # noqa: UP045 - as above

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Json:
        """Adds the limits to pydantic's schema of the type, which has the same names for them."""
        given = {name: limit for name, limit in vars(self).items() if limit is not None}
        return {**handler(source), **given}


Count = Annotated[int, Limits(ge=0, le=MOST)]
Positive = Annotated[int, Limits(ge=1, le=MOST)]
Text = Annotated[str, Limits(max_length=2000)]


@dataclass(frozen=True)
class Message:
    """Base of all messages and their parts."""

    __pydantic_config__: ClassVar[Json] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
        "use_attribute_docstrings": True,
    }


@dataclass(frozen=True)
class Call(Message):
    """Base of the bodies of calls."""

    METHOD: ClassVar[str] = "POST"
    PATH: ClassVar[str]


def to_json(message: Message) -> Json:
    """Returns the JSON object of a message, without fields that have their defaults.

    Servers of earlier releases refuse fields that they do not know, so a new field with a default is
    sent only by trainers that use it.
    """
    values = ((field, getattr(message, field.name)) for field in fields(message))
    return {field.name: _plain(value) for field, value in values if value != _default(field)}


def _default(field: Field[Any]) -> Any:
    """Returns the default of a field; if it has none, a value that is equal to no other."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_json(value)  # type: ignore[arg-type]  # parts of messages are messages
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
