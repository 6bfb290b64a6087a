"""Limits of the fields of calls: the limit is accepted, and a value beyond it is refused."""

import json
import re
from typing import Any

import pytest
from edl_protocol import master as protocol

from master.protocol import check, dataset_shape
from runtime.call_checks import Json, RefusedError

_WHO: Json = {"trainer": "a", "incarnation": "a-1"}
_SEAT: Json = {**_WHO, "address": "a:1"}
_MOST = 1 << 53


def _refused(kind: type[Any], body: Json) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check(kind, json.dumps(body).encode())
    return caught.value


@pytest.mark.parametrize(
    ("kind", "fields", "field", "allowed", "refused"),
    [
        (protocol.JoinRequest, _WHO, "trainer", "x" * 253, "x" * 254),
        (protocol.JoinRequest, _WHO, "trainer", "a", ""),
        (protocol.WorkRequest, _WHO, "want", 4096, 4097),
        (protocol.WorkRequest, _WHO, "want", 0, -1),
        (protocol.WorkRequest, _WHO, "wait_s", 30.0, 30.5),
        (protocol.WorkRequest, _WHO, "wait_s", 0.0, -0.5),
        (protocol.WorkRequest, _WHO, "call", 1, 0),
        (protocol.WorkRequest, _WHO, "call", _MOST, _MOST + 1),
        (protocol.LeaseRef, {"task": "t"}, "attempt", 0, -1),
        (protocol.LeaseRef, {"task": "t"}, "attempt", _MOST, _MOST + 1),
        (protocol.LeaseRef, {"attempt": 1}, "task", "x" * 300, "x" * 301),
        (protocol.JobFailure, _WHO, "reason", "x" * 2000, "x" * 2001),
        (protocol.JobFailure, _WHO, "reason", "x", ""),
        (protocol.RendezvousPoll, _SEAT, "address", "a:12345", "a:123456"),
        (protocol.RendezvousPoll, _SEAT, "seen", 1 << 52, (1 << 52) + 1),
        (protocol.RendezvousPoll, _SEAT, "waiting_s", 1e9, 2e9),
        (protocol.DatasetDescription, {"task_records": 1}, "records", 1, 0),
        (protocol.DatasetDescription, {"records": 1}, "task_records", 1, 0),
    ],
)
def test_each_limit_is_allowed_and_what_is_beyond_is_named(
    kind: type[Any], fields: Json, field: str, allowed: Any, refused: Any
) -> None:
    """422 with the field."""
    body = check(kind, json.dumps({**fields, field: allowed}).encode())
    error = _refused(kind, {**fields, field: refused})

    assert getattr(body, field) == allowed
    assert (error.status, error.field) == (422, field)
    assert str(error).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("fields", "field", "bound"),
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
    fields: Json, field: str, bound: str
) -> None:
    """Its tasks and sums would exceed the whole numbers of JSON."""
    error = _refused(protocol.DatasetDescription, {"task_records": 1, **fields})

    assert (error.status, error.field) == (422, field)
    assert bound in str(error)


def test_the_largest_data_set_is_allowed() -> None:
    """2^53 records in all epochs together."""
    description = {"task_records": 1, "records": 1 << 30, "epochs": 1 << 23}

    assert check(protocol.DatasetDescription, json.dumps(description).encode()).epochs == 1 << 23


@pytest.mark.parametrize(
    ("fields", "source"),
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
def test_the_ledger_stores_one_source_and_every_default(fields: Json, source: Json) -> None:
    """Two descriptions of the same data are equal, whether or not defaults are given."""
    raw = json.dumps({"task_records": 2, **fields}).encode()
    defaults = {
        "task_records": 2,
        "epochs": fields.get("epochs", 1),
        "shuffle_seed": None,
        "record_order": None,
        "kind": fields.get("kind", "training"),
        "overlap": False,
    }

    assert dataset_shape(check(protocol.DatasetDescription, raw)) == {**source, **defaults}


def test_what_is_not_json_is_distinguished_from_wrong_fields() -> None:
    """400, and no field."""
    with pytest.raises(RefusedError, match="the body is not JSON") as caught:
        check(protocol.JoinRequest, b"{")

    assert (caught.value.status, caught.value.field) == (400, None)
    unknown = _refused(protocol.JoinRequest, {**_WHO, "more": 1})
    assert str(unknown) == "more: no such field"


def test_a_task_has_few_metrics_with_short_names() -> None:
    """The ledger stores them all."""
    done: Json = {"task": "t", "attempt": 1}
    most = {f"{number}".rjust(64, "x"): 0.5 for number in range(512)}

    raw = json.dumps({**done, "metrics": most}).encode()
    assert check(protocol.DoneTask, raw).metrics == most
    for metrics in ({**most, "one more": 0.5}, {"x" * 65: 0.5}):
        error = _refused(protocol.WorkRequest, {**_WHO, "done": [{**done, "metrics": metrics}]})
        assert (error.status, str(error.field)[:14]) == (422, "done.0.metrics")
        assert re.search("at most (64|512) ", str(error))
