from collections.abc import Collection
from dataclasses import replace

from reconciler.masters.poll_schedule import Poll, PollSchedule, PollTarget

NOW_S = 1000.0
TARGET = PollTarget("ml", "net-master", "10.0.0.1", "secret")


class PollDriver:
    """Starts polls as the schedule allows; the master of each job has its own address and namespace."""

    def __init__(self, *uids: str) -> None:
        self.schedule = PollSchedule()
        self.targets = {uid: replace(TARGET, address=uid, namespace=uid) for uid in uids}
        self.now_s = NOW_S

    def begin(self, free: int = 32, over: Collection[str] = ()) -> list[Poll]:
        """Starts the polls that are due."""
        return self.schedule.begin(self.targets, self.now_s, free, over)

    def poll_all(self, over: Collection[str] = ()) -> list[str]:
        """Uids of the jobs polled now; each of their masters answers at once."""
        started = self.begin(over=over)
        for poll in started:
            self.schedule.end(poll, self.now_s, answered=True)
        return [poll.uid for poll in started]


def test_a_master_is_asked_at_once_and_then_every_two_seconds() -> None:
    """Counted from its answer."""
    driver = PollDriver("a")
    (poll,) = driver.begin()
    driver.now_s += 0.5
    driver.schedule.end(poll, driver.now_s, answered=True)
    driver.now_s += 1.9
    early = driver.poll_all()
    driver.now_s += 0.1

    assert early == []
    assert driver.poll_all() == ["a"]


def test_a_master_that_does_not_answer_is_asked_less_and_less_often() -> None:
    """Each pause is twice the one before, and half a minute at most."""
    driver = PollDriver("a")
    asked_s: list[float] = []
    for _ in range(140):
        for poll in driver.begin():
            asked_s.append(driver.now_s - NOW_S)
            driver.schedule.end(poll, driver.now_s, answered=False)
        driver.now_s += 1.0

    assert asked_s == [0, 4, 12, 28, 58, 88, 118]


def test_a_master_that_answers_again_is_asked_as_often_as_before() -> None:
    """Its silence of before does not count."""
    driver = PollDriver("a")
    for answered in (False, False, True):
        (poll,) = driver.begin()
        driver.schedule.end(poll, driver.now_s, answered=answered)
        driver.now_s += poll.pause_s

    assert driver.now_s == NOW_S + 4 + 8 + 2
    assert driver.poll_all() == ["a"]


def test_a_question_that_is_under_way_is_not_asked_again() -> None:
    """However long it takes."""
    driver = PollDriver("a")
    (poll,) = driver.begin()
    driver.now_s += 60.0
    meanwhile = driver.begin()
    driver.schedule.end(poll, driver.now_s, answered=True)
    driver.now_s += 2.0

    assert meanwhile == []
    assert driver.poll_all() == ["a"]


def test_a_target_that_changes_is_asked_at_once() -> None:
    """A new report is expected, or pod or token changed; the same target waits for its interval."""
    driver = PollDriver("a")
    driver.poll_all()
    driver.targets = {"a": replace(driver.targets["a"])}
    same = driver.poll_all()
    uids: list[list[str]] = []
    for change in ({"generation": 1}, {"address": "10.0.0.2"}, {"token": "other"}):
        driver.targets = {"a": replace(driver.targets["a"], **change)}
        uids.append(driver.poll_all())

    assert same == []
    assert uids == [["a"], ["a"], ["a"]]


def test_the_answer_of_a_target_of_before_does_not_count() -> None:
    """A late, perhaps final report of the former master would end the job of the present one."""
    driver = PollDriver("a", "b")
    old, dropped = driver.begin()
    driver.targets = {"a": replace(TARGET, address="10.0.0.2")}
    (new,) = driver.begin()

    assert not driver.schedule.end(old, driver.now_s, answered=True)
    assert not driver.schedule.end(dropped, driver.now_s, answered=True)
    assert driver.schedule.end(new, driver.now_s, answered=True)


def test_a_job_that_is_over_is_not_asked_again() -> None:
    """Neither at its time nor because its target changes; others are."""
    driver = PollDriver("a", "b")
    driver.poll_all()
    driver.now_s += 2.0
    at_its_time = driver.poll_all(over={"a"})
    driver.targets = {uid: replace(TARGET, generation=1) for uid in driver.targets}

    assert at_its_time == ["b"]
    assert driver.poll_all(over={"a"}) == ["b"]


def test_few_are_asked_at_one_time_and_who_waited_longest_comes_first() -> None:
    """Ten, or as many as there is room for; nobody is passed over."""
    uids = [str(number) for number in range(25)]
    driver = PollDriver(*uids)
    rounds = []
    for _ in range(3):
        rounds.append(driver.poll_all())
        driver.now_s += 0.1
    driver.now_s += 1.75  # those of the first round are due, and of the second not yet
    driver.targets["new"] = replace(TARGET, address="new")
    again = driver.begin(free=11)
    driver.now_s += 10.0

    assert rounds == [uids[:10], uids[10:20], uids[20:]]
    assert [poll.uid for poll in again] == uids[:10]
    assert [poll.uid for poll in driver.begin(free=3)] == ["new", *uids[10:12]]
    assert driver.begin(free=0) == driver.begin(free=-1) == []


def test_masters_of_one_namespace_do_not_keep_those_of_others_waiting() -> None:
    """Sixteen of its polls are open at one time, whatever they wait for; one more waits for one of them."""
    slow = [f"slow-{number}" for number in range(40)]
    driver = PollDriver(*slow, "honest")
    driver.targets |= {uid: replace(TARGET, address=uid, namespace="slow") for uid in slow}
    first, second = driver.begin(), driver.begin()
    driver.schedule.end(first[0], driver.now_s, answered=True)

    assert [poll.uid for poll in [*first, *second]] == [*slow[:16], "honest"]
    assert [poll.uid for poll in driver.begin()] == slow[16:17]


def test_a_namespace_whose_masters_answer_a_lot_is_asked_less_often() -> None:
    """A MiB a second, of which one may be ahead, counted together; what others answer does not count for it."""
    driver = PollDriver("a", "b", "c")
    driver.targets |= {uid: replace(TARGET, address=uid, namespace="ml") for uid in "ab"}
    driver.poll_all()
    for uid, count in (("a", 4 << 20), ("b", 1 << 20)):
        driver.schedule.charge(driver.targets[uid].namespace, count, driver.now_s)
    driver.now_s += 3.9
    others = driver.poll_all()
    driver.now_s += 0.1

    assert others == ["c"]
    assert driver.poll_all() == ["a", "b"]


def test_a_job_that_comes_back_is_asked_at_once() -> None:
    """Its schedule was dropped with it."""
    driver = PollDriver("a")
    driver.poll_all()
    driver.targets, targets = {}, driver.targets
    driver.begin()
    driver.targets = targets

    assert driver.poll_all() == ["a"]


def test_tokens_stay_out_of_logs() -> None:
    """The text of a target contains its address, not its token."""
    assert repr(TARGET) == "PollTarget(ml/net-master at '10.0.0.1')"
