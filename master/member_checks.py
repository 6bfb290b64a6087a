"""The checks of a member's call that need no list of members. Pure."""

from collections.abc import Mapping

from edl_protocol.master import RendezvousPoll

from master.bounds import MAX_AHEAD, check_assigned
from runtime.call_checks import RefusedError

MAX_CLAIMED = 1 << 51
"""The newest round that is accepted by a master that knows of none. Calls report rounds up to
2^52."""


def check_numbers(call: RendezvousPoll, newest: int) -> None:
    """Refuses round numbers far beyond all others: later rounds exceed every accepted number.

    A master that has just started knows of no round. It accepts any claim up to 2^51, and a
    call with a claim reports no later round than the claim.

    Args:
        call: The call.
        newest: The newest round that this master knows, or that a member has reported.

    Raises:
        RefusedError: No master can have proclaimed such a round.
    """
    most = newest + MAX_AHEAD
    claim = call.claim
    if claim is not None:
        check_assigned("claim.round", claim.round, most if newest else MAX_CLAIMED)
        most = max(most, claim.round)
    check_assigned("seen", call.seen, most)
    check_assigned("at", call.at, most)
    check_assigned("void", call.void or 0, most)


def check_code(call: RendezvousPoll, ours: Mapping[str, str], other: str) -> None:
    """Refuses a member whose code differs from that of the others.

    Args:
        call: The call.
        ours: The code of the members that train.
        other: One of them.

    Raises:
        RefusedError: The codes differ; names the first entry that does.
    """
    theirs = call.code
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            raise RefusedError(
                409,
                f"code.{name} is {theirs.get(name)!r:.80} with {call.trainer}, but "
                f"{ours.get(name)!r:.80} with {other} and the members that train with it: start all "
                "trainers of the job with the same program, or this one once the others have ended",
                f"code.{name}",
            )
