"""Starts master, servers and trainers, shows them, lets the user add and kill some, ends all."""

from __future__ import annotations

import logging
import queue
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from edl import clock
from edl.errors import EdlError
from edl.local import master, servers
from edl.local.crew import MOST_FAILURES, Crew, state
from edl.local.keys import Keys
from edl.local.ports import free_ports
from edl.local.processes import Key, Line, News, Process
from edl.local.schedule import MASTER, Act, Add, Kill, Quit, Remove, Schedule
from edl.local.servers import Servers
from edl.local.view import Row, held, screen, share, sums, together

log = logging.getLogger("edl.run")

_TICK_S = 0.2
_GRACE_S = 5.0
_MOST_NEWS = 10_000
"""Lines of trainers that wait to be shown; then those who write them wait."""
_INTERRUPTED = 130
_SAVE_S = 30.0
"""For the last checkpoint of parameter servers."""
_KEYS: dict[str, Act] = {
    "+": Add(),
    "-": Remove(),
    "k": Kill(),
    "m": Kill(MASTER),
    "q": Quit(),
}


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    program: list[str]
    trainers: int
    job: str
    schedule: Schedule = field(default_factory=lambda: Schedule([]))
    folder: Path | None = None
    """Keeps journal and logs; a journal found there is continued."""
    python: str = sys.executable
    """The trainers' interpreter."""
    servers: int = 0
    """Parameter servers."""
    server_checkpoints: Path | None = None
    """Where these save; beside the journal by default."""
    hopeless: int | None = None
    """The exit code of a trainer that must not be replaced: another would end alike."""
    newest: str = ""
    """How lines of trainers begin that say how far the job is: the newest is shown."""
    result: str = ""
    """How the line begins by which a trainer says what came of the job: it is the run's last."""


