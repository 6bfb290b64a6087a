"""Commands of the components in this process: a start of Python takes a second of every test."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Completed:
    """What a command that has ended left."""

    returncode: int
    stdout: str
    stderr: str


class Commands:
    """Runs commands that end by themselves, without this process's EDL variables."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture

    def run(
        self, main: Callable[[Sequence[str]], int | None], *arguments: str, **variables: str
    ) -> Completed:
        """Runs the `main` of a component with these arguments and environment variables."""
        for name in [name for name in os.environ if name.startswith("EDL_")]:
            self._patch.delenv(name)
        for name, value in variables.items():
            self._patch.setenv(name, value)
        self._capture.readouterr()
        try:
            code = main(arguments) or 0
        except SystemExit as end:
            code = int(end.code or 0)
        texts = self._capture.readouterr()
        return Completed(code, texts.out, texts.err)


@contextmanager
def own_root_logger() -> Iterator[None]:
    """Restores the root logger, which a command configures."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
