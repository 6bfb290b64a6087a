"""The window that gathers the changes of a moment into one later round. Pure; time is passed in."""

WINDOW_S = 0.2
"""A round is proclaimed this long after the last change ..."""
MAX_WINDOW_S = 1.0
"""... and at most this long after the first."""
VOID_WINDOW_S = 0.1
"""The window where the round cannot continue, ..."""
SHORT_WINDOW_S = 0.05
"""... and where all remaining members wait for the next one, after a loss or as one of them left."""


class ChangeWindow:
    """Changes for which a later round is due."""

    def __init__(self) -> None:
        self._first_s = self._last_s = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether there is a change."""
        return self._first_s < float("inf")

    def note(self, now_s: float) -> None:
        """Notes a change."""
        self._first_s = now_s if not self.is_open else self._first_s
        self._last_s = now_s

    def close(self) -> None:
        """Forgets the changes: the newest round has them, or they have been undone."""
        self._first_s = self._last_s = float("inf")

    def end_s(self, window_s: float = WINDOW_S) -> float:
        """When the round with all changes is due; inf where there are none.

        Args:
            window_s: The time after the last change.
        """
        return min(self._last_s + window_s, self._first_s + MAX_WINDOW_S)
