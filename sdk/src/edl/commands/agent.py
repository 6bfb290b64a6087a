"""`edl agent --nproc 8 -- python train.py`: a script of torchrun as the trainers of an elastic job."""

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
HELP = "run a script of torchrun as this pod's part of an elastic job, without changes to it"
_MAX_PROCESSES, _MAX_GIB = 1_024, 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl agent`."""
    parser.add_argument(
        "--nproc",
        type=int,
        default=1,
        metavar="N",
        help="processes to start, such as one for each GPU of the pod (default 1)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="how often processes that failed are started again before the job fails; "
        "changes of members do not count (default 3)",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--members",
        action="store_true",
        help="each process takes part in rounds itself (edl.jax.JaxRounds, edl.Rounds): it goes on while others "
        "come and go, and where one is lost, it alone is started again",
    )
    kinds.add_argument(
        "--replica",
        action="store_true",
        help="the processes hold one replica of a model together (FSDP2, edl.torch.Training): they go on "
        "while other pods come and go, and are all started again where one of them is lost",
    )
    parser.add_argument(
        "--snapshot-memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="memory of /dev/shm that snapshots of edl.Snapshots may take, in GiB (default 0: all of it)",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="two dashes, then the program with its arguments: -- python train.py",
    )


def run(args: argparse.Namespace) -> int:
    """Runs it.

    Raises:
        EdlError: A flag is invalid, or the master refuses.
    """
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise SettingError(
            "no command: write it behind two dashes, as in edl agent -- python train.py"
        )
    for flag, value, least in (
        ("--nproc", args.nproc, 1),
        ("--max-restarts", args.max_restarts, 0),
    ):
        if not least <= value <= _MAX_PROCESSES:
            raise SettingError(f"{flag} is {value}: write {least} to {_MAX_PROCESSES}")
    if not 0 <= args.snapshot_memory <= _MAX_GIB:
        raise SettingError(
            f"--snapshot-memory is {args.snapshot_memory}: write 0 to {_MAX_GIB} GiB"
        )
    path = shutil.which(command[0])
    if path is None:
        raise SettingError(
            f"{command[0]!r:.80} is not a program that can be run: name one "
            "behind --, such as -- python train.py"
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
