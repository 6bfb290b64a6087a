"""Rounds of many members: what a poll costs, and what the master asks for."""

import orjson

from master.liveness import Liveness
from master.membership import MAX_POLL_S, SILENT_S, SUSPICIOUS_S, poll_pace_s
from master.rendezvous import Rendezvous
from master.round import WINDOW_S, Round
from tests.master.crowd import Crowd, meet

NAMES = [f"t-{number}" for number in range(40)]


def _formed(names: list[str], **about: str) -> Rendezvous:
    """A rendezvous whose first round has formed, at 1 s."""
    master = Rendezvous(0.0)
    for name in names:
        master.call(meet(name, **about), 0.0)
    master.tick(WINDOW_S)
    for name in names:
        master.call(meet(name, seen=1, at=1, ready=True, known=True), 1.0)
    assert master.round.formed
    return master


def test_a_poll_of_a_member_has_no_list_of_members() -> None:
    """Its size does not depend on theirs; who does not know them receives all."""
    for names in (NAMES[:2], NAMES):
        master = _formed(names)
        known = master.answer(meet(names[0], seen=1, at=1, known=True))
        assert len(orjson.dumps(known)) < 150
        newcomer = master.answer(meet("x", seen=1))
        assert [member["trainer"] for member in newcomer["members"]] == names
        assert len(master.answer(meet(names[0], seen=0, known=True))["members"]) == len(names)


def test_a_member_of_an_earlier_round_receives_what_has_changed() -> None:
    """A loss costs each of a thousand some bytes; who knows no round that counts receives all."""
    master = _formed(NAMES)
    master.leave(NAMES[7], f"{NAMES[7]}-1", 2.0)
    master.call(meet("new"), 2.0)
    master.tick(3.0)
    assert master.round.number == 2
    answer = master.answer(meet(NAMES[0], seen=1, at=1, known=True))

    assert (answer["since"], answer["gone"]) == (1, [7])
    assert [member["trainer"] for member in answer["members"]] == ["new"]
    assert len(orjson.dumps(answer)) < 300
    for call in (meet(NAMES[0], seen=1, at=1), meet(NAMES[0], seen=99, at=1, known=True)):
        assert len(master.answer(call)["members"]) == len(NAMES)


def test_who_took_another_place_makes_the_list_whole() -> None:
    """Its entry has changed: the order of the rest cannot be told by ranks alone."""
    master = _formed(NAMES[:3])
    master.leave(NAMES[2], f"{NAMES[2]}-1", 2.0)
    master.call(meet(NAMES[0], seen=1, at=1, known=True, extra="new"), 2.0)
    master.tick(3.0)
    answer = master.answer(meet(NAMES[0], seen=1, at=1, known=True))

    assert (answer["round"], "since" in answer, len(answer["members"])) == (2, False, 2)


def test_who_only_says_that_it_is_alive_changes_nothing_for_others() -> None:
    """Nobody is looked at: the round's members are not gone through for it."""
    master = _formed(NAMES)
    changes = master.changes
    visited: list[str] = []
    master.round = _Watched(master.round, visited)  # type: ignore[assignment]  # stands in for it
    for name in NAMES:
        master.call(meet(name, seen=1, at=1, ready=True, known=True), 1.5)
    assert (visited, master.changes) == ([], changes)
    master.call(meet(NAMES[0], seen=1, at=1, broken=True, known=True), 1.6)
    assert visited
    assert master.changes > changes


class _Watched:
    """A round that notes what is asked of all its members."""

    def __init__(self, round_: Round, visited: list[str]) -> None:
        self._round, self._visited = round_, visited

    def __getattr__(self, name: str) -> object:
        if name in ("present", "is_ready", "is_impossible", "consists_of", "holdups"):
            self._visited.append(name)
        return getattr(self._round, name)


