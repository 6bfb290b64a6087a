"""Texts of strangers as commands print them: without what a terminal would obey. Pure."""

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs")
"""Categories of control and formatting characters, and of halves of surrogate pairs."""


def printable(text: object) -> str:
    """The text on one line, with control and formatting characters replaced by `?`."""
    words = " ".join(str(text).split())
    return "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in words)
