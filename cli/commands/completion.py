"""`completion`: what a shell completes."""

import click
from click.shell_completion import get_completion_class

from cli.errors import CliError, ExitCode

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_EDL_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion of a shell for `edl`: source <(edl completion bash).

    kubectl completes `kubectl edl` by the program kubectl_complete-edl, without this.
    """
    from cli.__main__ import edl  # noqa: PLC0415 - which loads this module

    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - the choices are click's own
        raise CliError(f"{shell} is not supported", ExitCode.USAGE)
    click.echo(kind(edl, {}, "edl", _VARIABLE).source())
