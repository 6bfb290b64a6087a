"""Rooms side by side, each in a staged tree and processes of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.mutants import equivalents, files, sample, stage, verdicts
from bench.mutants.equivalents import Equivalent
from bench.mutants.rooms import Room
from bench.mutants.verdicts import Verdict

MIN_PER_ROOM = 25
"""How many of each room are tried, however few it has of all."""
_LOG_LINES = 40
_POLL_S = 2.0
"""How often progress is looked at."""
_TRIES = 2
"""How often a room is begun: its tests must pass before they can tell anything."""


class RoomError(RuntimeError):
    """A room's mutants could not be tried; the message ends with what its process has said."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the mutants of one room."""

    mutants: int
    """How many there are."""
    tried: list[dict[str, Any]]
    """Those of the sample: what they are, `verdict`, and `reason` where they are equivalent."""

    @property
    def count(self) -> verdicts.Counts:
        """They, counted."""
        return verdicts.Counts.of(Verdict(each["verdict"]) for each in self.tried)


@dataclass(slots=True)
class Run:
    """One run over some rooms."""

    root: Path
    """The user's tree, which is only read."""
    folder: Path
    """Where staged trees go."""
    rooms: Mapping[str, Room]
    tell: Callable[[str], None]
    """Shows a person what goes on."""
    cores: int
    failed: dict[str, str] = field(default_factory=dict)
    """Rooms that could not be tried, and why; the others go on."""
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _temporary: str = ""
    _over: bool = False

    def outcomes(self, seed: int, count: int) -> dict[str, Outcome]:
        """Tries a sample of all rooms' mutants; without rooms that have `failed`.

        Raises:
            RoomError: Mutants of a room cannot even be counted.
            LookupError: See `bench.mutants.stage`.
        """
        known = equivalents.load()
        with tempfile.TemporaryDirectory(prefix="edl-mutants-") as self._temporary:
            try:
                self._each(self._list, lambda _name: "counts its mutants")
                candidates = {name: self._candidates(name) for name in self.rooms}
                totals = {name: len(numbers) for name, numbers in candidates.items()}
                for name, share in sample.shares(totals, count, MIN_PER_ROOM).items():
                    self._choose(name, sample.pick(candidates[name], share, seed, name))
                self._each(self._try, self._progress)
            finally:
                self._end()
        done = [name for name in self.rooms if name not in self.failed]
        return {name: Outcome(totals[name], self._tried(name, known)) for name in done}

    def _each(self, work: Callable[[str], None], progress: Callable[[str], str]) -> None:
        """Does something in all rooms, as many at once as there are cores."""
        with ThreadPoolExecutor(self.cores) as pool:
            futures = {name: pool.submit(work, name) for name in self.rooms}
            try:
                while any(not future.done() for future in futures.values()):
                    wait(futures.values(), timeout=_POLL_S)
                    self.tell("; ".join(_states(futures, progress)))
                    _raise_first(futures.values())
            except BaseException:
                self._end()  # or the pool waits for all of them
                raise

    def _list(self, name: str) -> None:
        stage.stage(self.root, self.folder / name, self.rooms[name])
        self._work(name, "list")

    def _try(self, name: str) -> None:
        """Begins a room again if its tests fail without a mutant: the machine may be slow."""
        workers = str(max(1, self.cores // len(self.rooms)))
        for _ in range(_TRIES):
            try:
                self._work(name, "run", workers)
            except RoomError as error:
                self.failed[name] = str(error)
            else:
                self.failed.pop(name, None)
                return

    def _work(self, name: str, *step: str) -> None:
        """One step of `bench.mutants.worker`; ends all that it leaves behind."""
        staged_tree = self.folder / name
        command = (sys.executable, "-m", "bench.mutants.worker", *step)
        with self._lock:
            if self._over:
                raise RoomError(f"{name}: interrupted")
            process = subprocess.Popen(
                command,
                cwd=staged_tree,
                env=self._environment(staged_tree),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # no file: tests limit how long files may become
                stderr=subprocess.STDOUT,
            )
            self._processes.add(process)
        log_thread = threading.Thread(
            target=_copy_output, args=(process, staged_tree / f"{step[0]}.log")
        )
        log_thread.start()
        try:
            code = process.wait()
        finally:
            _kill(process)
            log_thread.join()
        if code:
            log_text = (staged_tree / f"{step[0]}.log").read_text(
                encoding="utf-8", errors="replace"
            )
            lines = log_text.replace("\r", "\n").splitlines()[-_LOG_LINES:]
            raise RoomError(f"{name}: exit code {code} of its worker\n" + "\n".join(lines))

    def _environment(self, staged_tree: Path) -> dict[str, str]:
        """Processes that tests start import the staged tree too; arithmetic starts no threads."""
        return os.environ | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(staged_tree / files.OUTPUT),
            "TMPDIR": self._temporary,
        }

    def _end(self) -> None:
        """Ends all processes, and lets none begin."""
        with self._lock:
            self._over = True
            for process in self._processes:
                _kill(process)

    def _candidates(self, name: str) -> list[tuple[str, int]]:
        numbers: dict[str, list[int]] = files.read(self.folder / name / files.CANDIDATES)
        return [(file, number) for file in sorted(numbers) for number in numbers[file]]

    def _choose(self, name: str, chosen: list[tuple[str, int]]) -> None:
        numbers: dict[str, list[int]] = {}
        for file, number in chosen:
            numbers.setdefault(file, []).append(number)
        files.write(self.folder / name / files.SAMPLE, numbers)

    def _progress(self, name: str) -> str:
        staged_tree = self.folder / name
        chosen: dict[str, list[int]] = files.read(staged_tree / files.SAMPLE)
        codes = files.exit_codes(staged_tree, chosen)
        total = sum(map(len, chosen.values()))
        if not codes:
            return f"measures its tests for {total} mutants"
        if len(codes) < total:
            return f"{len(codes)} of {total}"
        left = sum(map(verdicts.needs_second_try, codes.values()))
        again = (
            files.read(staged_tree / files.SECOND_TRY)
            if (staged_tree / files.SECOND_TRY).exists()
            else {}
        )
        return f"{len(again)} of {left} tried again"

    def _tried(self, name: str, known: list[Equivalent]) -> list[dict[str, Any]]:
        staged_tree = self.folder / name
        mutants: list[dict[str, Any]] = files.read(staged_tree / files.MUTANTS)
        codes = files.exit_codes(staged_tree, (mutant["file"] for mutant in mutants))
        codes |= files.read(staged_tree / files.SECOND_TRY)
        return [_judged(_at_home(mutant), codes[mutant["name"]], known) for mutant in mutants]


def _at_home(mutant: dict[str, Any]) -> dict[str, Any]:
    """The mutant with its file's place in the user's tree, in the diff too."""
    file, home = mutant["file"], stage.home(mutant["file"])
    diff = mutant["diff"].replace(f"--- a/{file}\n+++ b/{file}\n", f"--- a/{home}\n+++ b/{home}\n")
    return mutant | {"file": home, "diff": diff}


def _judged(mutant: dict[str, Any], code: int, known: list[Equivalent]) -> dict[str, Any]:
    verdict = verdicts.verdict(code)
    if verdict is Verdict.SURVIVED and (reason := equivalents.reason(mutant, known)):
        return mutant | {"verdict": Verdict.EQUIVALENT, "reason": reason}
    return mutant | {"verdict": verdict}


def _states(futures: Mapping[str, Future[None]], progress: Callable[[str], str]) -> Iterator[str]:
    for name, future in futures.items():
        if future.running():
            yield f"{name}: {progress(name)}"
        elif future.done():
            yield f"{name}: done"


def _raise_first(futures: "Iterator[Future[None]] | Any") -> None:
    for future in futures:
        if future.done():
            future.result()


def _copy_output(process: subprocess.Popen[bytes], log: Path) -> None:
    """Writes down what a process says, until nobody can say more."""
    with log.open("wb") as file:
        for line in process.stdout or ():
            file.write(line)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The worker with all it has started: it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
