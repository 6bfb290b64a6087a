"""Tables for streams: each row has the version of its last change, so a reader only keeps one number.

A slow reader skips intermediate states, and nothing waits for it. Thread-safe.
"""

import threading
from collections import deque
from dataclasses import dataclass
from itertools import takewhile

_KEPT_DELETIONS = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """A row in the form that streams send."""

    version: int
    namespace: str
    text: bytes
    """JSON for readers who see only the row's namespace."""
    full_text: bytes = b""
    """JSON for readers who see the whole cluster; "" if it is equal to `text`."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of a table since a version."""

    rows: list[tuple[str, Row]]
    """(key, row), the oldest change first."""
    dropped: list[tuple[str, str]]
    """(key, namespace) of deleted rows."""


class RowTable:
    """The rows of one kind, in order of their changes."""

    def __init__(self, kept_deletions: int = _KEPT_DELETIONS) -> None:
        """Initializes an empty table that remembers `kept_deletions` deleted rows for readers."""
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._gone: deque[tuple[int, str, str]] = deque()
        self._kept_deletions = kept_deletions
        self._floor = 0
        """Readers with an older version have to start over."""

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Row | None:
        """Returns one row."""
        return self._rows.get(key)

    def put(self, key: str, row: Row) -> bool:
        """Adds or replaces a row; returns whether it has changed."""
        with self._lock:
            old = self._rows.get(key)
            if old is not None and (old.text, old.full_text) == (row.text, row.full_text):
                return False
            self._rows.pop(key, None)  # moves the row to the end, after older changes
            self._rows[key] = row
            return True

    def drop(self, key: str, version: int) -> bool:
        """Removes a row; returns whether it existed."""
        with self._lock:
            old = self._rows.pop(key, None)
            if old is None:
                return False
            self._gone.append((version, key, old.namespace))
            if len(self._gone) > self._kept_deletions:
                self._floor = max(self._floor, self._gone.popleft()[0])
            return True

    def drop_oldest(self, keep: int, version: int) -> None:
        """Removes the rows that have been unchanged the longest, except for `keep` rows."""
        for key in list(self._rows)[: max(0, len(self._rows) - keep)]:
            self.drop(key, version)

    def clear(self, version: int) -> None:
        """Removes all rows; every reader starts over."""
        with self._lock:
            self._rows.clear()
            self._gone.clear()
            self._floor = version

    def all(self) -> list[tuple[str, Row]]:
        """Returns all rows with their keys."""
        with self._lock:
            return list(self._rows.items())

    def since(self, version: int) -> Delta | None:
        """Returns the changes after a version, or None if the reader has to start over."""
        with self._lock:
            if version < self._floor:
                return None
            rows = []
            for key in reversed(self._rows):
                row = self._rows[key]
                if row.version <= version:
                    break
                rows.append((key, row))
            newly_dropped = takewhile(lambda deletion: deletion[0] > version, reversed(self._gone))
            dropped = [(key, name) for _, key, name in newly_dropped if key not in self._rows]
        return Delta(rows[::-1], dropped)
