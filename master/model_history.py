"""What a data set remembers of the model that it trains: its leaders' terms, and rewinds. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from master.bounds import capped
from runtime.call_checks import Json, RefusedError

MAX_REWINDS = 1 << 15
"""Rewinds of a data set: attempts of leases must stay numbers that trainers can report."""
_ATTEMPTS = 1 << 36


@dataclass(slots=True)
class Terms:
    """The terms of a data set's leaders: which process holds the newest model.

    A group of trainers that trains one model begins a term with each round. Its leader reports the
    term in which its model was trained last; a model that lacks acknowledged records cannot lead
    (decision 0014). All fields keep their defaults where trainers do not train one model together.
    """

    newest: int = 0
    """The newest term that was begun."""
    acknowledged: int = 0
    """The newest term in which records were acknowledged: models of older terms lack them."""
    leader: str = ""
    """Incarnation of the process that began the newest term."""
    after: int = 0
    """The term of the model with which the newest term began."""

    def begin(self, leader: str, after: int) -> int:
        """Begins the next term.

        Args:
            leader: Incarnation of the leader. The same call again gets the same answer, and so
                does an earlier call of it that arrives late.
            after: The term of its model, 0 for a model that was not trained. A master that was
                moved may know fewer terms than its trainers.

        Raises:
            RefusedError: The model lacks records that were acknowledged.
        """
        if self.newest and leader == self.leader and after <= self.after:
            return self.newest
        if after < self.acknowledged:
            raise RefusedError(
                409,
                f"the model is of term {after}, but records were acknowledged in term "
                f"{self.acknowledged}: load the newest model, or declare it lost",
                "term",
            )
        self.newest = max(self.newest, after) + 1
        self.leader, self.after = leader, after
        return self.newest

    def resume(self, leader: str, term: int) -> int:
        """Lets a leader that was considered dead continue in its term.

        Raises:
            RefusedError: A later term was begun; or this one was begun by another leader, after
                the snapshot from which this master resumed.
        """
        if term < self.newest or (term == self.newest and leader != self.leader):
            raise RefusedError(
                409, f"term {term} is over: another process leads since then", "incarnation"
            )
        self.newest, self.leader = term, leader
        return term

    def acknowledge(self) -> None:
        """Notes that records were acknowledged in the newest term."""
        self.acknowledged = self.newest

    def dump(self) -> Json:
        """The terms as JSON."""
        return asdict(self)

    @classmethod
    def load(cls, dumped: Json | None) -> "Terms":
        """The terms that `dump` wrote; older snapshots have none."""
        return cls() if dumped is None else cls(**dumped)


@dataclass(slots=True)
class RewindLog:
    """The rewinds of one data set."""

    count: int = 0
    identity: str = ""
    """Stands for the newest: the same call again changes nothing."""
    newest_records: int = 0
    """Records that the newest one set back."""
    newest_steps: int = 0
    generation: int = 0
    """The newest generation of parameter servers for which the data set was set back,"""
    ticket: int = 0
    """and the ticket of the trainer that started it."""
    redone_records: int = 0
    """Records that all of them together set back: they are trained again."""

    @property
    def base(self) -> int:
        """Attempts of leases since the newest rewind are greater than this."""
        return self.count * _ATTEMPTS

    def is_before(self, attempt: int) -> bool:
        """Whether a lease was granted before the newest rewind: what it trained is lost."""
        return self.count > 0 and attempt <= self.base

    @property
    def key(self) -> tuple[int, int]:
        """Where the newest one is in the order of those of parameter servers."""
        return self.generation, self.ticket

    def add(self, identity: str, key: tuple[int, int], records: int, steps: int) -> None:
        """Notes a rewind."""
        self.count += 1
        self.identity, self.newest_records, self.newest_steps = identity, records, steps
        self.generation, self.ticket = max(key, self.key)
        self.redone_records = capped(self.redone_records + records)

    def dump(self) -> list[Any]:
        """The rewinds as snapshots have them: the fields of this class, in order."""
        newest = [self.identity, self.newest_records, self.newest_steps]
        return [self.count, *newest, *self.key, self.redone_records]
