"""Runs rooms in parallel, each in its own staged tree and processes."""

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
from typing import Any, Self

from bench.mutants import equivalents, files, sample, stage, verdicts
from bench.mutants.equivalents import Equivalent
from bench.mutants.rooms import Room
from bench.mutants.verdicts import Verdict

MIN_PER_ROOM = 25
"""The least number of mutants that are tried of each room."""
_LOG_LINES = 40
_POLL_S = 2.0
"""The interval of progress updates."""
_TRIES = 2
"""Attempts per room: its tests must pass without a mutant first."""


class RoomError(RuntimeError):
    """A room's mutants could not be tried; the message ends with its process's output."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the mutants of one room."""

    mutants: int
    """The number of all its mutants."""
    tried: list[dict[str, Any]]
    """The sampled ones: description, `verdict`, and `reason` if they are equivalent."""

    @property
    def count(self) -> verdicts.VerdictCounts:
        """The verdicts, counted."""
        return verdicts.VerdictCounts.of(Verdict(mutant["verdict"]) for mutant in self.tried)


@dataclass(slots=True)
class Run:
    """A run over some rooms."""

    root: Path
    """The user's tree, which is not modified."""
    folder: Path
    """The folder of the staged trees."""
    rooms: Mapping[str, Room]
    report_progress: Callable[[str], None]
    """Receives progress messages."""
    workers: int
    """The number of processes that test mutants at once."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rooms that could not be tried, with the reason; the others continue."""
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _temporary: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="edl-mutants-")
    )
    _over: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs, and removes temporary files."""
        self._end()
        self._temporary.cleanup()

    def choose(self, seed: int, count: int) -> None:
        """Stages the rooms, and chooses a sample of their mutants.

        Raises:
            RoomError: The mutants of a room cannot be listed.
            LookupError: See `bench.mutants.stage`.
        """
        self._run_in_rooms(self._list, lambda _name: "counts its mutants")
        candidates = {name: self._candidates(name) for name in self.rooms}
        totals = {name: len(numbers) for name, numbers in candidates.items()}
        for name, share in sample.shares(totals, count, MIN_PER_ROOM).items():
            self._choose(name, sample.pick(candidates[name], share, seed, name))

    def outcomes(self) -> dict[str, Outcome]:
        """Tries the chosen mutants; returns the outcomes of rooms that have not `failed`.

        Those that have a result of an interrupted run are not tried again.
        """
        listed = equivalents.load()
        self._run_in_rooms(self._try, self._progress)
        tried = {name: self._tried(name, listed) for name in self.rooms if name not in self.failed}
        return {name: Outcome(len(self._candidates(name)), tried[name]) for name in tried}

    def _run_in_rooms(self, work: Callable[[str], None], progress: Callable[[str], str]) -> None:
        """Runs `work` for all rooms, with one thread per worker."""
        with ThreadPoolExecutor(self.workers) as pool:
            futures = {name: pool.submit(work, name) for name in self.rooms}
            try:
                while any(not future.done() for future in futures.values()):
                    wait(futures.values(), timeout=_POLL_S)
                    self.report_progress("; ".join(_states(futures, progress)))
                    _raise_first(futures.values())
            except BaseException:
                self._end()  # or the pool waits for all of them
                raise

    def _list(self, name: str) -> None:
        stage.stage(self.root, self.folder / name, self.rooms[name])
        self._work(name, "list")

    def _try(self, name: str) -> None:
        """Runs a room, again if its tests fail without a mutant: the machine may be slow."""
        sampled = {room: self._sampled(room) for room in self.rooms}
        shares = sample.shares(sampled, self.workers, 1)
        for _ in range(_TRIES):
            try:
                self._work(name, "run", str(max(1, shares[name])))
            except RoomError as error:
                self.failed[name] = str(error)
            else:
                self.failed.pop(name, None)
                return

    def _work(self, name: str, *step: str) -> None:
        """Runs one step of `bench.mutants.worker`; kills its remaining processes."""
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
                stdout=subprocess.PIPE,  # not a file: tests limit the size of files
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
        """The environment: child processes import the staged tree; BLAS uses one thread."""
        return os.environ | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(staged_tree / files.OUTPUT),
            "TMPDIR": self._temporary.name,
        }

    def _end(self) -> None:
        """Kills all processes, and prevents new ones."""
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

    def _sampled(self, name: str) -> int:
        chosen: dict[str, list[int]] = files.read(self.folder / name / files.SAMPLE)
        return sum(map(len, chosen.values()))

    def _progress(self, name: str) -> str:
        staged_tree = self.folder / name
        codes = files.exit_codes(staged_tree, files.read(staged_tree / files.SAMPLE))
        total = self._sampled(name)
        if not codes:
            return f"measures its tests for {total} mutants"
        if len(codes) < total:
            return f"{len(codes)} of {total}"
        second_tries = sum(map(verdicts.needs_second_try, codes.values()))
        again = (
            files.read(staged_tree / files.SECOND_TRY)
            if (staged_tree / files.SECOND_TRY).exists()
            else {}
        )
        return f"{len(again)} of {second_tries} tried again"

    def _tried(self, name: str, listed: list[Equivalent]) -> list[dict[str, Any]]:
        staged_tree = self.folder / name
        mutants: list[dict[str, Any]] = files.read(staged_tree / files.MUTANTS)
        codes = files.exit_codes(staged_tree, (mutant["file"] for mutant in mutants))
        codes |= files.read(staged_tree / files.SECOND_TRY)
        return [_judged(_at_home(mutant), codes[mutant["name"]], listed) for mutant in mutants]


def _at_home(mutant: dict[str, Any]) -> dict[str, Any]:
    """The mutant with its path in the user's tree, in the diff too."""
    file, home = mutant["file"], stage.home(mutant["file"])
    diff = mutant["diff"].replace(f"--- a/{file}\n+++ b/{file}\n", f"--- a/{home}\n+++ b/{home}\n")
    return mutant | {"file": home, "diff": diff}


def _judged(mutant: dict[str, Any], code: int, listed: list[Equivalent]) -> dict[str, Any]:
    verdict = verdicts.verdict(code)
    if verdict is Verdict.SURVIVED and (reason := equivalents.reason(mutant, listed)):
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
    """Copies a process's output to a file until all writers have closed the pipe."""
    with log.open("wb") as file:
        for line in process.stdout or ():
            file.write(line)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the worker and its children, which share its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
