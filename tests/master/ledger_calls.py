"""Short forms of a ledger's commands for tests."""

from typing import Any

import orjson

from master import rewinds
from master.commands import Describe, Retry, Rewind, from_json, to_json
from master.ledger import Ledger
from runtime.call_checks import Json


def shape(records: int = 40, **changes: Any) -> Json:
    """A data set's description, as the protocol passes it on."""
    description: Json = {
        "records": records,
        "task_records": 10,
        "epochs": 1,
        "shuffle_seed": None,
        "kind": "training",
        "overlap": False,
    }
    return {**description, **changes}


def opened(*trainers: str, **changes: Any) -> Ledger:
    """A ledger with a data set "train" of 4 tasks, and trainers that have joined."""
    ledger = Ledger("digits")
    ledger.execute(Describe("train", shape(**changes)))
    for name in trainers:
        join(ledger, name)
    return ledger


def who(name: str) -> Json:
    """The fields with which a trainer identifies itself."""
    return {"trainer": name, "incarnation": f"{name}-1"}


def join(ledger: Ledger, name: str, **fields: Any) -> Json:
    """A trainer joins."""
    return ledger.execute(from_json({"do": "join", **who(name), **fields}))


def work(ledger: Ledger, name: str, want: int = 0, **fields: Any) -> Json:
    """A trainer calls for work."""
    return ledger.execute(from_json({"do": "work", **who(name), "want": want, **fields}))


def ref(lease: Json) -> Json:
    """The reference to a lease."""
    return {"task": lease["task"], "attempt": lease["attempt"]}


def end_pauses(ledger: Ledger) -> None:
    """Ends the pauses of all failed tasks, as the service does when their time is over."""
    failing = list(ledger.failing())
    ready = [entry.task for entry in failing if entry.paused]
    ledger.execute(Retry(ready, [entry.task for entry in failing if not entry.paused]))


def done(ledger: Ledger, name: str, leases: list[Json], **fields: Any) -> list[str]:
    """A trainer acknowledges tasks; returns the result of each."""
    entries = [{**ref(lease), "steps": 1, **fields} for lease in leases]
    results: list[str] = work(ledger, name, done=entries)["results"]
    return results


def position_of(ledger: Ledger) -> Json:
    """The position in the data set "train"."""
    return rewinds.position(ledger.datasets["train"])


def rewind(ledger: Ledger, generation: int, position: Json | None, **fields: Any) -> Json:
    """Trainer a restores a model for parameter servers, from the command's line in the journal."""
    command = Rewind(
        trainer="a",
        incarnation="a-1",
        dataset="train",
        version=0,
        event=f"generation-{generation - 1}",
        reason="servers restarted",
        position=position,
        generation=generation,
        **fields,
    )
    return ledger.execute(from_json(orjson.loads(orjson.dumps(to_json(command)))))
