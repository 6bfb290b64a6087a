"""What calls say, as commands of the ledger."""

from master import incoming
from master.commands import TaskFailure
from master.protocol import WorkRequest


def test_a_failure_says_how_many_records_before_it_were_trained() -> None:
    """They are counted. Without any the command says nothing, as an older trainer does."""
    error = "ValueError: torn"
    failed = {"task": "train/0/0", "attempt": 1, "error": error, "record": 9}
    call = {"trainer": "a", "incarnation": "a-1", "failed": [{**failed, "counted": 9}, failed]}

    command = incoming.work(WorkRequest.model_validate(call))

    assert command.failed == (
        TaskFailure("train/0/0", 1, error, 9, transient=False, counted=9),
        TaskFailure("train/0/0", 1, error, 9, transient=False, counted=None),
    )
