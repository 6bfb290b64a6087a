"""The context of a command: API server, namespace, the cluster's time, and output.

All I/O goes through `kube.api` and one console.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console

from cli import terminal
from cli.errors import CODES, CliError, ExitCode
from kube import config, reading
from kube.api import Api
from kube.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.request import DECISIONLOGS, Resource
from policy.names import GROUP
from runtime import clock
from runtime.printable import printable


class Output(StrEnum):
    """The formats of a command's output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags common to all commands."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    output: Output = Output.TABLE


class Frame:
    """A command's connection to the cluster and the terminal; opens nothing before it is needed."""

    def __init__(self, flags: Flags, console: Console | None = None) -> None:
        """Initializes the frame; without a console, prints to stdout."""
        self.flags = flags
        self.console = console or terminal.console(sys.stdout)

    @cached_property
    def api(self) -> Api:
        """The API server, used with the permissions of the caller's kubeconfig."""
        return connect(self.flags)

    @cached_property
    def namespace(self) -> str | None:
        """The namespace from the flag or the kubeconfig; None for all namespaces."""
        if self.flags.all_namespaces:
            return None
        if self.flags.namespace is not None:
            return self.flags.namespace
        return default_namespace(self.flags)

    @property
    def now_s(self) -> float:
        """The API server's time, so that ages are right even if this machine's clock is wrong."""
        return clock.epoch_s() + self._ahead_s

    @cached_property
    def _ahead_s(self) -> float:
        """Seconds by which the API server's clock is ahead of this machine's; 0 if unknown."""
        try:
            server_s = reading.server_time_s(self.api)
        except KubeError:
            return 0.0
        return server_s - clock.epoch_s() if server_s else 0.0

    def all(
        self, resource: Resource, namespace: str | None = None, *, fields: str = ""
    ) -> list[dict[str, Any]]:
        """Returns all objects of a kind that match a field selector, in one namespace or in all.

        Raises:
            CliError: A permission is missing, or the cluster does not have the kind.
        """
        has_flag = self.flags.all_namespaces and namespace is None
        with explained(resource, "list", namespace, has_flag=has_flag):
            return reading.list_all(self.api, resource, namespace, fields=fields)

    def require_edl(self) -> None:
        """Checks that EDL is installed; without it, a change would have no effect.

        Raises:
            CliError: EDL is not installed.
        """
        with suppress(Forbidden):  # the command's next requests will show whether EDL is installed
            if not reading.is_served(self.api, DECISIONLOGS):
                raise no_edl()

    def show(self, document: object, print_text: Callable[[Console], None]) -> None:
        """Prints the result in the requested format.

        Args:
            document: The result as JSON values.
            print_text: Prints the result as text.
        """
        if self.flags.output is Output.TABLE:
            print_text(self.console)
        elif self.flags.output is Output.JSON:
            sys.stdout.write(f"{json_text(document)}\n")
        else:
            sys.stdout.write(yaml_text(document))

    def say(self, text: str) -> None:
        """Prints a line about what was done; prints nothing if the output is JSON or YAML."""
        if self.flags.output is Output.TABLE:
            self.console.print(printable(text), soft_wrap=True)


def json_text(document: object) -> str:
    """Returns ASCII JSON, so that other users' texts cannot send control characters to a terminal."""
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def yaml_text(document: object) -> str:
    """Returns ASCII YAML with escapes, so that other users' texts cannot send control characters."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    return text


@contextmanager
def explained(
    resource: Resource, verb: str, namespace: str | None, *, has_flag: bool = False
) -> Iterator[None]:
    """Converts refusals by the API server to errors that say how to fix them.

    The arguments are those of `forbidden`.

    Raises:
        CliError: A permission is missing, or the cluster lacks one of EDL's kinds.
    """
    try:
        yield
    except Forbidden as error:
        raise forbidden(resource, verb, namespace, has_flag=has_flag) from error
    except NotFound as error:
        if resource.group == GROUP:
            raise no_edl() from error
        raise


def forbidden(
    resource: Resource, verb: str, namespace: str | None, *, has_flag: bool = False
) -> CliError:
    """Returns the error for a permission that the caller lacks.

    Args:
        resource: The kind that the caller may not use.
        verb: The verb, such as `list`.
        namespace: The namespace; None for all namespaces.
        has_flag: Whether the user asked for all namespaces, so that -n would help.
    """
    group = f".{resource.group}" if resource.group else ""
    where = "in all namespaces" if namespace is None else f"in the namespace {namespace}"
    if not resource.namespaced:
        where = "in the cluster"
    helps = "set a namespace with -n, or ask" if has_flag and resource.namespaced else "ask"
    return CliError(
        f"you may not {verb} {resource.plural}{group} {where}: {helps} an admin for the permission",
        ExitCode.FORBIDDEN,
    )


def no_edl() -> CliError:
    """Returns the error for a cluster without EDL."""
    return CliError(
        "EDL is not installed in this cluster, or is older than this command: ask an admin to install or "
        "upgrade it (docs/install.md)",
        ExitCode.NO_EDL,
    )


def connect(flags: Flags) -> Api:
    """Returns the API server selected by the flags."""
    return Client(config.load(flags.kubeconfig, flags.context), user_agent="kubectl-edl")


def default_namespace(flags: Flags) -> str:
    """Returns the namespace of the kubeconfig's context."""
    return config.namespace(flags.kubeconfig, flags.context)


def command(
    name: str, *, listing: bool = False, output: bool = True, whole_cluster: bool = False
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Returns a decorator that turns a function into a command.

    The function is called with a `Frame` and the arguments of the command.

    Args:
        name: Name of the command.
        listing: Whether the command can read all namespaces (`-A`).
        output: Whether the command has `--output`.
        whole_cluster: Whether the command ignores the namespace.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run(**arguments: Any) -> int:
            flags = Flags(
                arguments.pop("kubeconfig"),
                arguments.pop("context"),
                arguments.pop("namespace"),
                arguments.pop("all_namespaces", False),
                Output(arguments.pop("output", Output.TABLE)),
            )
            return function(Frame(flags), **arguments) or 0

        decorated: Callable[..., int] = run
        for option in _options(listing=listing, output=output, whole_cluster=whole_cluster):
            decorated = option(decorated)
        return click.command(name, epilog=CODES)(decorated)

    return decorate


def _options(*, listing: bool, output: bool, whole_cluster: bool) -> list[Callable[[Any], Any]]:
    """Returns the shared options, in the reverse of the order in which the help lists them."""
    options = [
        click.option(
            "--context",
            metavar="NAME",
            help="Context of the kubeconfig; default: the current context.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            help="Kubeconfig file; default: the one that kubectl uses.",
        ),
    ]
    if output:
        formats = click.Choice([str(form) for form in Output])
        text = "Output format; use json or yaml in scripts."
        options.append(click.option("-o", "--output", type=formats, default="table", help=text))
    if listing:
        text = "Use all namespaces."
        options.append(click.option("-A", "--all-namespaces", is_flag=True, help=text))
    text = "Namespace; default: the kubeconfig's namespace."
    if whole_cluster:
        text = "No effect: the command covers the whole cluster."
    options.append(click.option("-n", "--namespace", metavar="NAME", help=text))
    return options
