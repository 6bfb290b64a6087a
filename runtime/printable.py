"""Makes text from untrusted sources safe to print on a terminal. Pure."""

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs")
"""Unicode categories: control characters, formatting characters, surrogates."""


def printable(text: object) -> str:
    """Returns the text on one line, with control and formatting characters replaced by `?`."""
    return _visible(" ".join(str(text).split()))


def printable_lines(text: str, indent: str) -> str:
    """Returns the lines of a text, indented, with the same characters replaced as in `printable`; keeps spaces."""
    return "\n".join(indent + _visible(line) for line in text.splitlines())


def _visible(text: str) -> str:
    return "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in text)
