"""The contract of the rendezvous: facts that hold for the fake and for the real master."""

from collections.abc import Callable
from typing import Any

import pytest
from edl import clock

from tests.sdk.support.contract import Json, Master

_MAX_S = 10.0


class Caller:
    """A process that polls the rendezvous when a test calls it."""

    def __init__(self, master: Master, trainer: str, incarnation: str = "", **about: Any) -> None:
        self._master = master
        self.who: Json = {"trainer": trainer, "incarnation": incarnation or f"{trainer}-1"}
        self.about: Json = {"address": f"{trainer}:1", "code": {}, **about}
        self.newest_round = self.at = self.probe = 0
        self.ready = self.broken = self.formed = False
        self.members: list[Json] = []

    @property
    def names(self) -> list[str]:
        """Names of the members of the newest round."""
        return [member["trainer"] for member in self.members]

    def body(self, **fields: Any) -> Json:
        """The body of a call."""
        is_member = self.who["trainer"] in self.names
        return {
            **self.who,
            **self.about,
            "seen": self.newest_round,
            "at": self.at,
            "ready": self.ready,
            "broken": self.broken,
            "left": False,
            "busy": False,
            "waiting_s": 0.0,
            "probe": self.probe,
            "claim": {"round": self.newest_round, "members": self.members} if is_member else None,
            "wait_s": 0.0,
            **fields,
        }

    def ask(self, **fields: Any) -> tuple[int, Json]:
        """Status and body of the answer to a call."""
        return self._master.ask("POST", "/v1/rendezvous", self.body(**fields))

    def poll(self, **fields: Any) -> Json:
        """A call that must work."""
        status, answer = self.ask(**fields)
        assert status == 200, answer
        self.probe = answer["probe"]
        if answer["round"] >= self.newest_round:
            self.newest_round, self.members, self.formed = (
                answer[name] for name in ("round", "members", "formed")
            )
        return answer

    def enter(self, *, ready: bool = True) -> None:
        """Its program enters the newest round."""
        self.at, self.ready, self.broken = self.newest_round, ready, False
        self.poll()

    def breaks(self) -> None:
        """Its program cannot continue in its round."""
        self.broken = True
        self.poll()

    def leave(self) -> None:
        """Leaves the rendezvous."""
        status, answer = self._master.ask("POST", "/v1/rendezvous/leave", self.who)
        assert (status, answer) == (200, {})


def poll_until_newer(*callers: Caller, after: int = 0) -> None:
    """All poll until each has received a round after this one."""
    until_s = clock.monotonic_s() + _MAX_S
    while any(caller.newest_round <= after for caller in callers):
        assert clock.monotonic_s() < until_s, [caller.newest_round for caller in callers]
        for caller in callers:
            caller.poll(wait_s=0.02)


def together(master: Master, *trainers: str) -> list[Caller]:
    """Members of a round that has formed, in order of age, the oldest first."""
    callers: list[Caller] = []
    for trainer in trainers:
        callers.append(Caller(master, trainer))
        poll_until_newer(*callers, after=callers[0].newest_round)
        for caller in callers:
            caller.enter()
    for caller in callers:
        caller.poll()
    return callers


