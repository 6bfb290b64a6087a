"""Calls of the protocol to masters of other versions."""

from typing import Any

import pytest
from edl.errors import Refused
from edl.master.client import Client, WorkRequest
from edl.master.protocol import Json, Report

FAILURE: Json = {"task": "train/0/1", "attempt": 1, "error": "OSError: stale", "transient": True}


class OlderMaster:
    """A master that refuses a field which it does not know."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.bodies: list[Json] = []

    def call(self, _method: str, _path: str, body: Json, **_: Any) -> Json:
        """Answers a call for work."""
        self.bodies.append(body)
        if any("transient" in failure for failure in body.get("failed", ())) or self.field in body:
            raise Refused(422, f"{self.field}: no such field", self.field)
        return {"results": ["accepted"], "tasks": [], "state": "wait"}


def _client(master: OlderMaster) -> Client:
    return Client(master, "trainer-0", "trainer-0-1")  # type: ignore[arg-type]


def test_an_older_master_gets_a_failure_without_what_it_does_not_know() -> None:
    """It refuses the whole call, which would end the trainer, and its next process as well."""
    master, report = OlderMaster("failed.0.transient"), Report(failed=[FAILURE])

    answer = _client(master).work(WorkRequest(7, report, 1, 0.0, {}))

    assert answer.results == ("accepted",)
    assert [body["call"] for body in master.bodies] == [7, 7]
    assert master.bodies[1]["failed"] == [
        {"task": "train/0/1", "attempt": 1, "error": "OSError: stale"}
    ]
    assert report.failed == [FAILURE]


def test_other_refusals_are_the_callers() -> None:
    """They are not repeated."""
    master = OlderMaster("failed.0.error")

    with pytest.raises(Refused, match="no such field"):
        _client(master).work(WorkRequest(1, Report(failed=[FAILURE]), 0, 0.0, {}))
    assert len(master.bodies) == 1


def test_an_older_master_gets_a_description_without_the_order_of_records() -> None:
    """Trainers compute the order by themselves; the master only compares it."""
    master = OlderMaster("record_order")

    _client(master).describe("train", {"records": 5, "record_order": "feistel-1 f00d"})

    assert master.bodies[1] == {"records": 5}
