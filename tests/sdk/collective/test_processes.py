"""Members as real processes: they get the same bits, and detect kill -9 and SIGSTOP of others."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

StartMembers = Callable[[int], "list[subprocess.Popen[str]]"]


@pytest.fixture
def start_members() -> Iterator[StartMembers]:
    """Starts members and waits until their ring is there."""
    members: list[subprocess.Popen[str]] = []

    def start(count: int) -> "list[subprocess.Popen[str]]":
        for rank in range(count):
            command = [sys.executable, "-m", "tests.sdk.collective.member", str(rank)]
            members.append(
                subprocess.Popen(  # noqa: S603 - our own program
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    process_group=0,
                )
            )
        addresses = " ".join(_hear(member) for member in members)
        for member in members:
            _tell(member, addresses)
        assert [_hear(member) for member in members] == ["ready"] * count
        return members

    yield start
    for member in members:
        os.killpg(member.pid, signal.SIGKILL)  # its children as well
        member.communicate()


def _tell(member: "subprocess.Popen[str]", text: str) -> None:
    assert member.stdin is not None
    member.stdin.write(text + "\n")
    member.stdin.flush()


def _hear(member: "subprocess.Popen[str]") -> str:
    assert member.stdout is not None
    return member.stdout.readline().strip()


def test_processes_end_with_the_same_bits(start_members: StartMembers) -> None:
    """For sizes that are divisible by the number of members and sizes that are not."""
    members = start_members(3)
    for size in (1, 10_007, 300_000):
        for member in members:
            _tell(member, f"sum {size} 3")
        assert len({_hear(member) for member in members}) == 1


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_member_that_is_killed_is_missed_at_once(start_members: StartMembers, count: int) -> None:
    """By all others, in the middle of a sum, while a forked child has copies of its sockets."""
    *others, victim = start_members(count)
    _tell(victim, "hold")
    _tell(victim, "sum 100 1")
    for member in others:
        _tell(member, "sum 100 1")
    sums = {_hear(member) for member in (*others, victim)}
    for member in (*others, victim):
        _tell(member, "sum 500000 100000")
    victim.kill()
    answers = [_hear(member) for member in others]

    assert len(sums) == 1
    assert all(text.startswith("over ") for text in answers)
    assert any(f"rank {count - 1} (" in text for text in answers)


def test_a_member_that_is_frozen_is_waited_for_until_there_is_news(
    start_members: StartMembers,
) -> None:
    """One interrupt is enough for all members that are not frozen."""
    first, second, frozen = start_members(3)
    os.kill(frozen.pid, signal.SIGSTOP)
    _tell(first, "break 0.3")
    for member in (first, second):
        _tell(member, "sum 1000000 1000")
    answers = [_hear(member) for member in (first, second)]

    assert all(text.startswith("over ") for text in answers)
    assert "interrupted by news of another round" in answers[0]
    assert "rank 0 (" in answers[1]
