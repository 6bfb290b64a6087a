"""`snapshot`: writes the input of a plan to a file, which `plan` and `when` can read on any machine."""

from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import click

from cli import snapshots
from cli.errors import CliError, ExitCode
from cli.frame import Frame, command
from kube.errors import KubeError
from policy.cluster.snapshot import Snapshot
from runtime.printable import printable

_PREFIX = "edl-"
_ENDING = ".json.gz"
_KIB = 1024
_pause = Event().wait


@command("snapshot", output=False, whole_cluster=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--record", is_flag=True, help="Write snapshots to the folder FILE until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two snapshots of a recording.",
)
@click.option(
    "--keep",
    type=click.IntRange(1, 100_000),
    default=1440,
    show_default=True,
    metavar="NUMBER",
    help="Number of newest snapshots that a recording keeps; the default is one day's.",
)
def snapshot(frame: Frame, file: Path, *, record: bool, every: float, keep: int) -> None:
    """Write the input of a plan to a file.

    The file has nodes, pods, jobs and the policy, but no pod templates. `plan` and `when` read it on
    any machine. If the name of FILE ends in .gz, the file is compressed.
    """
    if not record:
        if file.is_dir():
            raise CliError(f"{file} is a folder: name a file, or add --record", ExitCode.USAGE)
        file_content = snapshots.of_cluster(frame)
        size = snapshots.write(file, file_content)
        frame.say(f"{file}: {_contents(file_content.input.snapshot)}, {size // _KIB + 1} KiB")
        return
    if file.exists() and not file.is_dir():
        raise CliError(f"{file} is not a folder: name a folder for --record", ExitCode.USAGE)
    file.mkdir(parents=True, exist_ok=True)
    while True:
        _record_one(frame, file, keep=keep)
        _pause(every)


def _record_one(frame: Frame, folder: Path, *, keep: int) -> None:
    """Writes the next snapshot of a recording, and deletes the oldest ones if there are more than `keep`.

    If the API server does not respond, a message is printed and the recording continues. A missing
    permission ends it.
    """
    try:
        file_content = snapshots.of_cluster(
            Frame(frame.flags, frame.console)
        )  # a new frame, because a frame keeps the time of its first use
    except KubeError as error:
        click.echo(f"edl: snapshot skipped: {printable(error)}", err=True)
        return
    at = datetime.fromtimestamp(file_content.input.at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = folder / f"{_PREFIX}{at}{_ENDING}"
    snapshots.write(path, file_content)
    frame.say(f"{path}: {_contents(file_content.input.snapshot)}")
    for old in sorted(folder.glob(f"{_PREFIX}*{_ENDING}"))[:-keep]:
        old.unlink(missing_ok=True)


def _contents(records: Snapshot) -> str:
    numbers = (("nodes", records.nodes), ("pods", records.pods), ("jobs", records.jobs))
    return ", ".join(f"{len(records)} {name}" for name, records in numbers)
