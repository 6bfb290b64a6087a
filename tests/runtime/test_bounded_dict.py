from runtime.bounded_dict import BoundedDict


def test_the_oldest_entry_is_forgotten() -> None:
    """An entry that is set again is as new as any."""
    entries = BoundedDict[str, int](2)
    entries["a"] = 1
    entries["b"] = 2
    entries["a"] = 3
    entries["c"] = 4

    assert entries == {"a": 3, "c": 4}