class Run:
    """One run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._news: queue.Queue[News] = queue.Queue(_MOST_NEWS)
        master.require()
        if options.servers:
            servers.require()
        self._kept = options.folder is not None
        self._folder = options.folder or Path(tempfile.mkdtemp(prefix="edl-"))
        self._begun_s = clock.monotonic_s()
        self._live = sys.stdout.isatty()
        self._drawn = 0
        self._quit = self._broken = False
        token, (port, *self._ports) = secrets.token_hex(16), free_ports(1 + options.servers)
        self._told = {
            "EDL_MASTER": f"http://127.0.0.1:{port}",
            "EDL_TOKEN": token,
            "EDL_JOB": options.job,
            "EDL_ADDRESS": "127.0.0.1",
            "EDL_EXCHANGE_PORT": "0",
        }
        if self._ports:
            urls = [f"http://127.0.0.1:{one}" for one in self._ports]
            self._told["EDL_PARAMETER_SERVERS"] = ",".join(urls)
        self._newest = self._result = ""
        self._master_command = master.command(str(self._folder / "journal"), port)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keeper = master.Keeper(self._start_master, self._told["EDL_MASTER"], token)
        self._servers = Servers(self._start_server, options.servers)
        self._crew = Crew(self._start_trainer, options.hopeless)

    def run(self) -> int:
        """The exit code: 0 where the job is done."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupted)
        try:
            with Keys(self._news):
                self._crew.add(self._options.trainers)
                self._loop()
            if not self._keeper.last_word():
                log.warning("the master does not answer any more: what follows is its last word")
            self._draw()
        except EdlError as error:
            log.error("%s", error)  # noqa: TRY400 - one line is what a user wants
            self._broken = True
        finally:
            self._end()
        return self._tell()

    def _loop(self) -> None:
        while not self._quit:
            self._keeper.look()
            self._servers.look()
            self._crew.look(self._worth)
            found = sums(self._keeper.status)
            for act in self._options.schedule.due(self._took_s, share(found)):
                self._do(act)
            self._draw()
            if self._over:
                return
            self._hear()

    @property
    def _took_s(self) -> float:
        return clock.monotonic_s() - self._begun_s

    def _worth(self) -> bool:
        """Whether the job still needs trainers, as the master says now."""
        self._keeper.ask()
        return self._keeper.status.get("state") != "failed"

    @property
    def _over(self) -> bool:
        """Whether nobody trains and nobody will."""
        crew = self._crew
        if crew.running:
            return False
        failed = self._keeper.status.get("state") == "failed"
        if failed or crew.finished or crew.hopeless or crew.failures > MOST_FAILURES:
            return True
        return not self._live and not self._options.schedule.adds

    def _hear(self) -> None:
        """Waits for news, and takes all there are."""
        with suppress(queue.Empty):
            found = self._news.get(timeout=_TICK_S)
            while True:
                self._take(found)
                found = self._news.get_nowait()

    def _take(self, found: News) -> None:
        if isinstance(found, Key):
            act = _KEYS.get(found.text)
            if act is not None:
                self._do(act)
        elif isinstance(found, Line):
            self._read(found)

    def _read(self, line: Line) -> None:
        options = self._options
        if options.newest and line.text.startswith(options.newest):
            self._newest = line.text
        if options.result and line.text.startswith(options.result):
            self._result = line.text
        if not self._live:
            print(f"{line.name} | {line.text}", flush=True)  # noqa: T201 - a command prints

    def _do(self, act: Act) -> None:
        if isinstance(act, Add):
            self._crew.add(act.count)
        elif isinstance(act, Remove):
            self._crew.remove(act.count)
        elif isinstance(act, Quit):
            self._quit = True
        elif act.name == MASTER:
            self._keeper.process.kill()
        elif act.name is None or not self._servers.kill(act.name):
            self._crew.kill(act.name)

    def _draw(self) -> None:
        if not self._live:
            return
        status, keeper = self._keeper.status, self._keeper
        word = "serving" if keeper.serving else "away"
        died = f"started again {keeper.deaths} times" if keeper.deaths else ""
        rows = [Row(master.NAME, word, died, "")]
        rows += [Row(one.name, state(one, "serving"), "", one.last) for one in self._servers.all]
        rows += [
            Row(one.name, state(one), held(status, one.name), one.last) for one in self._crew.all
        ]
        size = shutil.get_terminal_size()
        about = [part for part in (together(status), self._newest) if part]
        lines = screen(
            self._options.job, self._took_s, sums(status), rows, size.columns, about=about
        )
        shown = lines[: max(1, size.lines - 1)]
        up = f"\033[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(up + "".join(f"\r{line}\033[K\n" for line in shown) + "\033[J")
        sys.stdout.flush()
        self._drawn = len(shown)

    def _end(self) -> None:
        """Trainers first, so that the master hears what they trained."""
        for one in self._crew.all:
            one.remove()
        until_s = clock.monotonic_s() + _GRACE_S
        for one in self._crew.all:
            if not one.wait(max(0.0, until_s - clock.monotonic_s())):
                one.kill()
                one.wait(_GRACE_S)
        self._servers.end(_SAVE_S)
        if self._quit:
            self._keeper.ask()
        self._keeper.close()
        self._keeper.process.remove()
        if not self._keeper.process.wait(_GRACE_S):
            self._keeper.process.kill()
            self._keeper.process.wait(_GRACE_S)

    def _tell(self) -> int:
        """The last line, and the exit code."""
        self._hear()
        found = sums(self._keeper.status)
        status = self._keeper.status
        ended = self._crew.finished and not (self._quit or self._broken)
        well = ended and status.get("state") != "failed"
        of = "" if found.records is None else f" of {found.records}"
        print(  # noqa: T201 - a command prints
            f"{self._options.job} {'is done' if well else 'is not done'} after "
            f"{self._took_s:.1f} s: {found.done}{of} records acknowledged, {found.in_vain} trained "
            f"but lost before they were, {found.dropped_tasks} tasks dropped, master restarted "
            f"{self._keeper.deaths} times{self._server_deaths()}",
            flush=True,
        )
        if status.get("state") == "failed":
            print(f"the job failed: {status.get('reason') or 'no reason given'}", flush=True)  # noqa: T201 - as above
        elif not well and self._crew.failed:
            one = self._crew.failed[-1]
            print(f"the last line of {one.name}: {one.last or '-'}", flush=True)  # noqa: T201 - as above
        if well and not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif not well:
            print(f"logs and journal are in {self._folder}", flush=True)  # noqa: T201 - as above
        if well and self._result:
            print(self._result, flush=True)  # noqa: T201 - as above
        return 0 if well else self._bad_end()

    def _bad_end(self) -> int:
        """The exit code of a run that did not end well."""
        if self._quit:
            return _INTERRUPTED
        hopeless = self._options.hopeless
        return hopeless if self._crew.hopeless and hopeless is not None else 1

    def _server_deaths(self) -> str:
        return f", servers {self._servers.deaths} times" if self._ports else ""

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._quit = True

    def _start_master(self) -> Process:
        told = {name: self._told[name] for name in ("EDL_TOKEN", "EDL_JOB")}
        return self._start(master.NAME, self._master_command, told)

    def _start_server(self, index: int) -> Process:
        options = self._options
        place = options.server_checkpoints or self._folder / "servers"
        command = servers.command(index, self._ports, options.job, place)
        told = {name: self._told[name] for name in ("EDL_TOKEN", "EDL_JOB")}
        return self._start(servers.name_of(index), command, told)

    def _start_trainer(self, name: str) -> Process:
        command = [self._options.python, *self._options.program]
        return self._start(name, command, {**self._told, "EDL_TRAINER": name})

    def _start(self, name: str, command: Sequence[str], told: dict[str, str]) -> Process:
        return Process(name, command, told, self._folder / f"{name}.log", self._news)
