"""Settings of a component, from command line flags, then the environment, then defaults.

Who calls: every `__main__.py`, once at start, which passes the settings on. No other code reads the
environment. A field is declared once, with a docstring; flag, environment variable, help text and validation
follow from the declaration.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo

from runtime import logs
from runtime.command_line import Parser
from runtime.variables import unknown_variables

log = logging.getLogger(__name__)

_RESERVED_PREFIXES = ("port_", "service_")
"""For a Service edl-webhook, Kubernetes sets EDL_WEBHOOK_PORT and EDL_WEBHOOK_SERVICE_*."""

_METAVARS = ((int, "N"), (float, "N"), (Path, "PATH"))
_MAX_PORT = 65_535


def address(text: str) -> tuple[str, int]:
    """Parses "127.0.0.1:8443", "[::1]:0" or ":8443" to (host, port); host "" means all IPv4 and IPv6 addresses.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(
        r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})", text
    )
    if match is None or int(match["port"]) > _MAX_PORT:
        raise ValueError("write host:port, such as 127.0.0.1:8443 or [::1]:8443, or :8443 for all")
    return match["six"] or match["host"], int(match["port"])


def _check_address(text: str) -> str:
    address(text)
    return text


Address = Annotated[str, AfterValidator(_check_address)]
"""The type of a setting that is an address to serve on."""


class SettingsError(ValueError):
    """A setting is invalid; the text is one line that names the flag or variable."""


class Settings(BaseModel):
    """Base of the settings of components; subclasses set `component` and add documented fields.

    Attributes:
        component: The prefix of the environment variables, `EDL_<COMPONENT>_<FIELD>`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
    component: ClassVar[str] = "edl"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """JSON lines or readable text; auto means text on a terminal."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Rejects field names whose environment variable Kubernetes sets."""
        for name in cls.model_fields:
            if f"{name}_".startswith(_RESERVED_PREFIXES) and name != "service":
                raise TypeError(
                    f"{cls.__name__}.{name}: {_variable(cls.component, name)} is set by Kubernetes for Services; choose another name"
                )

    @field_validator("*", mode="before")
    @classmethod
    def _split(cls, value: object, info: Any) -> object:
        """Splits a comma-separated text into a tuple, for fields that are tuples."""
        field = cls.model_fields[info.field_name]
        if isinstance(value, str) and get_origin(field.annotation) is tuple:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @classmethod
    def add_flags(cls, parser: argparse.ArgumentParser) -> None:
        """Adds one flag per field; a flag that is not given is None."""
        for name, field in cls.model_fields.items():
            flag = f"--{name.replace('_', '-')}"
            text = _help(cls.component, name, field)
            if field.annotation is bool:
                parser.add_argument(
                    flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text
                )
            else:
                parser.add_argument(
                    flag, dest=name, default=None, help=text, metavar=_metavar(field)
                )

    @classmethod
    def read(cls, flags: Mapping[str, object], environ: Mapping[str, str]) -> Self:
        """Builds the settings from flags and environment.

        Args:
            flags: Field name -> text from the command line; None means not given.
            environ: The environment; an empty variable counts as unset.

        Raises:
            SettingsError: it names each invalid flag or variable.
        """
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for name in cls.model_fields:
            variable = _variable(cls.component, name)
            if flags.get(name) is not None:
                values[name], sources[name] = flags[name], f"--{name.replace('_', '-')}"
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
        """Parses `argv` (the process's arguments if None); exits with 2 and one line on an error."""
        parser = Parser(prog=f"python -m {cls.component}", description=description)
        cls.add_flags(parser)
        return cls.from_parsed(parser.parse_args(argv), environ)

    @classmethod
    def from_parsed(
        cls, arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
    ) -> Self:
        """Builds the settings from parsed `arguments`, for subcommands; exits with 2 and one line on an error."""
        try:
            return cls.read(vars(arguments), environ)
        except SettingsError as error:
            sys.stderr.write(f"{cls.component}: {error}\n")
            raise SystemExit(2) from error

    def start_logging(self, environ: Mapping[str, str] = os.environ) -> None:
        """Sets up logs; one warning lists the unknown variables EDL_... of `environ`."""
        logs.setup(self.component, level=self.log_level, form=self.log_format)
        known = [_variable(self.component, name) for name in type(self).model_fields]
        unknown = unknown_variables(environ, self.component, known)
        if unknown:
            log.warning("variables ignored", extra=logs.keys(reason="; ".join(unknown)))


def _variable(component: str, name: str) -> str:
    return f"EDL_{component}_{name}".upper()


def _help(component: str, name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    default = field.get_default(call_default_factory=True)
    default_text = ",".join(default) if isinstance(default, tuple) else default
    empty = default_text is None or default_text == ""
    required = (
        "required" if field.is_required() else f"default: {'none' if empty else default_text}"
    )
    return f"{meaning} ({required}; env {_variable(component, name)})".replace("%", "%%")


def _metavar(field: FieldInfo) -> str:
    """Returns the placeholder of the value in the help text: the choices, or the type."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return "|".join(str(choice) for choice in kinds)
    if get_origin(field.annotation) is tuple:
        return "A,B"
    kind = kinds[0] if kinds else field.annotation
    return next((metavar for known_type, metavar in _METAVARS if kind is known_type), "TEXT")


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
