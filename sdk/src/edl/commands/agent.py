"""`edl agent --nproc 8 -- python train.py`: runs a script written for torchrun in an elastic job."""

from __future__ import annotations

import argparse
import shutil

from edl.agent.agent import Agent
from edl.agent.members_agent import MembersAgent
from edl.agent.replica_agent import ReplicaAgent
from edl.errors import SettingError
from edl.master.session import set_up_logging
from edl.master.settings import load

NAME = "agent"
HELP = "run an unchanged torchrun script as this pod's part of an elastic job"
_MAX_PROCESSES, _MAX_GIB = 1_024, 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl agent`."""
    parser.add_argument(
        "--nproc",
        type=int,
        default=1,
        metavar="N",
        help="processes to start, for example one per GPU of the pod (default 1)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="restarts after process failures before the job fails; "
        "restarts after membership changes do not count (default 3)",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--members",
        action="store_true",
        help="each process joins rounds itself (edl.jax.JaxRounds, edl.Rounds): processes keep running while "
        "others join and leave, and only a process that fails is restarted",
    )
    kinds.add_argument(
        "--replica",
        action="store_true",
        help="the processes share one replica of a model (FSDP2, edl.torch.Training): they keep running "
        "while other pods join and leave; if one of them fails, all of them are restarted",
    )
    parser.add_argument(
        "--snapshot-memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="GiB of /dev/shm that snapshots (edl.Snapshots) may use (default 0: all of it)",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="the program and its arguments, after two dashes: -- python train.py",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the agent; returns the exit code.

    Raises:
        EdlError: A flag is invalid, or the master refuses the call.
    """
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise SettingError(
            "no command: add it after two dashes, as in edl agent -- python train.py"
        )
    for flag, value, minimum in (
        ("--nproc", args.nproc, 1),
        ("--max-restarts", args.max_restarts, 0),
    ):
        if not minimum <= value <= _MAX_PROCESSES:
            raise SettingError(f"{flag} is {value}: it must be {minimum} to {_MAX_PROCESSES}")
    if not 0 <= args.snapshot_memory <= _MAX_GIB:
        raise SettingError(
            f"--snapshot-memory is {args.snapshot_memory}: it must be 0 to {_MAX_GIB} GiB"
        )
    path = shutil.which(command[0])
    if path is None:
        raise SettingError(
            f"{command[0]!r:.80} is not an executable program: name one "
            "after --, for example -- python train.py"
        )
    words = [path, *command[1:]]
    if args.members:
        set_up_logging()
        return MembersAgent(words, args.nproc, args.max_restarts, load()).run()
    if args.replica:
        set_up_logging()
        settings = load()
        return ReplicaAgent(
            words, args.nproc, args.max_restarts, grace_s=settings.grace_s, job=settings.job
        ).run()
    snapshot_bytes = int(args.snapshot_memory * (1 << 30))
    return Agent(words, args.nproc, args.max_restarts, snapshot_bytes=snapshot_bytes).run()
