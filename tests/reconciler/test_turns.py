from collections.abc import Collection
from dataclasses import replace

from reconciler.turns import Target, Turn, Turns

NOW_S = 1000.0
TARGET = Target("ml", "net-master", "10.0.0.1", "secret")


class Asker:
    """Asks when its turns say so; every job has a master of its own address."""

    def __init__(self, *uids: str) -> None:
        self.turns = Turns()
        self.targets = {uid: replace(TARGET, address=uid) for uid in uids}
        self.now_s = NOW_S

    def begin(self, free: int = 32, over: Collection[str] = ()) -> list[Turn]:
        """The questions of now."""
        return self.turns.begin(self.targets, self.now_s, free, over)

    def ask(self, over: Collection[str] = ()) -> list[str]:
        """Uids of those that are asked now, of whom each answers at once."""
        begun = self.begin(over=over)
        for turn in begun:
            self.turns.end(turn, self.now_s, answered=True)
        return [turn.uid for turn in begun]


def test_a_master_is_asked_at_once_and_then_every_two_seconds() -> None:
    """Counted from its answer."""
    asker = Asker("a")
    (turn,) = asker.begin()
    asker.now_s += 0.5
    asker.turns.end(turn, asker.now_s, answered=True)
    asker.now_s += 1.9
    early = asker.ask()
    asker.now_s += 0.1

    assert early == []
    assert asker.ask() == ["a"]


def test_a_master_that_does_not_answer_is_asked_less_and_less_often() -> None:
    """Each pause is twice the one before, and half a minute at most."""
    asker = Asker("a")
    asked_s: list[float] = []
    for _ in range(140):
        for turn in asker.begin():
            asked_s.append(asker.now_s - NOW_S)
            asker.turns.end(turn, asker.now_s, answered=False)
        asker.now_s += 1.0

    assert asked_s == [0, 4, 12, 28, 58, 88, 118]


def test_a_master_that_answers_again_is_asked_as_often_as_before() -> None:
    """Its silence of before does not count."""
    asker = Asker("a")
    for answered in (False, False, True):
        (turn,) = asker.begin()
        asker.turns.end(turn, asker.now_s, answered=answered)
        asker.now_s += turn.pause_s

    assert asker.now_s == NOW_S + 4 + 8 + 2
    assert asker.ask() == ["a"]


def test_a_question_that_is_under_way_is_not_asked_again() -> None:
    """However long it takes."""
    asker = Asker("a")
    (turn,) = asker.begin()
    asker.now_s += 60.0
    meanwhile = asker.begin()
    asker.turns.end(turn, asker.now_s, answered=True)
    asker.now_s += 2.0

    assert meanwhile == []
    assert asker.ask() == ["a"]


def test_a_target_that_changes_is_asked_at_once() -> None:
    """News are expected, the pod is another, or so is the token; the same target waits its turn."""
    asker = Asker("a")
    asker.ask()
    asker.targets = {"a": replace(asker.targets["a"])}
    same = asker.ask()
    asked: list[list[str]] = []
    for change in ({"turn": 1}, {"address": "10.0.0.2"}, {"token": "other"}):
        asker.targets = {"a": replace(asker.targets["a"], **change)}
        asked.append(asker.ask())

    assert same == []
    assert asked == [["a"], ["a"], ["a"]]


def test_the_answer_of_a_target_of_before_does_not_count() -> None:
    """A late, perhaps last word of the master before would end the job of the one that works."""
    asker = Asker("a", "b")
    old, gone = asker.begin()
    asker.targets = {"a": replace(TARGET, address="10.0.0.2")}
    (new,) = asker.begin()

    assert not asker.turns.end(old, asker.now_s, answered=True)
    assert not asker.turns.end(gone, asker.now_s, answered=True)
    assert asker.turns.end(new, asker.now_s, answered=True)


def test_a_job_that_is_over_is_not_asked_again() -> None:
    """Neither in turn nor because its target changes; others are."""
    asker = Asker("a", "b")
    asker.ask()
    asker.now_s += 2.0
    in_turn = asker.ask(over={"a"})
    asker.targets = {uid: replace(TARGET, turn=1) for uid in asker.targets}

    assert in_turn == ["b"]
    assert asker.ask(over={"a"}) == ["b"]


def test_few_are_asked_at_one_time_and_who_waited_longest_comes_first() -> None:
    """Ten, or as many as there is room for; nobody is passed over."""
    uids = [str(number) for number in range(25)]
    asker = Asker(*uids)
    rounds = []
    for _ in range(3):
        rounds.append(asker.ask())
        asker.now_s += 0.1
    asker.now_s += 1.75  # those of the first round are due, and of the second not yet
    asker.targets["new"] = replace(TARGET, address="new")
    again = asker.begin(free=11)
    asker.now_s += 10.0

    assert rounds == [uids[:10], uids[10:20], uids[20:]]
    assert [turn.uid for turn in again] == uids[:10]
    assert [turn.uid for turn in asker.begin(free=3)] == ["new", *uids[10:12]]
    assert asker.begin(free=0) == asker.begin(free=-1) == []


def test_a_job_that_comes_back_is_asked_at_once() -> None:
    """It was forgotten with its turn."""
    asker = Asker("a")
    asker.ask()
    asker.targets, targets = {}, asker.targets
    asker.begin()
    asker.targets = targets

    assert asker.ask() == ["a"]


def test_tokens_stay_out_of_logs() -> None:
    """A target says where it is, not what it knows."""
    assert repr(TARGET) == "Target(ml/net-master at '10.0.0.1')"
