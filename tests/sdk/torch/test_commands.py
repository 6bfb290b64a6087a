"""The commands between the processes of a pod."""

from typing import get_args

import pytest
from edl.torch.pods import commands
from edl.torch.pods.commands import Command

COMMANDS: list[Command] = [
    commands.Connect(number=3, rank=0, world_size=2, trainer="pod-0", incarnation="a1"),
    commands.Broadcast(1),
    commands.HandOver([1, 2]),
    commands.Grow([2]),
    commands.Read("/checkpoints/step-5", {"optimizer": {"groups": [{"lr": 0.1}]}}),
    commands.Load(),
    commands.NewReader(),
    commands.Request("{}", [0, 3]),
    commands.BeginStep("a1-7", 6),
    commands.Apply(0.5),
    commands.Clear(),
    commands.Save(5, wait=True),
    commands.End(exits=True, whole=False, late=False, steps=9, records=288, redone=1),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_commands_arrive_as_they_were_sent(command: Command) -> None:
    """With all their fields."""
    assert commands.decode(commands.encode(command)) == command


def test_all_commands_are_tried() -> None:
    """The list above has each command once."""
    assert [type(command) for command in COMMANDS] == list(get_args(Command))


def test_a_single_process_has_nobody_to_tell() -> None:
    """Its announcer makes no call, and its exchanges are those of the process alone."""
    announcer = commands.SingleProcess()
    with announcer.exchange(commands.Grow([1]), 3):
        announcer.announce(commands.Clear())
        announcer.repeat(commands.Broadcast(0))
    announcer.end_round(3)
