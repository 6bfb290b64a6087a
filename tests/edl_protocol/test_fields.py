"""Messages: what trainers write is what servers read."""

import json

import pytest
from edl_protocol.fields import Message, to_json
from edl_protocol.master import (
    DoneTask,
    JoinRequest,
    KeySet,
    RewindRequest,
    RoundClaim,
    RoundMember,
    WorkRequest,
    is_name,
)
from edl_protocol.pserver import Enter, Model, Push, Rules, Table

from runtime.call_checks import check_body, check_fields

MODEL = Model({"w": [2, 3]}, {"words": Table(8, evict="lru")}, {"kind": "sgd"}, Rules())


@pytest.mark.parametrize(
    "message",
    [
        JoinRequest("a", "a-1", [DoneTask("t", 1, metrics={"loss": None})]),
        WorkRequest("a", "a-1", want=3, kinds=["training"], call=7),
        RewindRequest("a", "a-1", "train", "e", "r", 3, None),
        KeySet("a", "a-1", 4, "k", "eA=="),
        RoundClaim(9, [RoundMember("a", "a-1", "a:1")]),
        Enter("a", "a-1", 1, MODEL),
        Push("a", "a-1", 1, 5, 4, 64, ["words"], remaining={"t": 3}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_server_reads_the_message_that_a_trainer_wrote(message: Message) -> None:
    """Parts of messages are messages too."""
    kind = type(message)

    assert check_body(kind, json.dumps(to_json(message)).encode()) == message
    assert check_fields(kind, to_json(message)) == message


def test_fields_with_their_defaults_are_not_written() -> None:
    """A master of an earlier release would refuse a field that it does not know."""
    assert to_json(DoneTask("t", 1)) == {"task": "t", "attempt": 1}
    assert to_json(RewindRequest("a", "i", "train", "e", "r", 3, None))["position"] is None


def test_names_are_those_that_a_master_accepts() -> None:
    """Trainers check the names of data sets before they send them."""
    assert is_name("train-1.a:b_C")
    assert is_name("x" * 253)
    for text in ("", "x" * 254, "-a", "a b", "a\n", "é"):
        assert not is_name(text)
