"""Members as real processes: the same bits, and what the others notice of kill -9 and SIGSTOP."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

World = Callable[[int], "list[subprocess.Popen[str]]"]


@pytest.fixture
def world() -> Iterator[World]:
    """Starts members and waits until their ring is there."""
    members: list[subprocess.Popen[str]] = []

    def start(count: int) -> "list[subprocess.Popen[str]]":
        for rank in range(count):
            command = [sys.executable, "-m", "tests.sdk.exchange_member", str(rank)]
            members.append(
                subprocess.Popen(  # noqa: S603 - our own program
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    process_group=0,
                )
            )
        addresses = " ".join(_hear(one) for one in members)
        for one in members:
            _tell(one, addresses)
        assert [_hear(one) for one in members] == ["ready"] * count
        return members

    yield start
    for one in members:
        os.killpg(one.pid, signal.SIGKILL)  # its children as well
        one.communicate()


def _tell(member: "subprocess.Popen[str]", text: str) -> None:
    assert member.stdin is not None
    member.stdin.write(text + "\n")
    member.stdin.flush()


def _hear(member: "subprocess.Popen[str]") -> str:
    assert member.stdout is not None
    return member.stdout.readline().strip()


def test_processes_end_with_the_same_bits(world: World) -> None:
    """Sizes that divide and such that do not, many at once."""
    members = world(3)
    for size in (1, 10_007, 300_000):
        for one in members:
            _tell(one, f"sum {size} 3")
        assert len({_hear(one) for one in members}) == 1


@pytest.mark.parametrize("count", [2, 4])
def test_a_member_that_is_killed_is_missed_at_once(world: World, count: int) -> None:
    """By all others, in the middle of a sum, while a forked child keeps its sockets' copies."""
    *others, victim = world(count)
    _tell(victim, "hold")
    _tell(victim, "sum 100 1")
    for one in others:
        _tell(one, "sum 100 1")
    sums = {_hear(one) for one in (*others, victim)}
    for one in (*others, victim):
        _tell(one, "sum 500000 100000")
    victim.kill()
    said = [_hear(one) for one in others]

    assert len(sums) == 1
    assert all(text.startswith("over ") for text in said)
    assert any(f"rank {count - 1} (" in text for text in said)


def test_a_member_that_is_frozen_is_waited_for_until_there_is_news(world: World) -> None:
    """One interrupt is enough for all who are not frozen."""
    first, second, frozen = world(3)
    os.kill(frozen.pid, signal.SIGSTOP)
    _tell(first, "break 0.3")
    for one in (first, second):
        _tell(one, "sum 1000000 1000")
    said = [_hear(one) for one in (first, second)]

    assert all(text.startswith("over ") for text in said)
    assert "interrupted by news of another round" in said[0]
    assert "rank 0 (" in said[1]
