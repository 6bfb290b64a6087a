"""Commands, and the journal's form of them, which masters before and after this one read and write."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import orjson
import pytest
from edl_protocol import master as protocol

from master import commands, incoming, journal
from master.commands import (
    Acknowledgement,
    Command,
    Describe,
    EndSettling,
    Evaluate,
    Expire,
    ExpireLeaked,
    Fail,
    Join,
    Lead,
    LeaseEntry,
    Leave,
    LostShare,
    More,
    Rollback,
    Save,
    Saved,
    TaskFailure,
    Term,
    Work,
)
from master.durable_ledger import DurableLedger
from master.ledger import Ledger
from master.protocol import check
from runtime.call_checks import Json
from tests.master.ledger_calls import shape, who

RECORDED = Path(__file__).parent / "recorded"
"""The journal of a master whose commands were JSON objects, and its ledger at the end."""
LINES = (RECORDED / "journal-1.log").read_bytes().splitlines(keepends=True)


ONE_OF_EACH: list[tuple[Command, str]] = [
    (Describe("train", shape(shuffle_seed=3, epochs=2)), "85723823"),
    (Join("b", "b-1", lead=Lead("train", 0, begins=True)), "aae6a65e"),
    (
        Join(
            "a",
            "a-2",
            (Acknowledgement("train/0/2", 1, 10, 0, {}),),
            (LeaseEntry("train/0/0", 3),),
            trained={"train/0/0": 6},
        ),
        "f0af9319",
    ),
    (Term("b", "b-1", "train", 1), "8aa60249"),
    (
        Work(
            "a",
            "a-1",
            (Acknowledgement("train/0/2", 1, 10, 2, {"loss": 0.5, "acc": None}),),
            (TaskFailure("train/0/3", 1, "ValueError: torn", 7),),
            (LeaseEntry("train/0/0", 1, 4),),
            0,
            ["training"],
            ["train"],
            2,
        ),
        "35aecfed",
    ),
    (Work("b", "b-1", want=4), "687630a4"),
    (More("a", "a-1", 1, ["training"], ["train"], 3), "90a4d97d"),
    (Leave("d", "d-1", trained={"train/0/0": 3}), "2a5dece0"),
    (Expire({"a": {"train/0/0": 6}}), "0e3e4d69"),
    (ExpireLeaked({"b": ["train/0/1"]}), "30f5ae22"),
    (EndSettling(), "6b81f88b"),
    (Save("a", "a-1", 3), "161c087b"),
    (Saved("1-4", "k/1", 5, ok=True), "71b3bc27"),
    (Evaluate(7, "test"), "1c6afef3"),
    (Fail("f", "f-1", "the loss is nan"), "8d8e51aa"),
    (
        Rollback("a", "a-1", "e-1", "server 1 was restarted", 3, 30, LostShare("a", 1, 10, 0, 0)),
        "c77fbdae",
    ),
    (Rollback("b", "b-1", "e-2", "no share", 0, 0), "86db6bbb"),
]


@pytest.mark.parametrize(
    ("command", "checksum"), ONE_OF_EACH, ids=[checksum for _, checksum in ONE_OF_EACH]
)
def test_each_command_has_its_line(command: Command, checksum: str) -> None:
    """Byte for byte as an older master wrote it, and it is read again as it was."""
    (line,) = (line for line in LINES if line.startswith(checksum.encode()))

    assert journal.line(commands.to_json(command)) == line
    assert commands.from_json(orjson.loads(line[9:])) == command


def test_a_journal_of_an_older_master_is_read_and_written_again_as_it_was() -> None:
    """Every line of it."""
    again = [journal.line(commands.to_json(commands.from_json(line))) for line in _values()]

    assert again == LINES


@pytest.fixture(name="recorded")
def _recorded(tmp_path: Path) -> Iterator[DurableLedger]:
    copytree(RECORDED, tmp_path / "journal")
    durable_ledger = DurableLedger(Ledger("digits"), tmp_path / "journal")
    yield durable_ledger
    durable_ledger.close()


def test_a_journal_of_an_older_master_leads_to_the_same_ledger(recorded: DurableLedger) -> None:
    """Its trainers, totals, checkpoints and rollbacks; it did not count steps by data set."""
    dumped = recorded.ledger.dump()
    for dataset in dumped["datasets"].values():
        assert dataset.pop("steps") <= dumped["steps"]
    assert dumped == orjson.loads((RECORDED / "ledger.json").read_bytes())


def test_what_an_older_master_did_not_write_has_a_default() -> None:
    """And what this one does not know is ignored."""
    line: Json = {"do": "join", **who("a"), "colour": "red"}

    assert commands.from_json(line) == Join("a", "a-1")
    assert commands.from_json({"do": "save", **who("a")}) == Save("a", "a-1", 0)


def test_a_line_without_what_a_command_needs_is_an_error() -> None:
    """As is one of an unknown command."""
    with pytest.raises(TypeError, match="incarnation"):
        commands.from_json({"do": "join", "trainer": "a"})
    with pytest.raises(LookupError):
        commands.from_json({"do": "dance"})


def test_a_call_for_work_is_written_without_defaults() -> None:
    """Calls for work are the most frequent lines of the journal."""
    done = [{"task": "t/0/1", "attempt": 1, "records": 8, "metrics": {"loss": None}}]
    failed = [{"task": "t/0/3", "attempt": 1, "error": "e", "transient": False}]
    sent: Json = {**who("a"), "done": done, "failed": failed, "call": 3}
    empty = {"back": [], "want": 0, "wait_s": 1.5, "kinds": None}
    body = check(protocol.WorkRequest, orjson.dumps({**sent, **empty}))

    assert commands.to_json(incoming.work(body)) == {"do": "work", **sent}


def _values() -> list[Json]:
    return [orjson.loads(line[9:]) for line in LINES]
