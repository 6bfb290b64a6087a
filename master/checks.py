"""What a ledger would carry out, but is refused to those who call: it would spoil the books. Pure.

Commands of a journal are not checked: they were answered, perhaps by a master without these bounds.
"""

from typing import Any

from master.bounds import MOST_AHEAD, MOST_ROUNDS, check_given
from master.errors import RefusedError
from master.ledger import Ledger

Json = dict[str, Any]


def check(ledger: Ledger, command: Json) -> None:
    """Looks at a command before it is carried out.

    Raises:
        RefusedError: It is beyond a bound; the field is named.
    """
    kind = command["do"]
    if kind == "evaluate":
        _check_place(ledger, command)
    elif kind == "join" and command.get("lead") is not None:
        _check_term(ledger, command["lead"], "lead.term")
    elif kind == "term":
        _check_term(ledger, command, "term")
    elif kind == "save":
        check_given("newest", command.get("newest", 0), ledger.versions + MOST_AHEAD)


def _check_term(ledger: Ledger, lead: Json, name: str) -> None:
    """A term must not be far beyond the data set's newest."""
    dataset = ledger.datasets.get(lead["dataset"])
    if dataset is not None:
        check_given(name, lead["term"], dataset.terms.newest + MOST_AHEAD)


def _check_place(ledger: Ledger, command: Json) -> None:
    """There must be a place for one more evaluation."""
    dataset = ledger.datasets.get(command["dataset"])
    if dataset is not None and dataset.crowded:
        raise RefusedError(
            409,
            f"{dataset.name} has {MOST_ROUNDS} evaluations still to do: ask again when some are done",
            "dataset",
        )
