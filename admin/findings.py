"""What the admin's commands find, as lines of text. Pure."""

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
    """One line of a report: the text of what is not OK says what helps."""

    level: Level
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """A finding that asks for nothing."""
    return Finding(Level.OK, subject, text)


def note(subject: str, text: str) -> Finding:
    """A finding to know of."""
    return Finding(Level.NOTE, subject, text)


def warning(subject: str, text: str) -> Finding:
    """A finding to look at."""
    return Finding(Level.WARNING, subject, text)


def error(subject: str, text: str) -> Finding:
    """A finding that keeps EDL from working."""
    return Finding(Level.ERROR, subject, text)


def report(findings: Iterable[Finding]) -> str:
    """One line for each finding, and no line or terminal broken by what others wrote."""
    return "\n".join(
        f"{finding.level:8}{printable(finding.subject)}: {printable(finding.text)}"
        for finding in findings
    )


def failed(findings: Iterable[Finding]) -> bool:
    """Whether there is an error among them."""
    return any(finding.level is Level.ERROR for finding in findings)
