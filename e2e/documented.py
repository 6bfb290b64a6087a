"""The shell commands in documents, and the tests that run them (decision 0049). Pure.

A line before each block says it:

    <!-- run by: e2e/test_in_cluster.py -->       word by word, as the reader would
    <!-- like: e2e/test_in_cluster_chart.py -->   with other names, images or sizes
    <!-- not run: it needs Docker -->             by nothing, and why
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "sdk/README.md")),
)
"""Decisions are notes of their time: their commands are not for readers to type."""
_SHELLS = ("sh", "bash", "console", "shell")
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (run by|like|not run): (.+?) -->\n\s*\Z")


class Run(StrEnum):
    """The ways in which a block of commands is tested."""

    VERBATIM = "run by"
    ALIKE = "like"
    NEVER = "not run"
    UNSAID = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of shell commands.

    Attributes:
        page: Its page, below the root of the tree.
        line: Where it begins.
        text: The commands.
        run: Whether it is run.
        about: The test that runs it, or why none does.
    """

    page: str
    line: int
    text: str
    run: Run
    about: str

    @property
    def commands(self) -> list[str]:
        """Each command with its continuation lines, without empty lines and comments."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [
            line.strip() for line in joined if line.strip() and not line.strip().startswith("#")
        ]


def blocks(page: str, text: str) -> Iterator[Block]:
    """The blocks of shell commands of a page.

    Args:
        page: Its name.
        text: Its content.
    """
    for match in _FENCE.finditer(text):
        _, language, body = match.groups()
        if language in _SHELLS:
            before = text[: match.start()]
            mark = _MARK.search(before)
            run, about = (Run(mark[1]), mark[2]) if mark else (Run.UNSAID, "")
            yield Block(page, before.count("\n") + 1, body, run, about)


def all_blocks() -> Iterator[Block]:
    """The blocks of all pages."""
    for page in PAGES:
        yield from blocks(str(page.relative_to(ROOT)), page.read_text("utf-8"))


def run_by(test: str) -> list[Block]:
    """The blocks that a test has to run word by word.

    Args:
        test: Its file, below the root of the tree.
    """
    return [block for block in all_blocks() if (block.run, block.about) == (Run.VERBATIM, test)]
