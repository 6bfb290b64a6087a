"""What a call may say: each limit is allowed, and what is beyond it is named."""

import json
from typing import Any

import pytest

from master import protocol
from master.errors import RefusedError

Json = dict[str, Any]
_WHO: Json = {"trainer": "a", "incarnation": "a-1"}
_SEAT: Json = {**_WHO, "address": "a:1"}
_MOST = 1 << 53


def _refused(kind: type[Any], body: Json) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        protocol.check(kind, json.dumps(body).encode())
    return caught.value


@pytest.mark.parametrize(
    ("kind", "rest", "field", "allowed", "refused"),
    [
        (protocol.Join, _WHO, "trainer", "x" * 253, "x" * 254),
        (protocol.Join, _WHO, "trainer", "a", ""),
        (protocol.Work, _WHO, "want", 4096, 4097),
        (protocol.Work, _WHO, "want", 0, -1),
        (protocol.Work, _WHO, "wait_s", 30.0, 30.5),
        (protocol.Work, _WHO, "wait_s", 0.0, -0.5),
        (protocol.Work, _WHO, "call", 1, 0),
        (protocol.Work, _WHO, "call", _MOST, _MOST + 1),
        (protocol.Ref, {"task": "t"}, "attempt", 0, -1),
        (protocol.Ref, {"task": "t"}, "attempt", _MOST, _MOST + 1),
        (protocol.Ref, {"attempt": 1}, "task", "x" * 300, "x" * 301),
        (protocol.Fail, _WHO, "reason", "x" * 2000, "x" * 2001),
        (protocol.Fail, _WHO, "reason", "x", ""),
        (protocol.Meet, _SEAT, "address", "a:12345", "a:123456"),
        (protocol.Meet, _SEAT, "seen", 1 << 52, (1 << 52) + 1),
        (protocol.Meet, _SEAT, "waiting_s", 1e9, 2e9),
        (protocol.Description, {"task_records": 1}, "records", 1, 0),
        (protocol.Description, {"records": 1}, "task_records", 1, 0),
    ],
)
def test_each_limit_is_allowed_and_what_is_beyond_is_named(
    kind: type[Any], rest: Json, field: str, allowed: Any, refused: Any
) -> None:
    """422 with the field."""
    body = protocol.check(kind, json.dumps({**rest, field: allowed}).encode())
    error = _refused(kind, {**rest, field: refused})

    assert getattr(body, field) == allowed
    assert (error.status, error.named) == (422, field)
    assert str(error).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("given", "named", "bound"),
    [
        ({"files": [{"name": "f", "records": _MOST}] * 2}, "files", str(_MOST)),
        ({"records": 1 << 30, "epochs": (1 << 23) + 1}, "epochs", str(_MOST)),
        ({"records": 1, "epochs": 1025, "kind": "evaluation"}, "epochs", "1024"),
        (
            {"files": [{"name": "f", "records": 1 << 30}] * 2, "epochs": 1 << 23},
            "epochs",
            str(_MOST),
        ),
    ],
)
def test_a_data_set_beyond_what_numbers_can_say_is_refused(
    given: Json, named: str, bound: str
) -> None:
    """Tasks and sums of it would be no whole numbers of JSON any more."""
    error = _refused(protocol.Description, {"task_records": 1, **given})

    assert (error.status, error.named) == (422, named)
    assert bound in str(error)


def test_the_largest_data_set_is_allowed() -> None:
    """2^53 records in all epochs together."""
    given = {"task_records": 1, "records": 1 << 30, "epochs": 1 << 23}

    assert protocol.check(protocol.Description, json.dumps(given).encode()).epochs == 1 << 23


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"records": 5}, {"records": 5}),
        (
            {"files": [{"name": "f", "records": 0}, {"name": "g", "records": 3}]},
            {"files": [{"name": "f", "records": 0}, {"name": "g", "records": 3}]},
        ),
        ({"stream": True}, {"stream": True}),
        ({"records": 5, "epochs": 0, "kind": "evaluation"}, {"records": 5}),
    ],
)
def test_the_books_keep_one_source_and_every_default(given: Json, kept: Json) -> None:
    """Two descriptions of the same data are the same, whoever leaves a default out."""
    raw = json.dumps({"task_records": 2, **given}).encode()
    rest = {
        "task_records": 2,
        "epochs": given.get("epochs", 1),
        "shuffle_seed": None,
        "kind": given.get("kind", "training"),
        "overlap": False,
    }

    assert protocol.check(protocol.Description, raw).shape() == {**kept, **rest}


def test_what_is_no_json_is_said_apart_from_what_is_wrong_in_it() -> None:
    """400, and no field."""
    with pytest.raises(RefusedError, match="the body is no JSON") as caught:
        protocol.check(protocol.Join, b"{")

    assert (caught.value.status, caught.value.named) == (400, None)
    unknown = _refused(protocol.Join, {**_WHO, "more": 1})
    assert str(unknown) == "more: no such field"


def test_a_task_has_few_metrics_with_short_names() -> None:
    """The books hold them all."""
    done: Json = {"task": "t", "attempt": 1}
    most = {f"{number}".rjust(64, "x"): 0.5 for number in range(64)}

    raw = json.dumps({**done, "metrics": most}).encode()
    assert protocol.check(protocol.Done, raw).metrics == most
    for metrics in ({**most, "one more": 0.5}, {"x" * 65: 0.5}):
        error = _refused(protocol.Work, {**_WHO, "done": [{**done, "metrics": metrics}]})
        assert (error.status, str(error.named)[:14]) == (422, "done.0.metrics")
        assert "at most 64" in str(error)


def test_a_mean_that_is_no_number_is_none() -> None:
    """The journal could not hold it; all others are as they were."""
    raw = b'{"task":"t","attempt":1,"metrics":{"a":NaN,"b":Infinity,"c":0.5,"d":null}}'

    assert protocol.check(protocol.Done, raw).metrics == {"a": None, "b": None, "c": 0.5, "d": None}
