"""Members of a rendezvous, and what the master heard of them."""

import threading

from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous

from tests.sdk.support.fake_rendezvous import Json
from tests.sdk.support.loops import LIMIT_S, until
from tests.sdk.support.master_server import Server

PATH = "/v1/rendezvous"


def begin(*members: Rendezvous, after: int = 0) -> list[Round]:
    """All enter their next round, and are ready in it."""
    entered_rounds = [member.next(after) for member in members]
    for member, entered in zip(members, entered_rounds, strict=True):
        member.ready(entered.number)
    return entered_rounds


def together(server: Server, *members: Rendezvous) -> int:
    """The number of a round that has formed with all of them; each runs as a program would."""
    numbers: list[int] = []

    def run(member: Rendezvous) -> None:
        entered = member.next(0)
        member.ready(entered.number)
        while entered.world_size < len(members):
            entered = member.next(entered.number)
            member.ready(entered.number)
        numbers.append(entered.number)

    threads = [threading.Thread(target=run, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    until(lambda: server.master.rendezvous.formed)
    assert len(numbers) == len(members)
    assert {server.master.rendezvous.round} == set(numbers)
    return numbers[0]


def probe(server: Server, trainer: str = "a") -> None:
    """Two probes: the answer to the second proves that the member has applied what came before."""

    def answered() -> bool:
        newest = server.master.rendezvous.probe
        return any(body["probe"] == newest for body in member_bodies(server, trainer))

    for _ in range(2):
        with server.master.changed:
            server.master.rendezvous.ask_all()
            server.master.changed.notify_all()
        until(answered)


def member_bodies(server: Server, trainer: str = "a") -> list[Json]:
    """Bodies of a member's calls."""
    return [body for body in server.bodies(PATH) if body["trainer"] == trainer]
