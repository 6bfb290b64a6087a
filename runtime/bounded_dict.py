"""A dict of the newest entries: what strangers can make many of must not grow for ever. Pure."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that forgets its oldest entry where one too many is set; setting one makes it the newest."""

    def __init__(self, max_entries: int) -> None:
        """Starts empty."""
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        """Sets an entry."""
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._max_entries:
            del self[next(iter(self))]
