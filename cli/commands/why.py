"""`why`: explains why a job has its number of trainers, why a pod waits, or why a pod ended."""

import click
from rich.console import Console

from cli import completion, lookup, records, terminal
from cli.frame import Frame, command
from cli.terminal import Column, age
from kube import story
from kube.story import Story
from policy.timestamps import timestamp
from runtime.printable import printable

_MAX_HISTORY = 10


@command("why")
@click.argument("name", shell_complete=completion.jobs)
@click.option(
    "--history",
    "count",
    type=click.IntRange(0, 1000),
    default=_MAX_HISTORY,
    show_default=True,
    help="Number of newest records to show.",
)
def why(frame: Frame, name: str, count: int) -> None:
    """Explain why a job has no more trainers, or why a pod waits or ended.

    NAME is a job or a pod, present or deleted: NAME, job/NAME or pod/NAME.
    """
    answer = ask(frame, name)
    frame.show(answer.to_json(), lambda console: print_story(frame, console, answer, count))


def ask(frame: Frame, text: str) -> Story:
    """Returns the answer about a job or a pod."""
    name = lookup.parse(frame, text)
    log_records = records.of_namespace(frame, name.namespace, name.key)
    target = lookup.target(frame, name, log_records)
    if target.kind == "job":
        return story.of_job(target.key, target.job, log_records)
    return story.of_pod(target.key, target.obj, log_records)


def print_story(frame: Frame, console: Console, answer: Story, count: int) -> None:
    """Prints an answer as text."""
    since = ""
    if answer.since_s:
        span = age(frame.now_s - answer.since_s)
        since = f", {span} ago" if answer.is_past else f", for {span}"
    _line(console, f"{answer.about}: {answer.state}")
    _line(console, f"  {answer.code}{since}: {answer.text}")
    if answer.helps:
        _line(console, f"  What to do: {answer.helps}")
    old_s = frame.now_s - answer.as_of_s
    if answer.as_of_s and old_s > 90:  # noqa: PLR2004 - figures are written once a minute
        _line(console, f"  The figures are {age(old_s)} old; the decision has not changed since.")
    history = answer.history[len(answer.history) - min(count, len(answer.history)) :]
    if history:
        console.print()
        rows = [
            [
                timestamp(record.at_s),
                f"{age(frame.now_s - record.at_s)} ago",
                record.name.partition("/")[2] or record.name,
                f"{record.code}: {record.text}" if record.text else record.code,
            ]
            for record in history
        ]
        columns = [
            Column("TIME", optional=True),
            Column("AGE"),
            Column("OBJECT", wraps=True, optional=True),
            Column("WHAT HAPPENED", wraps=True),
        ]
        console.print(terminal.table(columns, rows, console.width))


def _line(console: Console, text: str) -> None:
    indent = text[: len(text) - len(text.lstrip())]
    console.print(f"{indent}{printable(text)}", overflow="fold")
