"""Short ways to speak with a ledger in tests."""

from typing import Any

from master.ledger import Ledger

Json = dict[str, Any]


def shape(records: int = 40, **changes: Any) -> Json:
    """A description, as the protocol hands it on."""
    found: Json = {
        "records": records,
        "task_records": 10,
        "epochs": 1,
        "shuffle_seed": None,
        "kind": "training",
        "overlap": False,
    }
    return {**found, **changes}


def opened(*trainers: str, **changes: Any) -> Ledger:
    """Books with a data set "train" of 4 tasks, and trainers that have joined."""
    ledger = Ledger("digits")
    ledger.execute({"do": "describe", "name": "train", "shape": shape(**changes)})
    for name in trainers:
        join(ledger, name)
    return ledger


def who(name: str) -> Json:
    """How a trainer says who it is."""
    return {"trainer": name, "incarnation": f"{name}-1"}


def join(ledger: Ledger, name: str, **more: Any) -> Json:
    """It joins."""
    return ledger.execute({"do": "join", **who(name), **more})


def work(ledger: Ledger, name: str, want: int = 0, **more: Any) -> Json:
    """It calls for work."""
    return ledger.execute({"do": "work", **who(name), "want": want, **more})


def ref(lease: Json) -> Json:
    """How a lease is named."""
    return {"task": lease["task"], "attempt": lease["attempt"]}


def done(ledger: Ledger, name: str, leases: list[Json], **more: Any) -> list[str]:
    """It trained tasks; what the master says of each."""
    entries = [{**ref(lease), "steps": 1, **more} for lease in leases]
    results: list[str] = work(ledger, name, done=entries)["results"]
    return results
