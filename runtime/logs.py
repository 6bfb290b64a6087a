"""Logs: a constant lower-case phrase and keys, one line each, on stderr.

    log.info("pod changed", extra=keys(pod="training/a-0", reason="surplus"))

Keys are `pod`, `node`, `job`, `reason`, `duration_s` and the like. Secrets never are. `keys`
lets them have any name; a plain `extra={...}` works too where no name is one of logging's own.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

_KEYS = "edl_keys"
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", _KEYS}
"""Attributes that every record has; all others are keys."""


def keys(**values: object) -> dict[str, object]:
    """What `extra=` of a log call takes, so that keys cannot collide with logging's own."""
    return {_KEYS: values}


def setup(room: str, *, level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends everything that is logged to `stream` (stderr by default).

    Args:
        room: Shown on every JSON line.
        level: Least urgent level, lower case.
        form: "json", "text", or "auto": text on a terminal, JSON otherwise.
        stream: Where to; stderr if None.
    """
    target = sys.stderr if stream is None else stream
    text = form == "text" or (form == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if text else JsonFormatter(room))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, room, message, keys, and where there is one, the error."""

    def __init__(self, room: str) -> None:
        super().__init__()
        self._room = room

    def format(self, record: logging.LogRecord) -> str:
        """The line for `record`; values JSON does not know are shown as text."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": self._room,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in _keys(record).items() if key not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = one_line(record.exc_info[1])
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(logging.Formatter):
    """`12:00:01 info pod changed pod=training/a-0`, with the trace below where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The text for `record`."""
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        parts = [when, record.levelname.lower(), record.getMessage()]
        parts += [f"{key}={value}" for key, value in _keys(record).items()]
        line = " ".join(" ".join(parts).split())
        if record.exc_info and record.exc_info[1] is not None:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def one_line(error: BaseException) -> str:
    """`Type: text` on one line, without a trace."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _keys(record: logging.LogRecord) -> dict[str, object]:
    found = {name: value for name, value in vars(record).items() if name not in _OWN}
    return found | getattr(record, _KEYS, {})
