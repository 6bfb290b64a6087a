"""Runs a job on this machine: starts, shows and stops master, servers and trainers, and handles keys."""

from __future__ import annotations

import logging
import queue
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from edl import clock
from edl.errors import EdlError
from edl.jobs.flags import CLOSED_PIPE, INTERRUPTED
from edl.jobs.progress_lines import format_count, format_times
from edl.local import master, programs, server_processes
from edl.local.keys import KeyReader
from edl.local.output import Output
from edl.local.ports import free_ports
from edl.local.processes import Event, KeyPress, OutputLine, Process, stop_all
from edl.local.schedule import MASTER, Action, Add, Kill, Quit, Remove, Schedule
from edl.local.server_processes import ServerProcesses
from edl.local.trainer_pool import MAX_FAILURES, TrainerPool, state_text
from edl.local.view import (
    Row,
    Totals,
    done_share,
    outage_text,
    progress_text,
    round_text,
    screen,
    sum_datasets,
)

log = logging.getLogger("edl.run")

_TICK_S = 0.2
_GRACE_S = 5.0
_MAX_EVENTS = 10_000
"""Capacity of the event queue; a full queue blocks the processes that write output."""
_SAVE_S = 30.0
"""Time limit for the parameter servers' final checkpoint."""
_KEYS: dict[str, Action] = {
    "+": Add(),
    "-": Remove(),
    "k": Kill(),
    "m": Kill(MASTER),
    "q": Quit(),
}


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    program: list[str]
    trainers: int
    job: str
    schedule: Schedule = field(default_factory=lambda: Schedule([]))
    folder: Path | None = None
    """Folder for the journal and logs; if it holds a journal, that job is continued."""
    python: str = sys.executable
    """The trainers' interpreter."""
    servers: int = 0
    """Number of parameter servers."""
    server_checkpoints: Path | None = None
    """Folder for the servers' checkpoints; by default a folder next to the journal."""
    fatal_exit_code: int | None = None
    """Trainers with this exit code are not replaced, because a replacement would fail, too."""
    progress_prefix: str = ""
    """Prefix of trainers' progress lines; the newest such line is shown."""
    result_prefix: str = ""
    """Prefix of a trainer's result line, which becomes the last line of the run."""


