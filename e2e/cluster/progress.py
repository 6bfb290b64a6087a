"""Shows the progress of a build: a bar on a terminal, lines now and then elsewhere.

`BuildState` is pure; `Terminal` and `PlainProgress` show it.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from runtime.clock import monotonic_s

QUIET_S = 15.0
"""Without a terminal there is a line at least this often: some CI systems end silent jobs."""

_DOWNLOAD = "go: downloading "


@dataclass(slots=True)
class BuildState:
    """The state of a build.

    Attributes:
        title: Which part of it, such as "kubectl (6 of 6)".
        package: Main package of the binary that is being built; empty before the first.
        total: Packages in all binaries together; 0 while unknown.
        compiled: Packages compiled so far; those that Go has in its cache are not.
        activity: The last thing the Go tool said it does.
    """

    title: str = "Kubernetes"
    package: str = ""
    total: int = 0
    compiled: int = 0
    activity: str = ""

    def begin(self, title: str, package: str = "") -> None:
        """Something else is being done."""
        self.title = title
        self.package = package
        self.activity = ""

    def saw(self, line: str) -> None:
        """Takes in one line of `go list`, or of `go build -v` once a package is set."""
        if line.startswith(_DOWNLOAD):
            self.activity = f"downloading {line.removeprefix(_DOWNLOAD)}"
        elif not line or " " in line:
            return  # notes and complaints, which the log keeps
        elif not self.package:
            self.total += 1
        else:
            self.compiled += 1
            self.activity = "linking" if line == self.package else f"compiling {line}"

    @property
    def line(self) -> str:
        """Returns the progress in one line."""
        packages = ""
        if self.total and self.package:
            limit = f" of at most {self.total}" if self.compiled <= self.total else ""
            packages = f"{self.compiled}{limit} packages"
        return ", ".join(filter(None, (self.title, packages, self.activity)))


class Display(Protocol):
    """A display of progress; a context manager."""

    def __enter__(self) -> Self:
        """Begins to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the terminal as it was."""

    def say(self, text: str) -> None:
        """Prints one line that stays."""

    def show(self, state: BuildState) -> None:
        """Shows the state; called often."""


class Terminal:
    """One line with a bar that moves."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[activity]}", style="dim"),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """See `Display.say`."""
        self._progress.console.print(text, highlight=False)

    def show(self, state: BuildState) -> None:
        """See `Display.show`."""
        if self._task is None:
            self._task = self._progress.add_task(state.title, total=None, activity="")
        self._progress.update(
            self._task,
            description=state.title,
            total=state.total or None,
            completed=state.compiled,
            activity=state.activity,
        )


class PlainProgress:
    """A plain line when something else is built, and every `QUIET_S` in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = monotonic_s()
        self._said_s = self._began_s
        self._title = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def say(self, text: str) -> None:
        """See `Display.say`."""
        self._said_s = monotonic_s()
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, state: BuildState) -> None:
        """See `Display.show`."""
        now_s = monotonic_s()
        if state.title != self._title or now_s - self._said_s >= QUIET_S:
            self._title = state.title
            self.say(f"[{now_s - self._began_s:4.0f} s] {state.line}")


def display(console: Console | None = None) -> Display:
    """What suits where the output goes (standard error, for standard output is for results)."""
    console = console or Console(stderr=True)
    return Terminal(console) if console.is_terminal else PlainProgress(console)
