"""Collective operations among the trainers of one round: all-reduce, gather, broadcast, barrier.

Members form a ring over TCP in order of rank; each sends to the next member and receives from the
previous one. Whatever ends the round (a member's death, a mismatch, `Interrupt.set`) ends every
member's call with `edl.errors.RoundOver`, within milliseconds where the other members are in a call
too. Needs numpy.
"""

from edl.collective.acceptor import Listener
from edl.collective.ring import Ring
from edl.collective.transport import Interrupt

__all__ = ["Interrupt", "Listener", "Ring"]
