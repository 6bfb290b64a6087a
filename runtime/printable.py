"""Texts of strangers as commands and logs print them: without what a terminal would obey. Pure."""

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs")
"""Categories of control and formatting characters, and of halves of surrogate pairs."""


def printable(text: object) -> str:
    """The text on one line, with control and formatting characters replaced by `?`."""
    return _visible(" ".join(str(text).split()))


def printable_lines(text: str, indent: str) -> str:
    """The same of each line, indented, with the spaces in it as they are."""
    return "\n".join(indent + _visible(line) for line in text.splitlines())


def _visible(text: str) -> str:
    return "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in text)
