"""Terms: which process has the newest model of a data set."""

from typing import Any

import pytest

from master.commands import from_json
from master.ledger import Ledger
from master.model_history import Terms
from runtime.call_checks import Json, RefusedError

GROUP = "edl:group"


class Group:
    """The ledger of a job whose trainers lead a group one after the other."""

    def __init__(self) -> None:
        self.ledger = Ledger("digits")
        shape: Json = {"records": 40, "task_records": 10, "epochs": 1, "shuffle_seed": None}
        shape |= {"kind": "training", "overlap": True}
        self.do("describe", name="points", shape=shape)

    def do(self, command: str, **about: Any) -> Json:
        """Executes a command."""
        return self.ledger.execute(from_json({"do": command, **about}))

    def lead(self, process: str, term: int, *, begins: bool = True, **fields: Any) -> int:
        """A process joins in the group's name; returns its term."""
        lead = {"dataset": "points", "term": term, "begins": begins}
        answer = self.do("join", trainer=GROUP, incarnation=process, lead=lead, **fields)
        return int(answer["term"])

    def next_term(self, process: str, term: int) -> int:
        """The leader continues with other members; returns its term."""
        about = {"trainer": GROUP, "incarnation": process, "dataset": "points"}
        return int(self.do("term", **about, term=term)["term"])

    def train(self, process: str) -> None:
        """Leases a task and acknowledges it."""
        who = {"trainer": GROUP, "incarnation": process}
        task = self.do("work", **who, want=1)["tasks"][0]
        self.do("work", **who, done=[{"task": task["task"], "attempt": task["attempt"]}])

    def refused(self, process: str, term: int, **about: Any) -> str | None:
        """The field for which a leader is refused, which changes nothing."""
        before = self.ledger.dump()
        with pytest.raises(RefusedError) as error:
            self.lead(process, term, **about)
        assert self.ledger.dump() == before
        return error.value.field


def test_each_round_has_a_later_term() -> None:
    """Whether the same process leads it or another."""
    group = Group()

    assert group.lead("a", 0) == 1
    assert group.next_term("a", 1) == 2
    assert group.lead("b", 2) == 3


def test_a_call_that_is_repeated_begins_one_term() -> None:
    """Its answer was lost; what it reported as done is acknowledged by then."""
    group = Group()
    group.lead("a", 0)
    task = group.do("work", trainer=GROUP, incarnation="a", want=1)["tasks"][0]
    done = [{"task": task["task"], "attempt": task["attempt"]}]

    assert [group.lead("b", 1, done=done) for _ in range(2)] == [2, 2]
    assert [group.next_term("b", 2) for _ in range(2)] == [3, 3]


def test_a_model_without_records_that_were_acknowledged_cannot_lead() -> None:
    """The leader keeps what it has leased and trained."""
    group = Group()
    group.lead("a", 0)
    group.lead("b", 1)
    group.train("b")

    assert group.refused("c", 1) == "term"
    assert group.refused("c", 0) == "term"
    group.train("b")


def test_a_term_in_which_nothing_was_acknowledged_makes_no_model_old() -> None:
    """Its leader died at once: a model of the previous term has all records."""
    group = Group()
    group.lead("a", 0)
    group.train("a")
    group.lead("b", 1)

    assert group.lead("c", 1) == 3


def test_whoever_says_that_the_newest_model_is_lost_leads_once() -> None:
    """It reports the newest term; a model of that term is old after its first record."""
    group = Group()
    group.lead("a", 0)
    group.train("a")
    term = group.ledger.datasets["points"].progress()["term"]

    assert group.lead("new", term) == 2
    group.train("new")

    assert group.refused("a", 1) == "term"


def test_a_leader_that_was_missed_goes_on_in_its_term() -> None:
    """Unless another leads now, or did and has ended."""
    group = Group()
    group.lead("a", 0)
    group.do("expire", trainers={GROUP: {}})

    assert group.lead("a", 1, begins=False) == 1
    group.lead("b", 1)
    assert group.refused("a", 1, begins=False) == "incarnation"
    group.do("leave", trainer=GROUP, incarnation="b")
    assert group.refused("a", 1, begins=False) == "incarnation"


def test_a_call_that_comes_late_begins_no_term() -> None:
    """Its sender leads in a later term since; another term would make all models old."""
    group = Group()
    assert [group.lead("a", after) for after in (0, 1, 2)] == [1, 2, 3]

    assert group.lead("a", 1) == 3
    group.train("a")
    assert group.lead("b", 3) == 4


def test_two_leaders_never_go_on_in_the_same_term() -> None:
    """A master with an older snapshot assigns a number again that another leader had."""
    group = Group()
    group.lead("a", 0)
    group.do("expire", trainers={GROUP: {}})

    assert group.refused("b", 1, begins=False) == "incarnation"
    assert group.lead("a", 1, begins=False) == 1


def test_a_master_that_went_back_believes_its_trainers() -> None:
    """It knows fewer terms than they: its snapshot is older."""
    assert Terms(3, 3, "a", 2).begin("b", 7) == 8
    terms = Terms(3, 3, "a", 2)
    assert terms.resume("b", 7) == 7
    assert terms.begin("c", 7) == 8


def test_terms_are_in_the_snapshot() -> None:
    """A restarted master refuses an old model too; older snapshots have no terms."""
    group = Group()
    group.lead("a", 0)
    group.train("a")
    dumped = group.ledger.dump()
    group.ledger = Ledger("digits")
    group.ledger.load(dumped)

    assert group.refused("b", 0) == "term"
    del dumped["datasets"]["points"]["terms"]
    group.ledger.load(dumped)
    assert group.lead("b", 0) == 1


def test_a_group_trains_on_a_data_set_that_is_described() -> None:
    """The error names the field."""
    group = Group()
    with pytest.raises(RefusedError) as error:
        group.do(
            "join",
            trainer=GROUP,
            incarnation="a",
            lead={"dataset": "others", "term": 0, "begins": True},
        )
    assert (error.value.status, error.value.field) == (404, "dataset")


def test_a_later_ticket_has_a_greater_version() -> None:
    """Also where this ledger does not know of newer checkpoints."""
    group = Group()
    group.lead("a", 0)
    who = {"trainer": GROUP, "incarnation": "a"}

    assert group.do("save", **who, newest=7)["version"] == 8
    assert group.do("save", **who, newest=2)["version"] == 9


def test_who_led_before_may_still_write_a_checkpoint() -> None:
    """Its ticket is valid until the next leader asks for one."""
    group = Group()
    group.lead("a", 0)
    tickets = [group.do("save", trainer=GROUP, incarnation="a")["ticket"]]
    group.lead("b", 1)
    checkpoint = {"path": "kept", "step": 3, "ok": True}
    group.do("saved", ticket=tickets[0], **checkpoint)
    assert group.ledger.checkpoint is not None

    tickets += [group.do("save", trainer=GROUP, incarnation=name)["ticket"] for name in ("b", "b")]
    with pytest.raises(RefusedError) as error:
        group.do("saved", ticket=tickets[1], **checkpoint)
    assert error.value.field == "ticket"
