"""The commands that a pod's first process sends to the others, and the interface that sends them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Union, get_args

from edl.overriding import override
from edl.sync.round_start import encode_json


@dataclass(frozen=True)
class Connect:
    """Connects each process to the processes of its rank in the other pods of a round."""

    number: int
    """Number of the round."""
    rank: int
    """Rank of the pod in the round."""
    world_size: int
    """Number of pods in the round."""
    trainer: str
    """Name of the pod at the master."""
    incarnation: str


@dataclass(frozen=True)
class Broadcast:
    """Sends each process's part of the state from one pod to all others."""

    source: int


@dataclass(frozen=True)
class HandOver:
    """Sends each process's part of the state to some pods."""

    receivers: Sequence[int]


@dataclass(frozen=True)
class Grow:
    """Connects the rings over which some pods get the state while the others train."""

    receivers: Sequence[int]


@dataclass(frozen=True)
class Read:
    """Reads each process's part of a checkpoint."""

    path: str
    extra: dict[str, Any]
    """The entries of the state that are not tensors."""


@dataclass(frozen=True)
class Load:
    """Loads the state that was received or read last."""


@dataclass(frozen=True)
class NewReader:
    """Drops all requested micro-batches and starts a new reader."""


@dataclass(frozen=True)
class Request:
    """Requests the pod's micro-batches of a step; each process computes a share of them."""

    plan: str
    """The step's plan, as `edl.sync.plan_message` encodes it."""
    indices: Sequence[int]


@dataclass(frozen=True)
class BeginStep:
    """Computes a step that was requested."""

    plan: str
    """Name of the plan."""
    step: int
    """Number of steps made before it."""


@dataclass(frozen=True)
class Apply:
    """Applies the summed gradient with the learning rate times `scale`."""

    scale: float


@dataclass(frozen=True)
class Clear:
    """Drops the gradient of the current step."""


@dataclass(frozen=True)
class Save:
    """Writes each process's part of a checkpoint."""

    step: int
    wait: bool


@dataclass(frozen=True)
class End:
    """Ends the other processes, with the result of the run."""

    exits: bool
    """Whether the pod leaves after SIGTERM."""
    whole: bool
    late: bool
    steps: int
    records: int
    redone: int


Command = Union[
    Connect,
    Broadcast,
    HandOver,
    Grow,
    Read,
    Load,
    NewReader,
    Request,
    BeginStep,
    Apply,
    Clear,
    Save,
    End,
]
_TYPES: dict[str, Any] = {kind.__name__: kind for kind in get_args(Command)}


def encode(command: Command) -> bytes:
    """Encodes a command for the other processes of the pod."""
    return encode_json({"command": type(command).__name__, **asdict(command)})


def decode(raw: bytes) -> Command:
    """Decodes a command that `encode` returned."""
    fields = json.loads(raw)
    command: Command = _TYPES[fields.pop("command")](**fields)
    return command


class Announcer(Protocol):
    """Sends commands from the first process of a pod to the others, so that all do the same."""

    def announce(self, command: Command) -> None:
        """Sends a command that cannot fail."""
        ...

    def repeat(self, command: Command) -> None:
        """Makes the other processes repeat an exchange that this process has completed.

        Raises:
            RoundOver: The exchange failed in one of them.
        """
        ...

    def exchange(self, command: Command, number: int) -> AbstractContextManager[object]:
        """A context for an exchange with other pods that all processes make at the same time.

        Args:
            command: The exchange.
            number: The round.

        Raises:
            RoundOver: The exchange failed in another process.
        """
        ...

    def end_round(self, number: int) -> None:
        """Ends the other processes' waits in this round and earlier ones; may be called on any thread."""
        ...


class SingleProcess(Announcer):
    """The announcer of a trainer that has only one process."""

    @override
    def announce(self, command: Command) -> None:
        """Sends nothing."""

    @override
    def repeat(self, command: Command) -> None:
        """Sends nothing."""

    @override
    def exchange(self, command: Command, number: int) -> AbstractContextManager[object]:
        del command, number
        return contextlib.nullcontext()

    @override
    def end_round(self, number: int) -> None:
        """Sends nothing."""
