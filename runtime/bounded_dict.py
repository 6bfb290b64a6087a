"""A dict with a maximum size, for entries that untrusted callers can create. Pure."""

from typing import TypeVar

from typing_extensions import override

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that removes its oldest entry when it is full; setting a key makes its entry the newest."""

    def __init__(self, max_entries: int) -> None:
        """Starts empty."""
        super().__init__()
        self._max_entries = max_entries

    @override
    def __setitem__(self, key: K, value: V) -> None:
        """Sets an entry."""
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._max_entries:
            del self[next(iter(self))]
