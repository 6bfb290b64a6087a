"""What a server answers to pulls, lookups and pages, now and at a pinned version."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from edl_protocol.pserver import Lookup, Page, Pull, Push

from pserver.serving import MAX_PINS
from runtime.call_checks import RefusedError, check_fields
from tests.pserver.builders import Json, model
from tests.pserver.calls import (
    WHO,
    ZEROS,
    load_nothing,
    make_server,
    push_ones,
    settle,
    settle_request,
)


def test_a_pull_brings_only_what_is_newer() -> None:
    """Nothing if the caller has the version."""
    server = make_server()
    settle(server)
    push_ones(server)

    def pulled(version: int) -> bool:
        body = check_fields(Pull, {**WHO, "generation": 1, "version": version})
        return "dense" in server.serving_at(1).pull(body)[1]

    assert pulled(-1)
    assert pulled(0)
    assert not pulled(1)


def test_a_pinned_version_stays_as_it_was() -> None:
    """Dense parameters and rows; the oldest pin above the limit is dropped."""
    server = make_server()
    settle(server)
    serving = server.serving_at(1)
    ids = np.array([1, 2])

    def rows(pin: int | None) -> Any:
        body = check_fields(Lookup, {**WHO, "generation": 1, "table": "words", "pin": pin})
        return serving.lookup(body, {"ids": ids})[1]["rows"]

    def dense(pin: int) -> Any:
        body = check_fields(Pull, {**WHO, "generation": 1, "version": -1, "pin": pin})
        return np.asarray(serving.pull(body)[1]["dense"])[0]

    def trained(number: int) -> None:
        body = check_fields(
            Push,
            {
                **WHO,
                "generation": 1,
                "number": number,
                "version": 0,
                "records": 1,
                "tables": ["words"],
            },
        )
        arrays: Json = {
            "ids.0": ids[:number],
            "rows.0": np.ones((len(ids[:number]), 2), np.float32),
        }
        serving.push(body, {"dense": np.ones(8, np.float32), **arrays})

    begun = rows(None)
    trained(1)
    assert serving.pin(7) == 1
    trained(2)
    assert serving.pin(7) == 1
    assert serving.pin(8) == 2
    assert np.allclose(rows(7) - begun, [[-1, -1], [0, 0]])
    assert np.allclose(rows(8) - begun, [[-2, -2], [-1, -1]])
    assert (dense(7), dense(8)) == (-1, -2)
    serving.pin(9)
    assert len(serving.to_json()["pins"]) == MAX_PINS
    with pytest.raises(RefusedError, match="version 7 is not pinned") as caught:
        rows(7)
    assert (caught.value.status, caught.value.field) == (404, "pin")
    serving.unpin(8)
    serving.unpin(8)
    serving.unpin(9)
    assert serving.shard.views.held_bytes == 0


def test_pins_are_dropped_at_the_memory_limit() -> None:
    """Training continues; the evaluating caller gets an error."""
    server = make_server(max_bytes=2_500)
    zeros = np.zeros(500, np.float32)
    body = settle_request(
        model=asdict(model(tables={}, parameters={"w": [500]})),
        pieces=[{"name": "w", "start": 0, "stop": 500}],
    )
    server.settle(body, zeros, load_nothing, 0.0)
    serving = server.serving_at(1)
    serving.pin(1)
    fields = {**WHO, "generation": 1, "number": 1, "version": 0, "records": 1}
    serving.push(check_fields(Push, fields), {"dense": np.ones(500, np.float32)})

    assert serving.to_json()["pins"] == {}
    assert serving.shard.version == 1


def test_all_rows_come_some_at_a_time() -> None:
    """From the newest on."""
    server = make_server()
    settle(server)
    serving = server.serving_at(1)
    fields = {**WHO, "generation": 1, "number": 1, "version": 0, "records": 1, "tables": ["words"]}
    arrays: Json = {"ids.0": np.arange(5), "rows.0": np.ones((5, 2), np.float32)}
    serving.push(check_fields(Push, fields), arrays)
    ids, after = [], 0
    while after is not None:
        page = {**WHO, "generation": 1, "table": "words", "after": after, "most": 2}
        meta, arrays_found = serving.page(check_fields(Page, page))
        ids += np.asarray(arrays_found["ids"]).tolist()
        after = meta["next"]

    assert ids == [3, 4, 1, 2, 0]


@pytest.mark.parametrize("wrong", [{}, {"ids": ZEROS}, {"ids": np.zeros((1, 1), np.int64)}])
def test_a_lookup_needs_ids(wrong: Json) -> None:
    """422, named."""
    server = make_server()
    settle(server)
    body = check_fields(Lookup, {**WHO, "generation": 1, "table": "words"})
    with pytest.raises(RefusedError, match="ids: an array of int64") as caught:
        server.serving_at(1).lookup(body, wrong)

    assert caught.value.field == "ids"
