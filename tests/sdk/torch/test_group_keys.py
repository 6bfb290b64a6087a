"""The calls with which a group of gloo finds its members."""

from collections.abc import Sequence

import pytest
from edl.errors import RoundOver
from edl.torch.groups.keys import GroupKeys


class CountedKeys:
    """Keys in memory; `calls` are those made."""

    def __init__(self, **values: bytes) -> None:
        self.values = dict(values)
        self.calls: list[str] = []

    def set(self, key: str, value: bytes) -> None:
        """As in `RoundStore`."""
        self.calls.append("set")
        self.values[key] = value

    def get_all(self, keys: Sequence[str], timeout_s: float) -> dict[str, bytes]:
        """As in `RoundStore`."""
        self.calls.append("get_all")
        missing = [key for key in keys if key not in self.values]
        if missing:
            raise RoundOver(f"{missing[0]} was not set within {timeout_s:g} s")
        return {key: self.values[key] for key in keys}

    def get_present(self, keys: Sequence[str], wait_s: float) -> dict[str, bytes]:
        """As in `RoundStore`."""
        assert wait_s <= 10.0
        self.calls.append("get_present")
        return {key: self.values[key] for key in keys if key in self.values}

    def check(self, keys: Sequence[str]) -> bool:
        """As in `RoundStore`."""
        return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        """As in `RoundStore`."""
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])


def test_all_members_addresses_come_with_one_call() -> None:
    """However often each is waited for and read."""
    counted = CountedKeys(**{f"uuid/0/{rank}": bytes([rank]) for rank in range(1, 8)})
    keys = GroupKeys(counted, 8)
    keys.set("uuid/0/0", b"own")
    for rank in range(8):
        keys.wait([f"uuid/0/{rank}"])
        assert keys.get(f"uuid/0/{rank}") == (bytes([rank]) if rank else b"own")
        assert keys.check([f"uuid/0/{rank}"])
    assert counted.calls == ["set", "get_present"]


def test_a_member_that_is_late_is_waited_for_alone() -> None:
    """The others' keys are there meanwhile; if it never comes, the round is over."""
    counted = CountedKeys(**{"0/0": b"a"})
    keys = GroupKeys(counted, 3)
    assert keys.get("0/0") == b"a"
    with pytest.raises(RoundOver, match="0/1 was not set within 5 s"):
        keys.get("0/1", 5.0)
    counted.values["0/1"] = b"b"
    assert keys.get("0/1") == b"b"


@pytest.mark.parametrize("key", ["leader", "group/name", "group/7", "7"])
def test_keys_that_are_no_members_are_asked_for_alone(key: str) -> None:
    """Ranks behind the last one, and names."""
    counted = CountedKeys(**{key: b"value", "group/0": b"other"})
    keys = GroupKeys(counted, 3)
    assert keys.get(key) == b"value"
    del counted.values["group/0"]
    assert not keys.check(["group/0"])


def test_counters_are_added_to_at_the_master() -> None:
    """Their sums are not kept."""
    keys = GroupKeys(CountedKeys(), 3)
    assert [keys.add("count", 2), keys.add("count", 3)] == [2, 5]
