"""Exchange between the trainers of one round: all-reduce, gather, broadcast, barrier over TCP.

Members stand in a ring in order of rank; each sends to the next and hears the one before. Whatever
ends the round (a member's death, a mismatch, `Interrupt.set`) ends every member's call with
`edl.errors.RoundOver`, within milliseconds where the others are in a call too. Needs numpy.
"""

from edl.exchange.interrupt import Interrupt
from edl.exchange.listener import Listener
from edl.exchange.ring import Ring

__all__ = ["Interrupt", "Listener", "Ring"]
