"""Leader election: never two, and one again soon, wherever electors are paused."""

from contextlib import AbstractContextManager

from hypothesis import given, settings
from hypothesis import strategies as st

from kube import errors
from kube.api import Stream
from kube.lease import Elector
from kube.request import Request
from lab.fake_api import FakeApi

PAUSES_S = (0.0, 0.0, 1.0, 5.0, 9.0, 14.0, 16.0, 40.0)


class World:
    """Electors on one server, paused wherever a process can be: before and after each request.

    A script of numbers decides what happens; after its end there are no more failures.
    """

    def __init__(self, script: bytes, count: int) -> None:
        self.now_s = 0.0
        self.fake = FakeApi()
        self.script = list(script)
        self.busy: list[int] = []
        self.electors = [self._elector(index) for index in range(count)]

    def _elector(self, index: int) -> Elector:
        api = Paused(self)
        offset_s = 1000.0 * index  # monotonic clocks have nothing to do with each other
        return Elector(api, "n", "l", f"e{index}", clock_s=lambda: self.now_s + offset_s)

    def choose(self, count: int) -> int:
        """The script's next word, 0 to count - 1; 0 at its end."""
        return self.script.pop() % count if self.script else 0

    def tick(self, index: int) -> None:
        """Makes one attempt of an elector that is not in the middle of one."""
        if index in self.busy:
            return
        self.busy.append(index)
        self.electors[index].tick()
        self.busy.remove(index)
        self.check()

    def pause(self) -> None:
        """Time passes, and others may have their turn."""
        for _ in range(1 + self.choose(4)):
            self.now_s += PAUSES_S[self.choose(len(PAUSES_S))]
            self.check()
            if self.choose(2):
                self.tick(self.choose(len(self.electors)))

    def check(self) -> None:
        """The one thing that must never happen."""
        assert sum(elector.is_leader for elector in self.electors) <= 1


class Paused:
    """A connection to the server on which a process can be paused."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, api_request: Request) -> bytes:
        """Sends to the fake with delays; sometimes the response is lost."""
        self._world.pause()
        answer = self._world.fake.send(api_request)
        self._world.pause()
        if self._world.choose(6) == 1:
            raise errors.Unavailable("lost")
        return answer

    def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
        """Leases are not watched."""
        raise NotImplementedError


@settings(deadline=None)
@given(st.binary(min_size=40, max_size=200))
def test_never_two_leaders(script: bytes) -> None:
    """Under any pauses, lost answers, releases and turns; and calm gives exactly one again."""
    world = World(script, count=3)
    while world.script:
        index = world.choose(3)
        world.tick(index)
        if world.choose(8) == 1:
            world.electors[index].release()
        world.pause()
    for _ in range(12):
        world.now_s += 2.0
        for index in range(3):
            world.tick(index)

    assert sum(elector.is_leader for elector in world.electors) == 1
