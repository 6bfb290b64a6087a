"""Keys of a round: set, get, wait and add, their bounds, and their end."""

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import edl
import pytest
from edl.errors import Refused, RoundOver
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.round_store import RoundStore

from master import round_keys
from master.membership import Slot
from master.round import WINDOW_S, Round
from master.round_keys import RoundKeys
from runtime.call_checks import RefusedError
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import LIMIT_S, until
from tests.sdk.support.contract import Master
from tests.sdk.support.contract_rendezvous import Caller, poll_until_newer, together

A, B = ("a", "a-1"), ("b", "b-1")


def _round(number: int, *, formed: bool = False) -> Round:
    return Round(number, (Slot(*A, "a:1"), Slot(*B, "b:1")), 0.0, formed)


def _keys(number: int = 1) -> RoundKeys:
    keys = RoundKeys()
    keys.update(_round(number, formed=True), 0, inherited=False)
    return keys


def test_members_share_keys_and_counters() -> None:
    """A counter's value is a decimal number, which `get` returns too."""
    keys = _keys()
    keys.set(1, A, "address", b"\x00\xff")
    assert keys.add(1, A, "arrived", 1, 1) == 1
    assert keys.add(1, B, "arrived", 2, 1) == 3
    assert keys.add(1, B, "arrived", -1, 2) == 2

    assert keys.get(1, B, ["address", "arrived", "missing"]) == {
        "address": b"\x00\xff",
        "arrived": b"2",
    }


def test_an_addition_that_is_sent_twice_counts_once() -> None:
    """Its answer may have been lost."""
    keys = _keys()
    assert [keys.add(1, A, "n", 5, 1), keys.add(1, A, "n", 5, 1)] == [5, 5]
    keys.set(1, A, "text", b"x" * 19)
    with pytest.raises(RefusedError, match="not a whole number"):
        keys.add(1, A, "text", 1, 2)


def test_an_addition_is_known_after_those_of_other_processes_of_the_pod() -> None:
    """All of them call as one member, each with numbers of its own."""
    keys, begins = _keys(), [process << 20 for process in range(8)]
    sums = [keys.add(1, A, "n", 1, begin + 1) for begin in begins]

    assert sums == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [keys.add(1, A, "n", 1, begin + 1) for begin in begins] == sums
    assert [keys.add(1, A, "n", 1, begin + 2) for begin in begins][-1] == 16


def test_keys_end_with_their_round_once_the_next_has_formed() -> None:
    """Members of a round that goes on meanwhile need theirs; those of a void one end at once."""
    keys = _keys()
    keys.set(1, A, "k", b"1")
    newest = _round(2)
    keys.update(newest, 0, inherited=False)
    assert keys.get(1, A, ["k"]) == {"k": b"1"}
    assert keys.get(2, A, ["k"]) == {}
    newest.formed = True
    keys.update(newest, 0, inherited=False)
    with pytest.raises(RefusedError, match="round 1 is over") as caught:
        keys.get(1, A, ["k"])
    assert (caught.value.status, caught.value.field) == (409, "round")
    keys.set(2, A, "k", b"2")
    keys.update(_round(3), 2, inherited=False)
    with pytest.raises(RefusedError, match="round 2 is over"):
        keys.get(2, A, ["k"])


def test_a_round_of_a_previous_master_has_no_keys_here() -> None:
    """Counters would begin anew: the members go on to a later round."""
    keys = RoundKeys()
    keys.update(_round(7, formed=True), 0, inherited=True)
    with pytest.raises(RefusedError, match="at a previous master"):
        keys.set(7, A, "k", b"")
    with pytest.raises(RefusedError, match="x is not in round 1"):
        _keys().set(1, ("x", "x-1"), "k", b"")


def test_keys_and_bytes_of_a_round_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is set again takes its room once."""
    monkeypatch.setattr(round_keys, "MAX_KEYS", 3)
    monkeypatch.setattr(round_keys, "MAX_BYTES", 1_000)
    keys = _keys()
    for _ in range(5):
        keys.set(1, A, "k", b"x" * 800)
    with pytest.raises(RefusedError, match="at most 1000 bytes") as caught:
        keys.set(1, A, "l", b"x" * 50)
    assert caught.value.status == 413
    keys.set(1, A, "k", b"")
    keys.set(1, A, "l", b"")
    keys.set(1, A, "m", b"")
    with pytest.raises(RefusedError, match="at most 3 keys"):
        keys.set(1, A, "n", b"")


def test_keys_that_are_deleted_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as many others; those that are not set are none."""
    monkeypatch.setattr(round_keys, "MAX_KEYS", 2)
    monkeypatch.setattr(round_keys, "MAX_BYTES", 1_000)
    keys = _keys()
    for number in range(20):
        names = [f"\xfc{number}", f"part/{number}"]
        for name in names:
            keys.set(1, A, name, b"x" * 300)
        keys.delete(1, B, [*names, "other"])
        assert keys.get(1, A, names) == {}
    with pytest.raises(RefusedError, match="x is not in round 1"):
        keys.delete(1, ("x", "x-1"), ["k"])


# -- over HTTP -----------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A master in this process."""
    running_master = Served(tmp_path / "journal", heartbeat_s=5.0)
    yield running_master
    running_master.stop()


Store = Callable[[Caller], RoundStore]


