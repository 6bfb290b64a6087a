"""What to say when a user's code raises: his part of the traceback, and one line."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from edl.model.errors import ModelError, OutOfMemory, UserCodeError

_MOST_TEXT = 300
_FRAMEWORK_TRACE = re.compile(
    r"\A\s*-{10,}\s*C\+\+ Traceback.*?Error Message Summary:\s*-{4,}", re.DOTALL
)
"""What PaddlePaddle may put before what went wrong."""
_FRAMEWORK_PLACE = re.compile(r"\s*\(at \S+:\d+\)")
"""What it may put behind: a place in its own source."""
_NO_MEMORY = ("ResourceExhausted", "bad_alloc", "out of memory", "Unable to allocate")
_EXTRAS = ("paddle", "numpy")
"""Of this distribution; named like the modules they bring."""


def user_error(path: Path, what: str, error: BaseException) -> ModelError:
    """An error of the user's code, or that he asked for too much memory.

    Args:
        path: His file.
        what: What failed, and when; the line begins with it.
        error: What it raised.
    """
    if no_memory(error):
        return OutOfMemory(f"{what}: out of memory ({short(error)})")
    return UserCodeError(f"{what}: {short(error)}{_way_out(error)}", trace(path, error))


def no_memory(error: BaseException) -> bool:
    """Whether memory was too small, as Python, numpy and PaddlePaddle say it."""
    if isinstance(error, MemoryError):
        return True
    named = isinstance(error, (RuntimeError, SystemError, OSError))
    return named and any(sign in str(error) for sign in _NO_MEMORY)


def short(error: BaseException) -> str:
    """One line, and no more of it than can be read."""
    text = _FRAMEWORK_PLACE.sub("", _FRAMEWORK_TRACE.sub("", str(error)))
    line = " ".join(f"{type(error).__name__}: {text}".split()).rstrip(": ")
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]} ..."


def trace(path: Path, error: BaseException) -> str:
    """The traceback from the first to the last line that is in the user's file or beside it."""
    home = path.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = [i for i, frame in enumerate(frames) if own(home, frame.filename)]
    kept = frames[ours[0] : ours[-1] + 1] if ours else []
    listed = "".join(traceback.format_list(kept))
    return f"Traceback (in {path}):\n{listed}{short(error)}" if kept else short(error)


def own(home: Path, file: str) -> bool:
    """Whether a file is in the user's folder; installed packages below it do not count."""
    place = Path(file).resolve()
    return home in place.parents and "site-packages" not in place.parts


def _way_out(error: BaseException) -> str:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return f"; install it with pip install 'edl-sdk[{name}]'" if name in _EXTRAS else ""
