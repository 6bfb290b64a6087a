"""A rank's report to its parent, which survives a hang or kill."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.gpu.cell import replace_json


class Report:
    """The figures of one rank, and the step that it is at."""

    def __init__(self, path: Path) -> None:
        """Writes nothing yet."""
        self._path = path
        self.figures: dict[str, float] = {}
        self.step = "start"
        self.error: str | None = None
        self.done = False

    @classmethod
    def read(cls, path: Path) -> Report:
        """Returns what a rank has written so far."""
        report = cls(path)
        if path.exists():
            written = json.loads(path.read_text(encoding="utf-8"))
            report.figures, report.step = written["figures"], written["step"]
            report.error, report.done = written["error"], written["done"]
        return report

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Measures a step as the figure `<step>_s`."""
        self.come_to(step)
        begun_s = time.monotonic()
        yield
        self.figures[f"{step}_s"] = time.monotonic() - begun_s
        self.come_to(f"the end of {step}")

    def come_to(self, step: str) -> None:
        """Says what the rank does from now on."""
        self.step = step
        self.write()

    def finish(self) -> None:
        """Says that the rank has played to the end."""
        self.done = True
        self.write()

    def fail(self, error: BaseException) -> None:
        """Says why the rank has failed, in one line."""
        self.error = " ".join(f"{type(error).__name__}: {error}".split())
        self.write()

    def write(self) -> None:
        """Replaces what was written before."""
        own = {"figures": self.figures, "step": self.step, "error": self.error, "done": self.done}
        replace_json(self._path, own)
