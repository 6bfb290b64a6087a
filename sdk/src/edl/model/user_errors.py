"""Converts exceptions in user code to a one-line summary and the user's part of the traceback."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from edl.model.errors import ModelError, OutOfMemory, UserCodeError

_MAX_TEXT = 300
_FRAMEWORK_TRACE = re.compile(
    r"\A\s*-{10,}\s*C\+\+ Traceback.*?Error Message Summary:\s*-{4,}", re.DOTALL
)
"""Prefix of PaddlePaddle's error messages: a C++ traceback."""
_FRAMEWORK_PLACE = re.compile(r"\s*\(at \S+:\d+\)")
"""Suffix of PaddlePaddle's error messages: a file and line in its source."""
_MEMORY_ERRORS = (
    "ResourceExhausted",
    "bad_alloc",
    "out of memory",
    "Unable to allocate",
    "can't allocate",
)
_EXTRAS = ("paddle", "numpy", "torch")
"""This distribution's extras whose names are also the names of the modules that they install."""


def wrap_user_error(path: Path, failure: str, error: BaseException) -> ModelError:
    """Returns the error to raise for an exception in user code.

    It is an OutOfMemory if memory ran out, otherwise a UserCodeError.

    Args:
        path: The user's file.
        failure: The start of the message, which says what failed and when.
        error: The exception.
    """
    if is_out_of_memory(error):
        return OutOfMemory(f"{failure}: out of memory ({summary(error)})")
    return UserCodeError(
        f"{failure}: {summary(error)}{_install_hint(error)}", user_traceback(path, error)
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error from Python, numpy, PaddlePaddle or torch means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    named = isinstance(error, (RuntimeError, SystemError, OSError))
    return named and any(sign in str(error) for sign in _MEMORY_ERRORS)


def summary(error: BaseException) -> str:
    """Returns the type and the text of an error in one line of limited length."""
    text = _FRAMEWORK_PLACE.sub("", _FRAMEWORK_TRACE.sub("", str(error)))
    line = " ".join(f"{type(error).__name__}: {text}".split()).rstrip(": ")
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]} ..."


def user_traceback(path: Path, error: BaseException) -> str:
    """Returns the traceback from the first to the last frame in the user's folder."""
    folder = path.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = [i for i, frame in enumerate(frames) if is_user_file(folder, frame.filename)]
    user_frames = frames[ours[0] : ours[-1] + 1] if ours else []
    frames_text = "".join(traceback.format_list(user_frames))
    return (
        f"Traceback (in {path}):\n{frames_text}{summary(error)}" if user_frames else summary(error)
    )


def is_user_file(folder: Path, file: str) -> bool:
    """Returns whether a file is in the user's folder and not in an installed package."""
    file_path = Path(file).resolve()
    return folder in file_path.parents and "site-packages" not in file_path.parts


def _install_hint(error: BaseException) -> str:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return f"; install it with pip install 'edl-sdk[{name}]'" if name in _EXTRAS else ""
