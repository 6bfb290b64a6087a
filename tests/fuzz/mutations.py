"""Random changes of bytes and of JSON values, which keep most of an input valid."""

import copy
from random import Random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 10**400, 0.5, 1e300, -0.0),
    *(
        "",
        "0",
        "x",
        "a/b",
        "../x",
        "\x00",
        "\u202e",
        "é" * 63,
        "x" * 5000,
        "1e999",
        "-1",
        "0-99999",
    ),
    *([], {}, [[]], [{}], [None], {"": None}, {"metadata": None}, ["x"] * 50),
)


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Flips, overwrites, inserts, removes, repeats or cuts; up to four times."""
    raw = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place, length = random.randint(0, len(raw)), random.choice((1, 1, 2, 4, 8, 30))
        change = random.randrange(6)
        if change == 0 and place < len(raw):
            raw[place] ^= 1 << random.randrange(8)
        elif change == 1:
            raw[place : place + length] = random.choice((b"\x00", b"\xff", b"\x7f")) * length
        elif change == 2:
            raw[place:place] = random.randbytes(length)
        elif change == 3:
            del raw[place : place + length]
        elif change == 4:
            raw[place:place] = raw[place : place + length]
        else:
            del raw[place:]
    return bytes(raw)


def mutate_json(random: Random, value: Any) -> Any:
    """A copy of a JSON value of which up to three parts are replaced, removed, renamed or nested."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        value = _replaced(random, value)
    return value


def _replaced(random: Random, value: Any) -> Any:
    keys = (
        list(value)
        if isinstance(value, dict)
        else list(range(len(value)))
        if isinstance(value, list)
        else []
    )
    if not keys or random.random() < 0.1:
        return copy.deepcopy(random.choice(ODD_VALUES))
    key = random.choice(keys)
    change = random.random()
    if change < 0.6:
        value[key] = _replaced(random, value[key])
    elif change < 0.75:
        value.pop(key)
    elif change < 0.85:
        value[key] = {"x": [value[key]]}
    elif isinstance(value, dict):
        value[str(random.choice(ODD_VALUES))[:80]] = value.pop(key)
    else:
        value.extend(copy.deepcopy(value))
    return value
