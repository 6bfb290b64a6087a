"""Settings of a room: command line flags first, then the environment, then the default.

Who calls: every `__main__.py`, once, at start; the value is passed down from there. Nothing
else in the project reads the environment. A field is declared once, with its meaning as the
docstring below it; flag, environment variable, help and check all follow from that.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo

_TAKEN = ("port_", "service_")
"""Kubernetes gives containers EDL_WEBHOOK_PORT and EDL_WEBHOOK_SERVICE_* for a Service edl-webhook."""

_SHOWN = ((int, "N"), (float, "N"), (Path, "PATH"))


_MAX_PORT = 65_535


def address(text: str) -> tuple[str, int]:
    """(host, port) of "127.0.0.1:8443", "[::1]:0" or ":8443" (every address).

    Raises:
        ValueError: it is none of these.
    """
    match = re.fullmatch(
        r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})", text
    )
    if match is None or int(match["port"]) > _MAX_PORT:
        raise ValueError("write host:port, such as 0.0.0.0:8443 or [::]:8443")
    return match["six"] or match["host"] or "0.0.0.0", int(match["port"])  # noqa: S104 - a pod serves its cluster


def _check_address(text: str) -> str:
    address(text)
    return text


Address = Annotated[str, AfterValidator(_check_address)]
"""Of a setting: where to serve."""


class SettingsError(ValueError):
    """A setting that cannot be used; the text is one line that names flag or variable."""


class Settings(BaseModel):
    """Base of every room's settings; subclasses set `room` and add fields with docstrings.

    Attributes:
        room: Names the environment variables, `EDL_<ROOM>_<FIELD>`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
    room: ClassVar[str] = "edl"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least urgent level that is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """JSON lines, or text for people; auto means text on a terminal."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Refuses field names whose variable Kubernetes sets by itself."""
        for name in cls.model_fields:
            if f"{name}_".startswith(_TAKEN) and name != "service":
                raise TypeError(
                    f"{cls.__name__}.{name}: {_variable(cls.room, name)} is set by Kubernetes for Services; choose another name"
                )

    @field_validator("*", mode="before")
    @classmethod
    def _split(cls, value: object, info: Any) -> object:
        """A list arrives as one comma-separated text."""
        field = cls.model_fields[info.field_name]
        if isinstance(value, str) and get_origin(field.annotation) is tuple:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @classmethod
    def add_flags(cls, parser: argparse.ArgumentParser) -> None:
        """Adds one flag per field; not given is told apart from given."""
        for name, field in cls.model_fields.items():
            flag = f"--{name.replace('_', '-')}"
            text = _help(cls.room, name, field)
            if field.annotation is bool:
                parser.add_argument(
                    flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text
                )
            else:
                parser.add_argument(
                    flag, dest=name, default=None, help=text, metavar=_metavar(field)
                )

    @classmethod
    def read(cls, given: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """The settings that flags and environment say.

        Args:
            given: Field name -> text from the command line; None means not given.
            environ: The environment; an empty variable counts as not given.

        Raises:
            SettingsError: names each flag or variable at fault.
        """
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for name in cls.model_fields:
            variable = _variable(cls.room, name)
            if given.get(name) is not None:
                values[name], sources[name] = given[name], f"--{name.replace('_', '-')}"
            elif environ.get(variable):
                values[name], sources[name] = environ[variable], variable
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError("; ".join(_problems(error, sources))) from error

    @classmethod
    def from_command_line(
        cls,
        description: str,
        argv: Sequence[str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """Parses `argv` (the process's own if None); exits with 2 and one line on a mistake."""
        parser = argparse.ArgumentParser(prog=f"python -m {cls.room}", description=description)
        cls.add_flags(parser)
        return cls.from_parsed(parser.parse_args(argv), environ)

    @classmethod
    def from_parsed(
        cls, arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
    ) -> Self:
        """The settings of parsed `arguments`, for rooms with subcommands; exits like the above."""
        try:
            return cls.read(vars(arguments), environ)
        except SettingsError as error:
            sys.stderr.write(f"{cls.room}: {error}\n")
            raise SystemExit(2) from error


def _variable(room: str, name: str) -> str:
    return f"EDL_{room}_{name}".upper()


def _help(room: str, name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    default = field.get_default(call_default_factory=True)
    shown = ",".join(default) if isinstance(default, tuple) else default
    empty = shown is None or shown == ""
    required = "required" if field.is_required() else f"default: {'none' if empty else shown}"
    return f"{meaning} ({required}; env {_variable(room, name)})".replace("%", "%%")


def _metavar(field: FieldInfo) -> str:
    """What stands for the value in the help: the choices, or the kind of text."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return "|".join(str(choice) for choice in kinds)
    if get_origin(field.annotation) is tuple:
        return "A,B"
    kind = kinds[0] if kinds else field.annotation
    return next((shown for known, shown in _SHOWN if kind is known), "TEXT")


def _problems(error: ValidationError, sources: Mapping[str, str]) -> list[str]:
    problems = []
    for fault in error.errors(include_url=False, include_context=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        source = sources.get(name, f"--{name.replace('_', '-')}")
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "missing":
            problems.append(f"{source} is required")
        else:
            problems.append(f"{source} is {str(fault['input'])[:80]!r}: {message}")
    return problems
