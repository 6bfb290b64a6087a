"""Runs the long commands of a build, and shows their output."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.process import Process, last_lines
from e2e.cluster.progress import BuildState, Display
from runtime.clock import monotonic_s

_POLL_S = 0.25


def run(
    command: Sequence[str],
    log: Path,
    state: BuildState,
    view: Display,
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_s: float,
) -> None:
    """Runs `command` to its end, feeding each line of its output to `state`.

    Args:
        command: Program and arguments.
        log: Its output is appended there.
        state: What is shown meanwhile.
        view: Where it is shown.
        env: The whole environment of the command.
        cwd: Where it runs.
        timeout_s: After that it is killed.

    Raises:
        ClusterError: it failed; names its last line and the log.
    """
    log.touch()
    begin = log.stat().st_size
    process = Process(Path(command[0]).name, command, log, env=env, cwd=cwd)
    deadline_s = monotonic_s() + timeout_s
    try:
        with log.open(errors="replace") as output:
            output.seek(begin)
            ended = False
            while not ended and monotonic_s() < deadline_s:
                ended = process.wait(_POLL_S)
                for line in output:
                    state.saw(line.rstrip("\n"))
                view.show(state)
    finally:
        process.kill()
    if not ended:
        raise ClusterError(f"{state.title}: not done after {timeout_s:.0f} s (log: {log})")
    if process.exit_code != 0:
        raise ClusterError(f"{state.title} failed: {last_lines(log, 1)} (whole log: {log})")
