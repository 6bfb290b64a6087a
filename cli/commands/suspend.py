"""`suspend` and `resume`: stop all trainers of a job, and start them again."""

import click

from cli import changes, completion, lookup
from cli.frame import Frame, command


@command("suspend", output=False)
@click.argument("job", shell_complete=completion.jobs)
def suspend(frame: Frame, job: str) -> None:
    """Stop all trainers of a job until `resume` starts it again."""
    _set(frame, job, suspended=True)


@command("resume", output=False)
@click.argument("job", shell_complete=completion.jobs)
def resume(frame: Frame, job: str) -> None:
    """Let a suspended job run again."""
    _set(frame, job, suspended=False)


def _set(frame: Frame, job: str, *, suspended: bool) -> None:
    obj = lookup.elastic_job(frame, job)
    word = "suspended" if suspended else "resumed"
    if bool(obj["spec"].get("suspend")) == suspended:
        state = "suspended" if suspended else "not suspended"
        frame.say(f"job {changes.key(obj)} is already {state}")
        return
    changes.send(frame, obj, {"spec": {"suspend": suspended}}, {"spec": {"suspend": suspended}})
    frame.say(f"job {changes.key(obj)} {word}")