class RendezvousContract:
    """The facts. Subclasses give the fixtures `master` and `take_over`, as for `MasterContract`."""

    def test_the_first_one_trains_alone(self, master: Master) -> None:
        """It has rank 0 of one."""
        (caller,) = together(master, "a")

        assert caller.members == [{"trainer": "a", "incarnation": "a-1", "address": "a:1"}]
        assert (caller.newest_round, caller.formed) == (1, True)

    def test_ranks_are_the_order_in_which_they_came(self, master: Master) -> None:
        """All receive the same list."""
        callers = together(master, "c", "a", "b")

        assert [caller.names for caller in callers] == [["c", "a", "b"]] * 3
        assert all(caller.formed for caller in callers)

    def test_a_round_has_formed_when_all_are_ready(self, master: Master) -> None:
        """A call that waits returns."""
        caller, peer = together(master, "a", "b")
        number = caller.newest_round
        caller.breaks()
        poll_until_newer(caller, peer, after=number)
        caller.enter()
        assert not caller.formed
        peer.enter()
        assert caller.poll(wait_s=5.0)["formed"] is True

    def test_no_round_comes_while_one_is_forming(self, master: Master) -> None:
        """Newcomers are in the one after."""
        caller, peer = together(master, "a", "b")
        number = caller.newest_round
        caller.breaks()
        poll_until_newer(caller, peer, after=number)
        late = Caller(master, "c")
        for _ in range(10):
            late.poll(wait_s=0.05)
            caller.poll()
            peer.poll()
        assert late.names == ["a", "b"]
        caller.enter()
        peer.enter()
        poll_until_newer(late, caller, peer, after=number + 1)

        assert late.names == ["a", "b", "c"]

    def test_a_member_that_leaves_is_in_no_later_round(self, master: Master) -> None:
        """Though it calls on; leaving again is fine."""
        caller, peer = together(master, "a", "b")
        number = caller.newest_round
        caller.leave()
        caller.leave()
        poll_until_newer(caller, peer, after=number)
        number = caller.newest_round
        peer.enter()
        for _ in range(5):
            caller.poll(wait_s=0.1)

        assert (caller.newest_round, caller.names) == (number, ["b"])

    def test_a_member_that_left_stays_out_with_a_new_master(
        self, master: Master, take_over: Callable[[], None]
    ) -> None:
        """It repeats this in each call."""
        caller, peer = together(master, "a", "b")
        take_over()
        caller.poll(left=True)
        number = peer.newest_round
        while peer.newest_round <= number:
            peer.poll(wait_s=0.05)
            caller.poll(left=True)

        assert peer.names == ["b"]

    def test_broken_is_a_new_number_for_the_same_members(self, master: Master) -> None:
        """The old round is void: no member can continue in it."""
        caller, peer = together(master, "a", "b")
        number = caller.newest_round
        caller.breaks()
        poll_until_newer(caller, peer, after=number)

        assert caller.names == peer.names == ["a", "b"]
        assert caller.poll()["void"] == number

    def test_another_program_is_refused(self, master: Master) -> None:
        """By the entry that differs."""
        together(master, "a")
        status, answer = Caller(master, "b", code={"model": "2"}).ask()

        assert (status, answer["error"]["field"]) == (409, "code.model")

    def test_a_newer_process_replaces_the_one_before(self, master: Master) -> None:
        """Which is refused; the newer one is the youngest member."""
        old, other = together(master, "a", "b")
        new = Caller(master, "a", "a-2")
        poll_until_newer(new, other, after=other.newest_round)
        status, answer = old.ask()

        assert (status, answer["error"]["field"]) == (409, "incarnation")
        assert new.names == ["b", "a"]

    def test_a_round_continues_with_a_new_master(
        self, master: Master, take_over: Callable[[], None]
    ) -> None:
        """Its members tell it; a newcomer that was heard before is younger than they."""
        caller, peer = together(master, "a", "b")
        number = caller.newest_round
        take_over()
        for member in (caller, peer, caller):
            member.poll()
        late = Caller(master, "c")
        assert (caller.newest_round, caller.formed) == (number, True)
        poll_until_newer(late, caller, peer, after=number)

        assert late.names == ["a", "b", "c"]
        assert late.newest_round == number + 1

    def test_a_call_with_a_change_is_answered_at_once(self, master: Master) -> None:
        """Whatever time it may wait."""
        (caller,) = together(master, "a")
        begun_s = clock.monotonic_s()
        caller.poll(seen=0, wait_s=20.0)
        caller.poll(probe=caller.probe + 7, wait_s=20.0)

        assert clock.monotonic_s() - begun_s < 20.0  # neither has waited for its whole time

    def test_a_trainer_can_end_the_job(self, master: Master) -> None:
        """Its reason is in the status, and the others receive a stop."""
        master.describe()
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        trainer.ok("POST", "/v1/fail", reason="step 7: the loss is nan")
        trainer.ok("POST", "/v1/fail", reason="something else")
        status = master.ask("GET", "/v1/status")[1]

        assert status["state"] == "failed"
        assert status["reason"] == "trainer-0: step 7: the loss is nan"
        assert peer.work(1)["state"] == "stop"

    def test_rollbacks_are_counted(self, master: Master) -> None:
        """With the first reporter and the reason; once per event, with its largest numbers."""
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        for event, by, steps in (
            ("a", trainer, 2),
            ("b", trainer, 1),
            ("b", peer, 3),
            ("b", trainer, 1),
        ):
            rollback = {"reason": "server 1 died", "steps": steps, "records": 10 * steps}
            assert by.ok("POST", "/v1/setbacks", event=event, **rollback) == {}
        rollbacks = master.ask("GET", "/v1/status")[1]["setbacks"]

        assert (rollbacks["count"], rollbacks["steps"], rollbacks["records"]) == (2, 5, 50)
        assert rollbacks["newest"][-1] == {
            "by": "trainer-0",
            "event": "b",
            "reason": "server 1 died",
            "steps": 3,
            "records": 30,
        }

    def test_shares_of_a_rollback_are_added(self, master: Master) -> None:
        """Each once; pending work is subtracted from the reported total."""
        crew = [master.join(f"trainer-{place}") for place in range(2)]
        for place, pending in ((0, 1), (1, 1), (1, 1)):
            share = {"holder": f"h-{place}", "steps": 2, "records": 20}
            share |= {"pending_steps": pending, "pending_records": 10 * pending}
            rollback = {"reason": "server 1 died", "steps": 6, "records": 60, "share": share}
            assert crew[place].ok("POST", "/v1/setbacks", event="g", **rollback) == {}
        rollbacks = master.ask("GET", "/v1/status")[1]["setbacks"]

        assert (rollbacks["count"], rollbacks["steps"], rollbacks["records"]) == (1, 4, 40)
        assert rollbacks["newest"][-1].keys() == {"by", "event", "reason", "steps", "records"}

    @pytest.mark.parametrize("path", ["/v1/fail", "/v1/setbacks"])
    def test_only_a_joined_trainer_can_report_these(self, master: Master, path: str) -> None:
        """404, as for work."""
        body: Json = {"trainer": "x", "incarnation": "y", "reason": "z"}
        if path == "/v1/setbacks":
            body.update(event="e", steps=0, records=0)
        status, answer = master.ask("POST", path, body)

        assert (status, answer["error"]["field"]) == (404, "trainer")
