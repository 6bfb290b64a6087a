"""The ends of a hand-over of a state in parts, when it breaks off."""

import json
from typing import Any, cast

import pytest
from edl.errors import RoundOver
from edl.sync.state_stream import StateReceiver

from tests.sdk.sync.replicas import Softmax


class BrokenStream:
    """A stream that ends after some messages."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = list(messages)

    def hand_over(self, arrays: Any, about: bytes, receivers: Any) -> tuple[bytes, list[Any]]:
        """As in `Ring`, on the receiving end."""
        del arrays, about, receivers
        if not self._messages:
            raise RoundOver("trainer-0 is gone")
        return self._messages.pop(0), []


def test_a_state_that_does_not_arrive_ends_the_round_with_the_reason() -> None:
    """What has arrived before is in the replica."""
    stream = BrokenStream(json.dumps({"rest": [], "extra": {}, "last": False}).encode())
    receiver = StateReceiver(Softmax(), cast("Any", stream), {1})
    receiver.take(1, lambda: None, lambda _: None)
    with pytest.raises(RoundOver) as caught:
        receiver.take(2, lambda: None, lambda _: None)
    receiver.close()

    assert str(caught.value) == "the state does not arrive: RoundOver: trainer-0 is gone"
    assert (receiver.has_begun, receiver.is_complete) == (True, False)
