"""What the SDK relies on of a master's rendezvous: facts that hold on the fake and the real one."""

from collections.abc import Callable
from typing import Any

import pytest
from edl import clock

from tests.sdk.contract import Json, Master

_MOST_S = 10.0


class Caller:
    """One process, which polls when it is asked to."""

    def __init__(self, master: Master, trainer: str, incarnation: str = "", **about: Any) -> None:
        self._master = master
        self.who: Json = {"trainer": trainer, "incarnation": incarnation or f"{trainer}-1"}
        self.about: Json = {"address": f"{trainer}:1", "code": {}, **about}
        self.seen = self.at = self.probe = 0
        self.ready = self.broken = self.formed = False
        self.members: list[Json] = []

    @property
    def names(self) -> list[str]:
        """Of the members that it knows of."""
        return [one["trainer"] for one in self.members]

    def body(self, **more: Any) -> Json:
        """Of a call."""
        mine = self.who["trainer"] in self.names
        return {
            **self.who,
            **self.about,
            "seen": self.seen,
            "at": self.at,
            "ready": self.ready,
            "broken": self.broken,
            "left": False,
            "busy": False,
            "waiting_s": 0.0,
            "probe": self.probe,
            "claim": {"round": self.seen, "members": self.members} if mine else None,
            "wait_s": 0.0,
            **more,
        }

    def ask(self, **more: Any) -> tuple[int, Json]:
        """Status and body of the answer to a call."""
        return self._master.ask("POST", "/v1/rendezvous", self.body(**more))

    def poll(self, **more: Any) -> Json:
        """A call that must work."""
        status, answer = self.ask(**more)
        assert status == 200, answer
        self.probe = answer["probe"]
        if answer["round"] >= self.seen:
            self.seen, self.members, self.formed = (
                answer[name] for name in ("round", "members", "formed")
            )
        return answer

    def enter(self, *, ready: bool = True) -> None:
        """Its program begins the newest round."""
        self.at, self.ready, self.broken = self.seen, ready, False
        self.poll()

    def breaks(self) -> None:
        """Its program can do nothing more."""
        self.broken = True
        self.poll()

    def leave(self) -> None:
        """It says so."""
        status, answer = self._master.ask("POST", "/v1/rendezvous/leave", self.who)
        assert (status, answer) == (200, {})


def meet(*callers: Caller, after: int = 0) -> None:
    """All poll until each of them knows a round after this one."""
    until_s = clock.monotonic_s() + _MOST_S
    while any(one.seen <= after for one in callers):
        assert clock.monotonic_s() < until_s, [one.seen for one in callers]
        for one in callers:
            one.poll(wait_s=0.02)


def together(master: Master, *trainers: str) -> list[Caller]:
    """Members whose round has formed, one after the other older than the next."""
    callers: list[Caller] = []
    for trainer in trainers:
        callers.append(Caller(master, trainer))
        meet(*callers, after=callers[0].seen)
        for one in callers:
            one.enter()
    for one in callers:
        one.poll()
    return callers


