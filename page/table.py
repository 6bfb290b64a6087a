"""Tables that streams follow: each row has the version of its newest change, so a reader keeps only one number.

A reader that is slow skips what was in between, and nothing waits for it. Thread-safe.
"""

import threading
from collections import deque
from dataclasses import dataclass
from itertools import takewhile

_KEPT_DELETIONS = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """A row as streams send it."""

    version: int
    namespace: str
    text: bytes
    """JSON for whoever sees the namespace."""
    full_text: bytes = b""
    """The same for whoever sees the whole cluster; "" where it does not differ."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of a table since a version."""

    rows: list[tuple[str, Row]]
    """(key, row), the oldest change first."""
    dropped: list[tuple[str, str]]
    """(key, namespace) of rows that are gone."""


class RowTable:
    """The rows of one kind, in order of their changes."""

    def __init__(self, kept_deletions: int = _KEPT_DELETIONS) -> None:
        """An empty table that can tell so many deletions to readers."""
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._gone: deque[tuple[int, str, str]] = deque()
        self._kept_deletions = kept_deletions
        self._floor = 0
        """Readers from before this version have to begin again."""

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Row | None:
        """One row."""
        return self._rows.get(key)

    def put(self, key: str, row: Row) -> bool:
        """Adds or replaces a row; False where nothing changes."""
        with self._lock:
            old = self._rows.get(key)
            if old is not None and (old.text, old.full_text) == (row.text, row.full_text):
                return False
            self._rows.pop(key, None)  # so that the newest change is last
            self._rows[key] = row
            return True

    def drop(self, key: str, version: int) -> bool:
        """Removes a row; False where there is none."""
        with self._lock:
            old = self._rows.pop(key, None)
            if old is None:
                return False
            self._gone.append((version, key, old.namespace))
            if len(self._gone) > self._kept_deletions:
                self._floor = max(self._floor, self._gone.popleft()[0])
            return True

    def drop_oldest(self, keep: int, version: int) -> None:
        """Removes the rows that have not changed for longest."""
        for key in list(self._rows)[: max(0, len(self._rows) - keep)]:
            self.drop(key, version)

    def clear(self, version: int) -> None:
        """Removes all rows; every reader begins again."""
        with self._lock:
            self._rows.clear()
            self._gone.clear()
            self._floor = version

    def all(self) -> list[tuple[str, Row]]:
        """All rows with their keys."""
        with self._lock:
            return list(self._rows.items())

    def since(self, version: int) -> Delta | None:
        """What has changed after a version; None where the reader has to begin again."""
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
