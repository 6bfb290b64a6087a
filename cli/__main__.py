"""`kubectl edl`: lists elastic jobs, explains their number of trainers, and shows what services reclaimed."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from cli import completion
from cli.errors import CODES, CliError, ExitCode
from kube.errors import ConfigError, Forbidden, KubeError, Unauthorized, Unavailable
from policy.nearest import advice
from runtime.printable import printable

COMMANDS = {
    "jobs": "jobs",
    "describe": "describe",
    "why": "why",
    "reclaims": "reclaims",
    "top": "top",
    "suspend": "suspend",
    "resume": "suspend",
    "scale": "scale",
    "when": "when",
    "plan": "plan",
    "snapshot": "snapshot",
    "policy": "policy",
}
"""Command -> its module in `cli.commands`, which contains a function of the same name.

A module is only imported when its command is used, so `why` does not wait for the imports of other commands.
"""


class _Commands(click.Group):
    """The group of all commands, each imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it with this argument
        """Returns the names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Returns the command with this name, or None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"cli.commands.{COMMANDS[cmd_name]}")
        loaded: click.Command = getattr(module, cmd_name)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves a command; rejects an unknown one and suggests the nearest name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = advice(name, COMMANDS)
            ctx.fail(f"unknown command {name[:40]!r}{near}; --help lists all commands")
        return super().resolve_command(ctx, args)


def _version() -> str:
    try:
        return version("edl-control-plane")
    except PackageNotFoundError:
        return "unknown"


COMPLETE = "__complete"
"""The first word with which kubectl_complete-edl asks for completions."""


@click.group(cls=_Commands, epilog=CODES, no_args_is_help=False, invoke_without_command=True)
@click.version_option(_version(), prog_name="edl")
@click.pass_context
def edl(ctx: click.Context) -> None:
    """Show and change elastic jobs: why they wait, which trainers were stopped, and for what.

    All commands use the permissions of your kubeconfig.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def program() -> str:
    """Returns the name under which the user called the program, for usage lines."""
    return "kubectl edl" if Path(sys.argv[0]).name.startswith("kubectl") else "edl"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code (`cli.errors.ExitCode`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed with `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return ExitCode.CLOSED_PIPE
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except (click.ClickException, CliError, ConfigError, KubeError, OSError) as error:
        return _fail(error)
    return code


def _run(words: list[str]) -> int:
    """Parses and runs a command; unlike `click.Group.main`, lets the caller handle a closed pipe."""
    if words[:1] == [COMPLETE]:
        return completion.complete(edl, words[1:])
    try:
        with edl.make_context(program(), words) as context:
            return int(edl.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code


def _fail(error: Exception) -> ExitCode:
    """Prints an error as one line; returns its exit code."""
    text, code = str(error), ExitCode.FAILED
    if isinstance(error, click.ClickException):
        text, code = _usage_text(error), ExitCode.USAGE
    elif isinstance(error, CliError):
        code = error.code
    elif isinstance(error, Forbidden | Unauthorized):
        code = ExitCode.FORBIDDEN
    elif isinstance(error, Unavailable) and error.status == 0:
        text += "; use --kubeconfig or --context to select another cluster"
    print(f"edl: {printable(text)}", file=sys.stderr)
    return code


def _usage_text(error: click.ClickException) -> str:
    """Returns one line about wrong arguments, with the nearest existing flag."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        flag_names = [name for param in error.ctx.command.params for name in param.opts]
        near = advice(
            error.option_name, [name for name in flag_names if name.startswith("--")], "--"
        )
        return f"unknown flag {error.option_name}{near}; --help lists all flags"
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or "--help" in text:  # texts about unknown commands mention it
        return text
    return f"{text} (see `{context.command_path} --help`)"


def _discard_output() -> None:
    """Discards the output of the interpreter's final flush, because stdout has no reader any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