class MeetingContract:
    """The facts. Subclasses give the fixtures `master` and `take_over`, as for `MasterContract`."""

    def test_the_first_one_trains_alone(self, master: Master) -> None:
        """It has rank 0 of one."""
        (one,) = together(master, "a")

        assert one.members == [{"trainer": "a", "incarnation": "a-1", "address": "a:1"}]
        assert (one.seen, one.formed) == (1, True)

    def test_ranks_are_the_order_in_which_they_came(self, master: Master) -> None:
        """Everybody hears the same."""
        callers = together(master, "c", "a", "b")

        assert [one.names for one in callers] == [["c", "a", "b"]] * 3
        assert all(one.formed for one in callers)

    def test_a_round_has_formed_when_all_are_ready(self, master: Master) -> None:
        """A call that waits hears of it."""
        one, other = together(master, "a", "b")
        number = one.seen
        one.breaks()
        meet(one, other, after=number)
        one.enter()
        assert not one.formed
        other.enter()
        assert one.poll(wait_s=5.0)["formed"] is True

    def test_no_round_comes_while_one_is_forming(self, master: Master) -> None:
        """Newcomers are in the one after."""
        one, other = together(master, "a", "b")
        number = one.seen
        one.breaks()
        meet(one, other, after=number)
        late = Caller(master, "c")
        for _ in range(10):
            late.poll(wait_s=0.05)
            one.poll()
            other.poll()
        assert late.names == ["a", "b"]
        one.enter()
        other.enter()
        meet(late, one, other, after=number + 1)

        assert late.names == ["a", "b", "c"]

    def test_who_leaves_is_in_no_later_round(self, master: Master) -> None:
        """Though it calls on; leaving again is fine."""
        one, other = together(master, "a", "b")
        number = one.seen
        one.leave()
        one.leave()
        meet(one, other, after=number)
        number = one.seen
        other.enter()
        for _ in range(5):
            one.poll(wait_s=0.1)

        assert (one.seen, one.names) == (number, ["b"])

    def test_who_has_left_stays_out_with_a_new_master(
        self, master: Master, take_over: Callable[[], None]
    ) -> None:
        """It says so in each call."""
        one, other = together(master, "a", "b")
        take_over()
        one.poll(left=True)
        number = other.seen
        while other.seen <= number:
            other.poll(wait_s=0.05)
            one.poll(left=True)

        assert other.names == ["b"]

    def test_broken_is_a_new_number_for_the_same_members(self, master: Master) -> None:
        """The old round is void: nobody can go on in it."""
        one, other = together(master, "a", "b")
        number = one.seen
        one.breaks()
        meet(one, other, after=number)

        assert one.names == other.names == ["a", "b"]
        assert one.poll()["void"] == number

    def test_another_program_is_refused(self, master: Master) -> None:
        """By the entry that differs."""
        together(master, "a")
        status, answer = Caller(master, "b", code={"model": "2"}).ask()

        assert (status, answer["error"]["field"]) == (409, "code.model")

    def test_a_newer_process_replaces_the_one_before(self, master: Master) -> None:
        """Which is refused; the newer one is the youngest member."""
        old, other = together(master, "a", "b")
        new = Caller(master, "a", "a-2")
        meet(new, other, after=other.seen)
        status, answer = old.ask()

        assert (status, answer["error"]["field"]) == (409, "incarnation")
        assert new.names == ["b", "a"]

    def test_a_round_goes_on_with_a_new_master(
        self, master: Master, take_over: Callable[[], None]
    ) -> None:
        """Its members tell it; a newcomer that was heard before is younger than they."""
        one, other = together(master, "a", "b")
        number = one.seen
        take_over()
        for each in (one, other, one):
            each.poll()
        late = Caller(master, "c")
        assert (one.seen, one.formed) == (number, True)
        meet(late, one, other, after=number)

        assert late.names == ["a", "b", "c"]
        assert late.seen == number + 1

    def test_a_call_with_news_is_answered_at_once(self, master: Master) -> None:
        """Whatever time it may wait."""
        (one,) = together(master, "a")
        begun_s = clock.monotonic_s()
        one.poll(seen=0, wait_s=20.0)
        one.poll(probe=one.probe + 7, wait_s=20.0)

        assert clock.monotonic_s() - begun_s < 20.0  # neither has waited for its whole time

    def test_a_trainer_can_end_the_job(self, master: Master) -> None:
        """Its reason is in the status, and others are told to stop."""
        master.describe()
        one, other = master.join("trainer-0"), master.join("trainer-1")
        one.ok("POST", "/v1/fail", reason="step 7: the loss is nan")
        one.ok("POST", "/v1/fail", reason="something else")
        status = master.ask("GET", "/v1/status")[1]

        assert status["state"] == "failed"
        assert status["reason"] == "trainer-0: step 7: the loss is nan"
        assert other.work(1)["state"] == "stop"

    def test_setbacks_are_counted(self, master: Master) -> None:
        """With who told them first and why; one event is one, with the most that was told of it."""
        one, other = master.join("trainer-0"), master.join("trainer-1")
        for event, by, steps in (("a", one, 2), ("b", one, 1), ("b", other, 3), ("b", one, 1)):
            told = {"reason": "server 1 died", "steps": steps, "records": 10 * steps}
            assert by.ok("POST", "/v1/setbacks", event=event, **told) == {}
        found = master.ask("GET", "/v1/status")[1]["setbacks"]

        assert (found["count"], found["steps"], found["records"]) == (2, 5, 50)
        assert found["newest"][-1] == {
            "by": "trainer-0",
            "event": "b",
            "reason": "server 1 died",
            "steps": 3,
            "records": 30,
        }

    def test_shares_of_a_setback_are_added(self, master: Master) -> None:
        """Each once; what is on its way is taken off what was told of all."""
        crew = [master.join(f"trainer-{place}") for place in range(2)]
        for place, pending in ((0, 1), (1, 1), (1, 1)):
            share = {"holder": f"h-{place}", "steps": 2, "records": 20}
            share |= {"pending_steps": pending, "pending_records": 10 * pending}
            told = {"reason": "server 1 died", "steps": 6, "records": 60, "share": share}
            assert crew[place].ok("POST", "/v1/setbacks", event="g", **told) == {}
        found = master.ask("GET", "/v1/status")[1]["setbacks"]

        assert (found["count"], found["steps"], found["records"]) == (1, 4, 40)
        assert found["newest"][-1].keys() == {"by", "event", "reason", "steps", "records"}

    @pytest.mark.parametrize("path", ["/v1/fail", "/v1/setbacks"])
    def test_only_who_has_joined_can_say_such_things(self, master: Master, path: str) -> None:
        """404, as for work."""
        body: Json = {"trainer": "x", "incarnation": "y", "reason": "z"}
        if path == "/v1/setbacks":
            body.update(event="e", steps=0, records=0)
        status, answer = master.ask("POST", path, body)

        assert (status, answer["error"]["field"]) == (404, "trainer")
