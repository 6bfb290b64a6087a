"""Whose model of a data set is the newest: the terms of those who train it together. Pure.

A group of trainers begins a term with each round. Whoever begins one says of which term its model
is; a model that lacks acknowledged records cannot lead (decision 0014).
"""

from dataclasses import asdict, dataclass
from typing import Any

from master.errors import RefusedError

Json = dict[str, Any]


@dataclass(slots=True)
class Terms:
    """Of one data set; all 0 where its trainers do not train one model together."""

    newest: int = 0
    """The newest that was begun."""
    acknowledged: int = 0
    """The newest in which records were acknowledged: a model of an older one lacks them."""
    leader: str = ""
    """Incarnation that began the newest."""
    after: int = 0
    """The term of whose model it went on."""

    def begin(self, leader: str, after: int) -> int:
        """The next term.

        Args:
            leader: Incarnation of whoever leads in it; the same call again gets the same answer,
                and so does an earlier one that comes late.
            after: The term of its model, 0 for a model that was not trained. A master that was
                moved may know of fewer terms than its trainers.

        Raises:
            RefusedError: The model lacks records that were acknowledged.
        """
        if self.newest and leader == self.leader and after <= self.after:
            return self.newest
        if after < self.acknowledged:
            raise RefusedError(
                409,
                f"the model is of term {after}, but records were acknowledged in term "
                f"{self.acknowledged}: take the newest model over, or say that it is lost",
                "term",
            )
        self.newest = max(self.newest, after) + 1
        self.leader, self.after = leader, after
        return self.newest

    def resume(self, leader: str, term: int) -> int:
        """A leader that the master has missed for a while goes on in its term.

        Raises:
            RefusedError: A later one was begun; or this one by another leader, before a snapshot
                of which this master knows.
        """
        if term < self.newest or (term == self.newest and leader != self.leader):
            raise RefusedError(
                409, f"term {term} is over: another process leads since then", "incarnation"
            )
        self.newest, self.leader = term, leader
        return term

    def acknowledge(self) -> None:
        """Records were acknowledged, by whoever leads now."""
        self.acknowledged = self.newest

    def dump(self) -> Json:
        """As JSON."""
        return asdict(self)

    @classmethod
    def load(cls, dumped: Json | None) -> "Terms":
        """Those that `dump` wrote; older books have none."""
        return cls() if dumped is None else cls(**dumped)
