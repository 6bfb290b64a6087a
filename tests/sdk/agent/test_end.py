"""The end of a run: every agent learns that all processes have finished, or starts its own again."""

from collections.abc import Sequence
from typing import Any

import pytest
from edl.agent.agent import Agent
from edl.errors import RoundOver, Unavailable
from edl.master.protocol import Member, Round

MEMBERS = tuple(Member(f"trainer-{rank}", "x", "a:0") for rank in range(2))


class Keys:
    """Keys of a round that ends after some questions."""

    def __init__(self, asks: int) -> None:
        self.values: dict[str, bytes] = {}
        self._asks = asks

    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
        self.values[key] = value

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all are set."""
        self._asks -= 1
        if self._asks < 0:
            raise RoundOver("the round of these keys is over")
        return all(key in self.values for key in keys)


class Rounds:
    """A round that nobody has changed yet."""

    changed = False

    def __init__(self, store: Keys) -> None:
        self.store = store


class Master:
    """The session of an agent, and its client: the master says only in what state the job is."""

    def __init__(self, state: str) -> None:
        self._state = state

    def control(self) -> "Master":
        """Itself."""
        return self

    def status(self) -> dict[str, str]:
        """The state of the job."""
        if not self._state:
            raise Unavailable("no answer")
        return {"state": self._state}


def wait(rank: int, state: str, store: Keys) -> bool:
    """What an agent makes of the end of its own processes."""
    member: Any = Master(state)
    rounds: Any = Rounds(store)
    agent = Agent(["/bin/true"], 1, 0, member)
    return agent._wait_for_others(Round(1, rank, MEMBERS), rounds)  # noqa: SLF001 - races cannot be had from outside


def test_a_round_that_ends_with_the_job_is_no_loss() -> None:
    """The agent of rank 0 has reported the end and left before this one has asked again."""
    assert wait(1, "done", Keys(asks=2))


@pytest.mark.parametrize("state", ["running", ""])
def test_a_lost_agent_may_have_to_be_replaced(state: str) -> None:
    """The round ended before all had finished, or the master cannot say: processes start again."""
    with pytest.raises(RoundOver):
        wait(1, state, Keys(asks=2))


def test_others_leave_after_the_report() -> None:
    """They wait for the key of rank 0, not for each other."""
    store = Keys(asks=1)
    store.set("finished/0", b"1")
    with pytest.raises(RoundOver):
        wait(1, "running", store)
    store = Keys(asks=1)
    store.set("reported", b"1")
    assert wait(1, "running", store)
    assert store.values["finished/1"] == b"1"