@pytest.fixture
def store(served: Served) -> Iterator[Store]:
    """Makes the store of a caller's round; its connection is closed after the test."""
    clients: list[Client] = []

    def make(caller: Caller) -> RoundStore:
        connection = Connection(f"http://127.0.0.1:{served.port}", TOKEN)
        clients.append(Client(connection, caller.who["trainer"], caller.who["incarnation"]))
        return RoundStore(clients[-1], caller.newest_round)

    yield make
    for client in clients:
        client.close()


def test_a_member_waits_for_keys_of_the_others(served: Served, store: Store) -> None:
    """`get` and `wait` return when all are set, without polling."""
    callers = together(Master(served.port, TOKEN), "a", "b")
    ours, theirs = (store(caller) for caller in callers)
    values: list[bytes] = []
    reader = threading.Thread(target=lambda: values.append(ours.get("b/address", LIMIT_S)))
    reader.start()
    until(lambda: served.service.key_calls.waiting == 1)
    theirs.set("b/address", b"10.0.0.2:7")
    reader.join(LIMIT_S)

    assert values == [b"10.0.0.2:7"]
    assert [ours.add("barrier", 1), theirs.add("barrier", 1)] == [1, 2]
    ours.wait(["b/address", "barrier"], LIMIT_S)
    ours.wait([])
    with pytest.raises(RoundOver, match="'never' was not set within 0 s"):
        ours.get("never", timeout_s=0.0)
    with pytest.raises(Refused, match="key"):
        ours.set("", b"")
    ours.delete(["b/address", "never"])
    assert not theirs.check(["b/address"])
    assert served.service.key_calls.waiting == 0


def test_who_waits_for_a_key_learns_that_the_round_is_over(served: Served, store: Store) -> None:
    """At once, by the news of the next round."""
    first, second = together(Master(served.port, TOKEN), "a", "b")
    keys, errors = store(first), []

    def wait() -> None:
        try:
            keys.get("k", LIMIT_S)
        except RoundOver as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: served.service.key_calls.waiting == 1)
    number = first.newest_round
    second.breaks()
    first.breaks()
    poll_until_newer(first, second, after=number)
    waiting.join(LIMIT_S)

    assert len(errors) == 1
    assert f"round {number} is over" in errors[0]


def test_a_value_that_is_not_base64_is_refused(served: Served) -> None:
    """By name, like all that is wrong."""
    master = Master(served.port, TOKEN)
    (caller,) = together(master, "a")
    body: dict[str, Any] = {**caller.who, "round": 1, "key": "k", "value": "é"}
    status, answer = master.ask("POST", "/v1/rounds/keys/set", body)
    assert (status, answer["error"]["field"]) == (422, "value")
    body["value"] = base64.b64encode(b"x").decode()
    assert master.ask("POST", "/v1/rounds/keys/set", body) == (200, {})


def test_heartbeats_of_one_pod_come_in_one_call(served: Served) -> None:
    """Each has its own answer; one that is unknown does not refuse the others."""
    master = Master(served.port, TOKEN)
    master.join("a")
    known: dict[str, Any] = {"trainer": "a", "incarnation": "a-1", "held": []}
    unknown = {"trainer": "x", "incarnation": "x-1"}
    status, answer = master.ask("POST", "/v1/heartbeats", {"heartbeats": [known, unknown]})

    assert status == 200
    assert [set(entry) for entry in answer["answers"]] == [
        {"lost", "state", "generation", "pace_s"},
        {"error"},
    ]
    assert answer["answers"][1]["error"]["field"] == "trainer"


def test_a_program_has_the_store_of_its_round_and_what_the_others_told(served: Served) -> None:
    """Without a port of its own; what it tells later comes with the next round."""
    url = f"http://127.0.0.1:{served.port}"
    sessions = [edl.Session(edl.Settings(url, TOKEN, name)) for name in ("a", "b")]
    seen: list[tuple[int, list[str], bytes]] = []

    def run(member: edl.Session) -> None:
        with edl.Rounds(extra="first", member=member) as rounds:
            with pytest.raises(edl.RoundOver, match="has not started"):
                rounds.store.set("k", b"")
            for entered in rounds:
                rounds.tell("later")
                rounds.ready()
                if entered.world_size < 2:
                    until(lambda: rounds.changed)
                    continue
                rounds.store.set(f"address/{entered.rank}", member.settings.trainer.encode())
                peer = rounds.store.get(f"address/{1 - entered.rank}", LIMIT_S)
                seen.append((entered.rank, [m.extra for m in entered.members], peer))
                rounds.store.add("done", 1)
                until(lambda: rounds.store.get("done") == b"2")
                rounds.finish()

    threads = [threading.Thread(target=run, args=(member,)) for member in sessions]
    served.clock.hold()  # one round for both, however slow the machine is
    for thread in threads:
        thread.start()
    until(lambda: served.service.long_polls.waiting == len(threads))
    served.pass_s(WINDOW_S)
    served.clock.resume()
    for thread in threads:
        thread.join(LIMIT_S)
    for member in sessions:
        member.leave()

    assert sorted(rank for rank, _, _ in seen) == [0, 1]
    assert {peer for _, _, peer in seen} == {b"a", b"b"}
    assert all(extras in (["first"] * 2, ["later", "first"]) for _, extras, _ in seen)