def test_who_is_silent_is_dropped_although_others_call_all_the_time() -> None:
    """The time limit of each counts from its own last call."""
    master = _formed(["a", "b"])
    now_s = 1.0
    while master.round.number == 1 and now_s < 10.0:
        now_s += 0.1
        master.call(meet("a", seen=1, at=1, ready=True, known=True), now_s)
        next_s = master.next_s()
        if next_s is not None and next_s <= now_s:
            master.tick(now_s)

    assert 1.0 + SILENT_S <= now_s < 1.0 + SILENT_S + 0.5
    assert [slot.trainer for slot in master.round.slots] == ["a"]


def test_a_new_master_asks_for_the_round_that_a_member_knows() -> None:
    """At once, and the call changes nothing; the next one has the claim."""
    members = _formed(["a", "b"]).round.members
    master = Rendezvous(2.0, settles=True)
    short = meet("a", seen=1, at=1, ready=True, known=True)
    master.call(short, 2.0)
    assert master.has_answer(short)
    assert master.answer(short)["claim"] is True
    assert (master.round.number, master.next_s()) == (0, None)
    claim = {"round": 1, "members": members}
    master.call(meet("a", seen=1, at=1, ready=True, claim=claim), 2.1)
    master.call(meet("b", seen=1, at=1, ready=True, known=True), 2.2)

    assert (master.round.number, master.round.formed) == (1, True)
    assert master.answer(short)["claim"] is False


def test_members_of_a_large_round_call_less_often() -> None:
    """100 polls a second of all together; a silent one has 2 s more than its call waits."""
    assert [poll_pace_s(n) for n in (1, 100, 500, 1_000, 4_000)] == [1, 1, 5, 10, MAX_POLL_S]
    crowd = Crowd()
    crowd.arrive(*NAMES)
    crowd.run(1.0)
    assert crowd.master.answer(meet("t-0", seen=1))["wait_s"] == 1.0
    call = meet("t-0", incarnation=crowd.players["t-0"].incarnation, seen=1, at=1, wait_s=10.0)
    crowd.master.call(call, crowd.now_s)
    crowd.players["t-0"].frozen = True
    crowd.run(11.9)
    assert crowd.number == 1
    crowd.run(1.0)
    assert crowd.number == 2


def test_members_of_a_large_round_report_a_wait_one_after_the_other() -> None:
    """100 a second of all together: the first begins a probe; who has no rank reports as early."""
    master = _formed(NAMES)
    limits_s = [master.answer(meet(name, seen=1, known=True))["suspicious_s"] for name in NAMES]

    assert limits_s == [round(SUSPICIOUS_S + rank / 60, 2) for rank in range(len(NAMES))]
    assert master.answer(meet("new"))["suspicious_s"] == SUSPICIOUS_S


def test_the_next_round_has_what_each_member_told_before_it() -> None:
    """A change alone makes no round; a claim carries it to another master."""
    master = _formed(["a", "b"], extra="handle-1")
    assert [member["extra"] for member in master.round.members] == ["handle-1"] * 2
    master.call(meet("a", seen=1, at=1, ready=True, extra="handle-2"), 1.1)
    master.tick(2.0)
    assert master.round.number == 1
    master.leave("b", "b-1", 2.0)
    master.tick(2.5)
    assert master.round.number == 2
    assert [member.get("extra") for member in master.round.members] == ["handle-2"]
    successor = Rendezvous(6.0, settles=True)
    claim = {"round": 2, "members": master.round.members}
    successor.call(meet("a", seen=2, at=2, claim=claim), 6.0)

    assert successor.round.members == master.round.members


def test_heartbeats_of_a_large_job_come_less_often() -> None:
    """250 a second of all together; a trainer is dead after three that did not arrive."""
    liveness = Liveness(2.0)
    liveness.record_call("a", 0.0)
    assert liveness.pace_s == 0.25
    liveness.reset([f"t-{number}" for number in range(1_000)], 0.0)
    assert liveness.pace_s == 4.0
    assert liveness.expiry_command({"t-0": []}, 11.0) is None
    assert liveness.expiry_command({"t-0": []}, 12.5) is not None
