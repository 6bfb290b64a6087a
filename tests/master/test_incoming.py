"""What calls say, as commands of the ledger."""

import json

from edl_protocol.master import JoinRequest, WorkRequest

from master import incoming
from master.commands import Acknowledgement, TaskFailure
from master.protocol import check


def test_a_failure_says_how_many_records_before_it_were_trained() -> None:
    """They are counted. Without any the command says nothing, as an older trainer does."""
    error = "ValueError: torn"
    failed = {"task": "train/0/0", "attempt": 1, "error": error, "record": 9}
    call = {"trainer": "a", "incarnation": "a-1", "failed": [{**failed, "counted": 9}, failed]}

    command = incoming.work(check(WorkRequest, json.dumps(call).encode()))

    assert command.failed == (
        TaskFailure("train/0/0", 1, error, 9, transient=False, counted=9),
        TaskFailure("train/0/0", 1, error, 9, transient=False, counted=None),
    )


def test_a_mean_that_is_not_finite_is_none() -> None:
    """The journal could not hold it; all others do not change."""
    done = b'{"task":"t","attempt":1,"metrics":{"a":NaN,"b":Infinity,"c":0.5,"d":null}}'
    call = b'{"trainer":"a","incarnation":"a-1","done":[' + done + b"]}"
    metrics = {"a": None, "b": None, "c": 0.5, "d": None}

    assert incoming.work(check(WorkRequest, call)).done == (
        Acknowledgement("t", 1, metrics=metrics),
    )
    assert incoming.join(check(JoinRequest, call), {}).done[0].metrics == metrics
