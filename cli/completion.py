"""Completions of `kubectl edl` in the form kubectl expects: one candidate per line, then a directive.

The format is that of `kubectl __complete` (cobra's `ShellCompDirective`), where 4 means "no file names".
"""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete

_NO_FILES = ":4"


def complete(group: click.Group, words: Sequence[str]) -> int:
    """Prints the candidates for the last word; returns the exit code 0."""
    *before, incomplete = words or [""]
    completer = ShellComplete(group, {}, "edl", "_EDL_COMPLETE")
    for item in completer.get_completions(list(before), incomplete):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_NO_FILES)
    return 0


def jobs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the names of the elastic jobs in the command line's namespace; [] if they cannot be read."""
    from cli.frame import Flags, Frame  # noqa: PLC0415 - completing other words needs no cluster
    from kube import decode, request  # noqa: PLC0415 - see above

    flag_values = context.params
    flags = Flags(
        flag_values.get("kubeconfig"), flag_values.get("context"), flag_values.get("namespace")
    )
    try:
        frame = Frame(flags)
        objects = frame.all(request.JOBS, frame.namespace)
    except Exception:  # noqa: BLE001 - a completion must never print an error
        return []
    elastic = [job.name for obj in objects if (job := decode.job(obj)) is not None]
    return [CompletionItem(name) for name in sorted(elastic) if name.startswith(incomplete)]
