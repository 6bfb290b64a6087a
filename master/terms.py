"""Terms of a data set's leaders: which process holds the newest model. Pure.

A group of trainers that trains one model begins a term with each round. Its leader reports in
which term its model was trained last; a model that lacks acknowledged records cannot lead
(decision 0014).
"""

from dataclasses import asdict, dataclass

from master.types import Json
from runtime.call_checks import RefusedError


@dataclass(slots=True)
class Terms:
    """The terms of one data set; all 0 where its trainers do not train one model together."""

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
