"""Limits on new commands: what the ledger could execute, but must not accept from callers. Pure.

Commands of a journal are not checked: they were answered, perhaps by a master without these limits.
"""

from master.bounds import MOST_AHEAD, MOST_EVALUATIONS, check_assigned
from master.errors import RefusedError
from master.ledger import Ledger
from master.types import Json


def check(ledger: Ledger, command: Json) -> None:
    """Checks a command before it is executed.

    Raises:
        RefusedError: It exceeds a limit; the error names the field.
    """
    kind = command["do"]
    if kind == "evaluate":
        _check_evaluations(ledger, command)
    elif kind == "join" and command.get("lead") is not None:
        _check_term(ledger, command["lead"], "lead.term")
    elif kind == "term":
        _check_term(ledger, command, "term")
    elif kind == "save":
        check_assigned("newest", command.get("newest", 0), ledger.versions + MOST_AHEAD)


def _check_term(ledger: Ledger, lead: Json, name: str) -> None:
    """Refuses a term that is far beyond the newest of the data set."""
    dataset = ledger.datasets.get(lead["dataset"])
    if dataset is not None:
        check_assigned(name, lead["term"], dataset.terms.newest + MOST_AHEAD)


def _check_evaluations(ledger: Ledger, command: Json) -> None:
    """Refuses an evaluation of a data set that has the most pending evaluations already."""
    dataset = ledger.datasets.get(command["dataset"])
    if dataset is not None and dataset.evaluations_full:
        raise RefusedError(
            409,
            f"{dataset.name} has {MOST_EVALUATIONS} pending evaluations: ask again when some are done",
            "dataset",
        )
