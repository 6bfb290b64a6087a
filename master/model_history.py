"""The history of the model that a data set trains: terms of leaders, and rewinds. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from master.bounds import capped
from runtime.call_checks import Json, RefusedError

MAX_REWINDS = 1 << 15
"""Maximum number of rewinds of a data set: after more rewinds, attempts would exceed the largest
number that trainers can report."""
_ATTEMPTS = 1 << 36
"""Number of attempts reserved between two rewinds."""


@dataclass(slots=True)
class Terms:
    """The terms of a data set's leaders: which process holds the newest model.

    A group of trainers that trains one model begins a term with each round. Its leader reports the
    term in which its model was trained last. A trainer whose model lacks acknowledged records
    cannot lead (decision 0014). All fields keep their defaults if trainers do not train one model
    together.
    """

    newest: int = 0
    """The newest term that was begun."""
    acknowledged: int = 0
    """The newest term with acknowledged records: models of older terms lack these records."""
    leader: str = ""
    """Incarnation of the process that began the newest term; "" before the first."""
    after: int = 0
    """The term of the model with which the newest term began."""

    def begin(self, leader: str, after: int) -> int:
        """Begins the next term.

        Args:
            leader: Incarnation of the leader. A repeated call gets the same answer, and so does an
                earlier call that arrives late.
            after: The term of its model; 0 for a model that was not trained. A master that took
                over may know fewer terms than the trainers.

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
        """Lets a leader that counted as dead continue in its term.

        Raises:
            RefusedError: A later term has begun; or another leader began this term after the
                snapshot from which this master resumed.
        """
        if term < self.newest or (term == self.newest and leader != self.leader):
            raise RefusedError(
                409, f"term {term} is over: another process leads since then", "incarnation"
            )
        self.newest, self.leader = term, leader
        return term

    def acknowledge(self) -> None:
        """Records that records were acknowledged in the newest term."""
        self.acknowledged = self.newest

    def dump(self) -> Json:
        """Returns the terms as JSON."""
        return asdict(self)

    @classmethod
    def load(cls, dumped: Json | None) -> "Terms":
        """Returns the terms that `dump` wrote; older snapshots have none."""
        return cls() if dumped is None else cls(**dumped)


@dataclass(slots=True)
class RewindLog:
    """The rewinds of one data set."""

    count: int = 0
    identity: str = ""
    """Identifies the newest rewind, so that a repeated call changes nothing."""
    newest_records: int = 0
    """Number of records that the newest rewind set back."""
    newest_steps: int = 0
    """Number of steps that the newest rewind set back."""
    generation: int = 0
    """The newest generation of parameter servers for which the data set was set back."""
    ticket: int = 0
    """The ticket of the trainer that started that generation."""
    redone_records: int = 0
    """Number of records that all rewinds together set back, so that they are trained again."""

    @property
    def base(self) -> int:
        """Leases since the newest rewind have greater attempts than this."""
        return self.count * _ATTEMPTS

    def is_before(self, attempt: int) -> bool:
        """Returns whether a lease is older than the newest rewind, so that its training is lost."""
        return self.count > 0 and attempt <= self.base

    @property
    def key(self) -> tuple[int, int]:
        """The generation and ticket of the newest rewind: they give the order of parameter servers' rewinds."""
        return self.generation, self.ticket

    def add(self, identity: str, key: tuple[int, int], records: int, steps: int) -> None:
        """Records a rewind."""
        self.count += 1
        self.identity, self.newest_records, self.newest_steps = identity, records, steps
        self.generation, self.ticket = max(key, self.key)
        self.redone_records = capped(self.redone_records + records)

    def dump(self) -> list[Any]:
        """Returns the rewinds for a snapshot: the fields of this class, in order."""
        return [
            self.count,
            self.identity,
            self.newest_records,
            self.newest_steps,
            self.generation,
            self.ticket,
            self.redone_records,
        ]

    @classmethod
    def load(cls, dumped: list[Any]) -> "RewindLog":
        """Returns the rewinds that `dump` wrote."""
        count, identity, records, steps, generation, ticket, redone_records = dumped
        return cls(count, identity, records, steps, generation, ticket, redone_records)
