"""Keys that the members of a round share, so that an engine can rendezvous without a port. Pure.

Keys are kept only in memory and end with their round. After a restart of the master they are lost, and
calls for them are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from master.membership import MemberId
from master.round import Round
from runtime.bounded_dict import BoundedDict
from runtime.call_checks import RefusedError

MAX_KEYS = 65_536
MAX_BYTES = 32 << 20
"""Limit of keys and values of one round in bytes; at most two rounds have keys."""
_KEY_BYTES = 100
"""Memory of a key besides its text and value."""
_MAX_DIGITS = 18
_MAX_ADDED = 64
"""Number of a member's newest calls that are recognised if repeated; a pod has fewer processes."""


@dataclass(slots=True)
class _Keys:
    """The keys of one round."""

    round: Round
    values: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    """Size in bytes, as `MAX_BYTES` counts them."""
    added: dict[MemberId, BoundedDict[int, int]] = field(default_factory=dict)
    """Member -> call number -> result, for the member's newest calls to `add`. All processes of a
    pod are one member."""

    def put(self, key: str, value: bytes) -> None:
        """Sets a key.

        Raises:
            RefusedError: 413, the round has too many keys or bytes.
        """
        before = self.values.get(key)
        grows = len(value) - len(before or b"")
        if before is None:
            grows += _size_of(key)
            if len(self.values) >= MAX_KEYS:
                raise RefusedError(413, f"a round has at most {MAX_KEYS} keys", "key")
        if grows > 0 and self.size + grows > MAX_BYTES:
            raise RefusedError(
                413, f"keys and values of a round have at most {MAX_BYTES} bytes", "value"
            )
        self.size += grows
        self.values[key] = value

    def drop(self, key: str) -> None:
        """Deletes a key, if it is set."""
        value = self.values.pop(key, None)
        if value is not None:
            self.size -= len(value) + _size_of(key)


def _size_of(key: str) -> int:
    """Returns the size of a key without its value, in bytes."""
    return len(key.encode(errors="surrogatepass")) + _KEY_BYTES


class RoundKeys:
    """The keys of the newest round, and, until that round has formed, of the round before."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Keys] = {}

    def update(self, newest: Round, void: int, *, inherited: bool) -> None:
        """Follows the rendezvous: adds the newest round, and drops the rounds that are over.

        Args:
            newest: The newest round.
            void: The newest round that cannot continue.
            inherited: Whether a previous master proclaimed the newest round.
        """
        if newest.number not in self._rounds and newest.number and not inherited:
            self._rounds[newest.number] = _Keys(newest)
        oldest = newest.number
        if not newest.formed:
            formed = (n for n, keys in self._rounds.items() if n < oldest and keys.round.formed)
            oldest = max(formed, default=0)
        for number in list(self._rounds):
            if number < newest.number and (number < oldest or number <= void):
                del self._rounds[number]

    def set(self, number: int, member_id: MemberId, key: str, value: bytes) -> None:
        """Sets a key.

        Args:
            number: The round.
            member_id: The caller.
            key: Its name.
            value: Its value.

        Raises:
            RefusedError: 409, the round is over or the caller is not in it; 413, the round has too
                many keys or bytes.
        """
        self._of(number, member_id).put(key, value)

    def delete(self, number: int, member_id: MemberId, keys: Sequence[str]) -> None:
        """Deletes keys, if they are set.

        Args:
            number: The round.
            member_id: The caller.
            keys: Their names.

        Raises:
            RefusedError: 409, the round is over, or the caller is not in it.
        """
        round_keys = self._of(number, member_id)
        for key in keys:
            round_keys.drop(key)

    def add(self, number: int, member_id: MemberId, key: str, amount: int, call: int) -> int:
        """Adds to a counter and returns the sum; a repeated call adds nothing.

        Args:
            number: The round.
            member_id: The caller.
            key: The counter's name.
            amount: The number to add.
            call: The number of the call, which identifies a repeated one.

        Raises:
            RefusedError: 409, the round is over, the caller is not in it, or the value is not a
                number; 413, the round has too many keys or bytes.
        """
        keys = self._of(number, member_id)
        results = keys.added.setdefault(member_id, BoundedDict(_MAX_ADDED))
        if call in results:
            return results[call]
        before = keys.values.get(key, b"0")
        if len(before) > _MAX_DIGITS or not before.removeprefix(b"-").isdigit():
            raise RefusedError(409, f"key: the value of {key!r:.80} is not a whole number", "key")
        total = int(before) + amount
        keys.put(key, str(total).encode())
        results[call] = total
        return total

    def get(self, number: int, member_id: MemberId, keys: Sequence[str]) -> dict[str, bytes]:
        """Returns the values of the keys that are set.

        Args:
            number: The round.
            member_id: The caller.
            keys: Their names.

        Raises:
            RefusedError: 409, the round is over, or the caller is not in it.
        """
        values = self._of(number, member_id).values
        return {key: values[key] for key in keys if key in values}

    def _of(self, number: int, member_id: MemberId) -> _Keys:
        keys = self._rounds.get(number)
        if keys is None:
            text = f"round {number} is over, or its keys were at a previous master: enter a later round"
            raise RefusedError(409, text, "round")
        if not keys.round.has(member_id):
            raise RefusedError(409, f"{member_id[0]} is not in round {number}", "round")
        return keys
