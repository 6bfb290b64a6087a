"""Plays parts of a cell: starts ranks on one card, loses one, has the others go on.

The parent knows of the fault and sends the news 0.2 s later.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from e2e.gpu.nccl.options import GO, NEWS, PORT_FILE, Options, key
from e2e.gpu.nccl.processes import RANK_PROGRAM, RankProcess

NEWS_S = 0.2
"""From the fault to the news."""
_STUCK_S = 0.1
"""From the start of the lost sum to the fault: the kernels of the sum run by then."""
_SERVER = timedelta(seconds=40)
_GRACE_S = 2.0
"""For the other ranks, once one has failed."""
_POLL_S = 0.005
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - NCCL's own place for its segments
_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Part:
    """Ranks that play one program once."""

    way: str
    """A name in `e2e.gpu.nccl.ways.WAYS`."""
    ranks: int
    """Of the first group."""
    fault: str = ""
    """"kill" or "freeze": what happens to the last rank. Without a fault the ranks overlap."""
    program: str = RANK_PROGRAM
    """The module that a rank runs."""

    @property
    def name(self) -> str:
        """Starts the names of its figures and files."""
        return f"{self.way}_{self.ranks}_{self.fault or 'overlap'}".replace("-", "_")


@dataclass(slots=True)
class Outcome:
    """The result of a part."""

    part: Part
    figures: dict[str, float] = field(default_factory=dict)
    """By name, the largest of all ranks that are not lost."""
    failures: list[str] = field(default_factory=list)
    formed: bool = False
    """Whether all ranks formed the first group."""

    def named(self) -> dict[str, float]:
        """Returns the figures, each with the name of the part before its own."""
        return {f"{self.part.name}_{name}": round(of, 5) for name, of in self.figures.items()}

    def failure(self) -> str:
        """Returns all failures in one line."""
        return f"{self.part.name}: {'; '.join(self.failures)}"


class Session(AbstractContextManager["Session"]):
    """The processes of a cell. All are started at once, since each imports torch for seconds."""

    def __init__(
        self, parts: Sequence[Part], folder: Path, device: str, *, limit_s: float, part_s: float
    ) -> None:
        """Starts nothing yet.

        Args:
            parts: In the order in which they will be played.
            folder: For logs, reports and temporary files.
            device: Of torch: "cuda" or "cpu".
            limit_s: For all parts and the start of the processes.
            part_s: For one part, from the formation of its first group.
        """
        self._parts, self._folder, self._device = parts, folder.resolve(), device
        self._part_s, self._limit_s = part_s, limit_s
        self._until_s = 0.0
        self._processes: dict[Part, list[RankProcess]] = {}
        self._server: Any = None
        self._segments: set[Path] = set()

    def __enter__(self) -> Self:
        self._segments = _segments()
        self._until_s = time.monotonic() + self._limit_s
        try:
            for part in self._parts:
                for rank in range(part.ranks + bool(part.fault)):
                    self._start(part, rank)
            self._serve()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def versions(self) -> dict[str, str]:
        """Returns the versions of torch and, on a card, of NCCL."""
        import torch  # noqa: PLC0415 - as in `_serve`

        versions = {"torch": str(torch.__version__)}
        if self._device == "cuda":
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return versions

    def play(self, part: Part) -> Outcome:
        """Plays a part to its end or its limit; none of its processes is left."""
        outcome = Outcome(part)
        if time.monotonic() > self._until_s:
            outcome.failures.append(f"not played: the {self._limit_s:g} s of the cell are over")
            return outcome
        game = _Game(part, self._processes[part], self._store(part), outcome)
        try:
            game.play(self._until_s, self._part_s)
        finally:
            game.end()
        game.collect()
        return outcome

    def _start(self, part: Part, rank: int) -> None:
        options = Options(
            program="change" if part.fault else "overlap",
            way=part.way,
            part=part.name,
            rank=rank,
            ranks=part.ranks,
            device=self._device,
            folder=str(self._folder),
        )
        self._processes.setdefault(part, []).append(RankProcess(options, part.program))

    def _serve(self) -> None:
        import torch.distributed as dist  # noqa: PLC0415 - while the ranks import it, too

        self._server = dist.TCPStore(
            "127.0.0.1",
            0,
            is_master=True,
            wait_for_workers=False,
            timeout=_SERVER,
        )
        temporary = self._folder / f"{PORT_FILE}.new"
        temporary.write_text(str(self._server.port), encoding="utf-8")
        temporary.rename(self._folder / PORT_FILE)

    def _store(self, part: Part) -> Any:
        import torch.distributed as dist  # noqa: PLC0415 - as above

        return dist.PrefixStore(part.name, self._server)

    def _end(self) -> None:
        for process in (process for ranks in self._processes.values() for process in ranks):
            process.end()
        self._server = None
        for segment in _segments() - self._segments:
            segment.unlink(missing_ok=True)


class _Game:
    """One part as it is played."""

    def __init__(
        self, part: Part, processes: list[RankProcess], store: Any, outcome: Outcome
    ) -> None:
        self._part, self._store, self._outcome = part, store, outcome
        self._all = self._watched = processes
        self._victim = processes[part.ranks - 1] if part.fault else None

    def play(self, until_s: float, part_s: float) -> None:
        """Plays to the end, or until a rank fails or time is up."""
        if not self._await_keys("ready", self._all, until_s):
            return
        until_s = min(until_s, time.monotonic() + part_s)
        self._store.set(GO, "1")
        if self._victim is not None:
            if not self._await_keys("begun", self._all[: self._part.ranks], until_s):
                return
            time.sleep(_STUCK_S)
            self._watched = [process for process in self._all if process is not self._victim]
            self._victim.send(_SIGNALS[self._part.fault])
            time.sleep(NEWS_S)
            self._store.set(NEWS, str(time.monotonic()))
        self._await(lambda: all(process.exit_code() == 0 for process in self._watched), until_s)

    def end(self) -> None:
        """Ends what still runs: a rank that hangs prints its stacks before."""
        failed = [process for process in self._watched if _failed(process)]
        hung = [process for process in self._watched if process.exit_code() is None]
        steps = {process.report().step for process in failed + hung}
        failures = [_failure(process) for process in failed]
        failures += [_end_hung(process) for process in hung]
        if self._victim is not None:
            self._victim.end()
        reports = [process.report() for process in self._all[: self._part.ranks]]
        self._outcome.formed = all("form_first_s" in report.figures for report in reports)
        if failures and not self._outcome.formed and "form_first" in steps:
            warnings = [found for process in self._all if (found := process.warnings())]
            said = warnings[0] if warnings else "no warning of NCCL"
            cause = f"no group of {self._part.ranks} ranks formed on one device ({said})"
            failures.insert(0, cause)
        self._outcome.failures += failures

    def collect(self) -> None:
        """Takes the figures from the reports of the ranks that were not lost."""
        figures = self._outcome.figures
        for process in self._watched:
            for name, figure in process.report().figures.items():
                figures[name] = max(figures.get(name, figure), figure)

    def _await_keys(self, step: str, processes: list[RankProcess], until_s: float) -> bool:
        keys = [key(step, process.rank) for process in processes]
        return self._await(lambda: bool(self._store.check(keys)), until_s)

    def _await(self, holds: Callable[[], bool], until_s: float) -> bool:
        """Waits until something holds, or a rank has failed and others had time, or time is up."""
        while not holds():
            if any(_failed(process) for process in self._watched):
                until_s = min(until_s, time.monotonic() + _GRACE_S)
            if time.monotonic() > until_s:
                return False
            time.sleep(_POLL_S)
        return True


def _failed(process: RankProcess) -> bool:
    """Returns whether a rank has ended otherwise than by playing to the end."""
    code = process.exit_code()
    return code is not None and not (code == 0 and process.report().done)


def _failure(process: RankProcess) -> str:
    report = process.report()
    why = report.error or f"it ended by itself with exit code {process.exit_code()}"
    return f"rank {process.rank} failed at {report.step}: {why}"


def _end_hung(process: RankProcess) -> str:
    """Ends a rank that hangs; returns what to say of it."""
    step = process.report().step
    ended = process.end(stacks=True)
    place = process.innermost()
    return (
        f"rank {process.rank} hung at {step}"
        + (f", in {place}" if place else "")
        + ("" if ended else ", and SIGKILL does not end it")
    )


def _segments() -> set[Path]:
    return set(_SHARED_MEMORY.glob("nccl-*"))
