"""Structured logs: one line per record on stderr, with a constant lower-case message and keys.

    log.info("pod changed", extra=keys(pod="training/a-0", reason="surplus"))

Typical keys are `pod`, `node`, `job`, `reason` and `duration_s`; never log secrets. With `keys`, any name is
allowed; a plain `extra={...}` fails if a name is an attribute of LogRecord.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson
from typing_extensions import override

from runtime.printable import printable, printable_lines

_KEYS = "edl_keys"
_INDENT = "  "
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", _KEYS}
"""Attributes of every LogRecord; other attributes are keys."""


def keys(**values: object) -> dict[str, object]:
    """Wraps keys for `extra=` of a log call, so that they cannot collide with LogRecord's."""
    return {_KEYS: values}


def setup(component: str, *, level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends all log records to `stream` (stderr by default).

    Args:
        component: The name of the process; the field `component` of every JSON line.
        level: The lowest level that is logged, lower case.
        form: "json", "text", or "auto": text on a terminal, JSON otherwise.
        stream: The output; stderr if None.
    """
    target = sys.stderr if stream is None else stream
    text = form == "text" or (form == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if text else JsonFormatter(component))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class JsonFormatter(logging.Formatter):
    """Formats records as JSON lines: time, level, component, message, keys, and the error if any."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Formats one record; values of other types than JSON's are converted to text."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "component": self._component,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in _keys(record).items() if key not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = one_line(record.exc_info[1])
            line["trace"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # surrogates, and integers of more than 64 bits
            return json.dumps(line, default=str, skipkeys=True)


class TextFormatter(logging.Formatter):
    """Formats records as text such as `12:00:01 info pod changed pod=training/a-0`, followed by the trace.

    Errors may quote text from untrusted sources, so control characters are replaced, and the lines of a trace are indented.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Formats one record."""
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        parts = [when, record.levelname.lower(), record.getMessage()]
        parts += [f"{key}={value}" for key, value in _keys(record).items()]
        line = printable(" ".join(parts))
        if record.exc_info and record.exc_info[1] is not None:
            line += f"\n{printable_lines(self.formatException(record.exc_info), _INDENT)}"
        return line


def one_line(error: BaseException) -> str:
    """Formats an error as `Type: text` on one line, without a trace."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _keys(record: logging.LogRecord) -> dict[str, object]:
    extras = {name: value for name, value in vars(record).items() if name not in _OWN}
    return extras | getattr(record, _KEYS, {})
