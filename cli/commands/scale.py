"""`scale`: sets the minimum and the maximum of a job's trainers."""

import click

from cli import changes, completion, lookup
from cli.errors import CliError, ExitCode
from cli.frame import Frame, command
from policy.admission.job_settings import bounds
from policy.errors import JobError
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN


@command("scale", output=False)
@click.argument("job", shell_complete=completion.jobs)
@click.option(
    "--min",
    "low",
    type=click.IntRange(1),
    help="Number of trainers that the job starts with and keeps.",
)
@click.option("--max", "high", type=click.IntRange(1), help="Largest number of trainers.")
def scale(frame: Frame, job: str, low: int | None, high: int | None) -> None:
    """Set the minimum and the maximum of a job's trainers.

    The job keeps running. A bound that is not given stays as it is.
    """
    if low is None and high is None:
        raise CliError("set --min, --max or both", ExitCode.USAGE)
    obj = lookup.elastic_job(frame, job)
    annotations = dict(obj["metadata"].get("annotations", {}))
    changed_bounds = {
        name: str(number)
        for name, number in ((ANNOTATION_MIN, low), (ANNOTATION_MAX, high))
        if number is not None
    }
    try:
        new = bounds({**annotations, **changed_bounds})
    except JobError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    trainer = {"min": low, "max": high}
    changes.send(
        frame,
        obj,
        {"metadata": {"annotations": changed_bounds}},
        {"spec": {"trainer": {name: n for name, n in trainer.items() if n is not None}}},
    )
    frame.say(f"job {changes.key(obj)} now has {new[0]} to {new[1]} trainers")
