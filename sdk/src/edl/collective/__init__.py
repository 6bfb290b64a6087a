"""Collective operations among the trainers of one round: all-reduce, gather, broadcast, barrier.

Members form a ring over TCP in order of rank; each sends to the next member and receives from the
previous one. When the round ends (a member dies, operations differ, or `Interrupt.set` is called), the
calls of all members raise `edl.errors.RoundOver`, within milliseconds. Needs numpy.
"""

from edl.collective.acceptor import Listener
from edl.collective.ring import Ring
from edl.collective.transport import Interrupt

__all__ = ["Interrupt", "Listener", "Ring"]
