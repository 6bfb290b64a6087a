"""Limits on new commands: what the ledger could execute, but must not accept from callers. Pure.

Commands of a journal are not checked: they were answered, perhaps by a master without these limits.
"""

from edl_protocol.master import MAX_EVALUATIONS

from master.bounds import MAX_AHEAD, check_assigned
from master.commands import Command, Evaluate, Join, Lead, Save, Term
from master.ledger import Ledger
from runtime.call_checks import RefusedError


def check(ledger: Ledger, command: Command) -> None:
    """Checks a command before it is executed.

    Raises:
        RefusedError: It exceeds a limit; the error names the field.
    """
    match command:
        case Evaluate():
            _check_evaluations(ledger, command)
        case Join(lead=Lead() as lead):
            _check_term(ledger, lead, "lead.term")
        case Term():
            _check_term(ledger, command, "term")
        case Save():
            check_assigned("newest", command.newest, ledger.versions + MAX_AHEAD)
        case _:
            pass


def _check_term(ledger: Ledger, lead: Lead | Term, name: str) -> None:
    """Refuses a term that is far beyond the newest of the data set."""
    dataset = ledger.datasets.get(lead.dataset)
    if dataset is not None:
        check_assigned(name, lead.term, dataset.terms.newest + MAX_AHEAD)


def _check_evaluations(ledger: Ledger, command: Evaluate) -> None:
    """Refuses an evaluation of a data set that has the most pending evaluations already."""
    dataset = ledger.datasets.get(command.dataset)
    if dataset is not None and dataset.evaluations_full:
        raise RefusedError(
            409,
            f"{dataset.name} has {MAX_EVALUATIONS} pending evaluations: ask again when some are done",
            "dataset",
        )
