"""The findings of the admin's commands, as lines of text. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from runtime.printable import printable


class Level(StrEnum):
    """The severity of a finding; only an ERROR makes a command fail."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report; unless its level is OK, the text says how to fix the problem."""

    level: Level
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """Returns a finding that needs no action."""
    return Finding(Level.OK, subject, text)


def note(subject: str, text: str) -> Finding:
    """Returns a finding for information."""
    return Finding(Level.NOTE, subject, text)


def warning(subject: str, text: str) -> Finding:
    """Returns a finding that should be examined."""
    return Finding(Level.WARNING, subject, text)


def error(subject: str, text: str) -> Finding:
    """Returns a finding that prevents EDL from working."""
    return Finding(Level.ERROR, subject, text)


def report(findings: Iterable[Finding]) -> str:
    """Returns one line for each finding, with control characters from other users' texts removed."""
    return "\n".join(
        f"{finding.level:8}{printable(finding.subject)}: {printable(finding.text)}"
        for finding in findings
    )


def failed(findings: Iterable[Finding]) -> bool:
    """Returns whether any finding is an error."""
    return any(finding.level is Level.ERROR for finding in findings)