class Run:
    """One run of a job on this machine."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._events: queue.Queue[Event] = queue.Queue(_MAX_EVENTS)
        programs.require("master", "edl run needs the master, which is")
        if options.servers:
            programs.require("pserver", "--async needs parameter servers, which are")
        self._keeps_folder = options.folder is not None
        self._folder = options.folder or Path(tempfile.mkdtemp(prefix="edl-"))
        self._started_s = clock.monotonic_s()
        self._output = Output()
        self._is_terminal = sys.stdout.isatty()
        self._drawn = 0
        self._quit = self._broken = False
        token, (port, *self._ports) = secrets.token_hex(16), free_ports(1 + options.servers)
        self._environ = {
            "EDL_MASTER": f"http://127.0.0.1:{port}",
            "EDL_TOKEN": token,
            "EDL_JOB": options.job,
            "EDL_ADDRESS": "127.0.0.1",
            "EDL_EXCHANGE_PORT": "0",
        }
        if self._ports:
            urls = [f"http://127.0.0.1:{server_port}" for server_port in self._ports]
            self._environ["EDL_PARAMETER_SERVERS"] = ",".join(urls)
        self._progress = self._outcome = ""
        self._master_command = master.command(str(self._folder / "journal"), port)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._supervisor = master.MasterSupervisor(
            self._start_master, self._environ["EDL_MASTER"], token
        )
        self._servers = ServerProcesses(self._start_server, options.servers)
        self._pool = TrainerPool(self._start_trainer, options.fatal_exit_code)

    def run(self) -> int:
        """Runs the job; returns the exit code, 0 if the job is done."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup makes the process ignore SIGHUP: keep that, so that the run outlives its terminal
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        try:
            with KeyReader(self._events):
                self._pool.add(self._options.trainers)
                self._loop()
            for entry in self._options.schedule.pending:
                log.warning("the run ended before the schedule entry %r was due", entry)
            if not self._supervisor.final_status():
                log.warning("the master does not answer: the summary shows its last known status")
            self._draw()
        except EdlError as error:
            log.error("%s", error)  # noqa: TRY400 - a traceback would not help the user
            self._broken = True
        finally:
            self._stop()
        return self._print_summary()

    def _loop(self) -> None:
        while not (self._quit or self._output.lost_reader):
            self._supervisor.check()
            self._servers.restart_dead()
            self._pool.replace_failed(self._needs_trainers)
            totals = sum_datasets(self._supervisor.status)
            for action in self._options.schedule.due(self._elapsed_s, done_share(totals)):
                self._perform(action)
            self._draw()
            if self._finished:
                return
            self._handle_events()

    @property
    def _elapsed_s(self) -> float:
        return clock.monotonic_s() - self._started_s

    def _needs_trainers(self) -> bool:
        """Returns whether the job still needs trainers, by the master's current status."""
        self._supervisor.poll_status()
        return self._supervisor.status.get("state") != "failed"

    @property
    def _finished(self) -> bool:
        """Whether no trainer runs and none will be started."""
        pool = self._pool
        if pool.running:
            return False
        has_failed = self._supervisor.status.get("state") == "failed"
        if has_failed or self._is_done or pool.ended_fatally or pool.failures > MAX_FAILURES:
            return True
        return not self._is_terminal and not self._options.schedule.adds

    @property
    def _is_done(self) -> bool:
        """Whether a trainer ended by itself without an error, or the master reports the job done."""
        return self._pool.finished or self._supervisor.status.get("state") == "done"

    def _handle_events(self) -> None:
        """Waits for an event, then handles all queued events."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=_TICK_S)
            while True:
                self._handle(event)
                event = self._events.get_nowait()

    def _handle(self, event: Event) -> None:
        if isinstance(event, KeyPress):
            action = _KEYS.get(event.text)
            if action is not None:
                self._perform(action)
        elif isinstance(event, OutputLine):
            self._read(event)

    def _read(self, line: OutputLine) -> None:
        options = self._options
        if options.progress_prefix and line.text.startswith(options.progress_prefix):
            self._progress = line.text
        if options.result_prefix and line.text.startswith(options.result_prefix):
            self._outcome = line.text
        if not self._is_terminal:
            self._output.write(f"{line.name} | {line.text}\n")

    def _perform(self, action: Action) -> None:
        if isinstance(action, Add):
            self._pool.add(action.count)
        elif isinstance(action, Remove):
            self._pool.remove(action.count)
        elif isinstance(action, Quit):
            self._quit = True
        elif action.name == MASTER:
            self._supervisor.process.kill()
        elif action.name is None or not self._servers.kill(action.name):
            self._pool.kill(action.name)

    def _draw(self) -> None:
        if not self._is_terminal:
            return
        status, supervisor = self._supervisor.status, self._supervisor
        state = "serving" if supervisor.serving else "away"
        restarts_text = f"restarted {format_times(supervisor.deaths)}" if supervisor.deaths else ""
        rows = [Row(master.NAME, state, restarts_text, "")]
        rows += [
            Row(process.name, state_text(process, "serving"), "", process.headline)
            for process in self._servers.all
        ]
        rows += [
            Row(
                process.name,
                state_text(process),
                progress_text(status, process.name),
                process.headline,
            )
            for process in self._pool.all
        ]
        size = shutil.get_terminal_size()
        notes = [part for part in (round_text(status), outage_text(status), self._progress) if part]
        lines = screen(
            self._options.job,
            self._elapsed_s,
            sum_datasets(status),
            rows,
            size.columns,
            notes=notes,
        )
        shown = [*lines[: max(1, size.lines - 2)], *lines[max(1, size.lines - 2) :][-1:]]
        cursor_up = f"\033[{self._drawn}A" if self._drawn else ""
        text = "".join(f"\r{line}\033[K\n" for line in shown)
        self._output.write(f"{cursor_up}{text}\033[J")
        self._drawn = len(shown)

    def _stop(self) -> None:
        """Stops all processes; trainers stop first, so that they can still report to the master."""
        stop_all(self._pool.all, _GRACE_S)
        self._servers.stop(_SAVE_S)
        if self._quit:
            self._supervisor.poll_status()
        self._supervisor.close()
        self._supervisor.process.remove()
        if not self._supervisor.process.wait(_GRACE_S):
            self._supervisor.process.kill()
            self._supervisor.process.wait(_GRACE_S)

    def _print_summary(self) -> int:
        """Prints the summary and returns the exit code."""
        self._handle_events()
        totals = sum_datasets(self._supervisor.status)
        status = self._supervisor.status
        is_finished = self._is_done and not (self._quit or self._broken)
        succeeded = is_finished and status.get("state") != "failed"
        outcome = "is done" if succeeded else "is not done"
        facts = ", ".join(self._facts(totals))
        self._output.write(
            f"{self._options.job} {outcome} after {self._elapsed_s:.1f} s: {facts}\n"
        )
        if status.get("state") == "failed":
            self._output.write(f"the job failed: {status.get('reason') or 'no reason given'}\n")
        elif not succeeded and self._pool.failed:
            process = self._pool.failed[-1]
            self._output.write(f"the last line of {process.name}: {process.last_words}\n")
        if succeeded and not self._keeps_folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif not succeeded:
            self._output.write(f"logs and journal are in {self._folder}\n")
        if succeeded and self._outcome:
            self._output.write(f"{self._outcome}\n")
        return 0 if succeeded else self._failure_code()

    def _facts(self, totals: Totals) -> Iterator[str]:
        """Yields the parts of the summary; losses and restarts only if there were any."""
        total_text = "" if totals.records is None else f" of {totals.records}"
        yield f"{totals.done}{total_text} records acknowledged"
        if totals.lost:
            yield f"{format_count(totals.lost, 'record')} lost and trained again"
        if totals.dropped_tasks:
            yield f"{format_count(totals.dropped_tasks, 'task')} dropped"
        if self._supervisor.deaths:
            yield f"master restarted {format_times(self._supervisor.deaths)}"
        if self._servers.deaths:
            yield f"servers restarted {format_times(self._servers.deaths)}"

    def _failure_code(self) -> int:
        """Returns the exit code of a run that was not successful."""
        if self._quit:
            return INTERRUPTED
        if self._output.lost_reader:
            return CLOSED_PIPE
        fatal_exit_code = self._options.fatal_exit_code
        return fatal_exit_code if self._pool.ended_fatally and fatal_exit_code is not None else 1

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._quit = True

    def _start_master(self) -> Process:
        environ = {name: self._environ[name] for name in ("EDL_TOKEN", "EDL_JOB")}
        return self._start(master.NAME, self._master_command, environ)

    def _start_server(self, index: int) -> Process:
        options = self._options
        checkpoints = options.server_checkpoints or self._folder / "servers"
        command = server_processes.command(index, self._ports, options.job, checkpoints)
        environ = {name: self._environ[name] for name in ("EDL_TOKEN", "EDL_JOB")}
        return self._start(server_processes.name_of(index), command, environ)

    def _start_trainer(self, name: str) -> Process:
        command = [self._options.python, *self._options.program]
        return self._start(name, command, {**self._environ, "EDL_TRAINER": name})

    def _start(self, name: str, command: Sequence[str], environ: dict[str, str]) -> Process:
        return Process(name, command, environ, self._folder / f"{name}.log", self._events)
