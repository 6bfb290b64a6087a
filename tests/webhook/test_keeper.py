import base64
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import webhook.keeper
from kube import request
from kube.errors import Conflict, Forbidden, KubeError, Unavailable
from kube.fake import FakeApi
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, clock
from tests.webhook.cluster import KINDS, read, with_registrations
from tests.webhook.waiting import until
from webhook import certificates
from webhook.certificates import REGISTRATION, SECRET, Store
from webhook.keeper import Keeper

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = certificates.names(SYSTEM_NAMESPACE, ("127.0.0.1",))


class Wall:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """The time it is set to."""
        return self.now


@pytest.fixture
def api() -> FakeApi:
    """A cluster with our webhook configurations."""
    return with_registrations()


@pytest.fixture
def wall() -> Wall:
    """A clock to set."""
    return Wall()


@pytest.fixture
def keeper(api: FakeApi, wall: Wall, tmp_path: Path) -> Keeper:
    """One replica's keeper."""
    return _keeper(api, tmp_path, wall)


def _keeper(api: FakeApi, directory: Path, wall: Wall) -> Keeper:
    return Keeper(api, SYSTEM_NAMESPACE, HOSTS, directory, wall)


def _stored(api: FakeApi) -> Store:
    store = certificates.read(read(api, request.SECRETS, SECRET, SYSTEM_NAMESPACE))
    assert store is not None
    return store


def _published(api: FakeApi) -> set[bytes]:
    found = [read(api, kind, REGISTRATION) for kind in KINDS.values()]
    return {bundle for registration in found for bundle in certificates.bundles(registration)}


def test_first_round_makes_everything(api: FakeApi, keeper: Keeper) -> None:
    """Secret, bundles and file are there after one round, and the file is ours alone."""
    keeper.round()

    store = _stored(api)
    assert _published(api) == {certificates.bundle(store)}
    assert keeper.file.read_bytes() == store.leaf.cert + store.leaf.key
    assert stat.S_IMODE(keeper.file.stat().st_mode) == 0o600
    assert keeper.kept.expires == NOW + certs.LEAF_LIFE


def test_second_round_changes_nothing(api: FakeApi, keeper: Keeper) -> None:
    """Looking again writes nothing anywhere."""
    keeper.round()
    before = [read(api, kind, REGISTRATION) for kind in KINDS.values()]
    file = keeper.file.stat().st_mtime_ns
    keeper.round()

    assert [read(api, kind, REGISTRATION) for kind in KINDS.values()] == before
    assert keeper.file.stat().st_mtime_ns == file


def test_without_registrations_there_is_a_certificate(wall: Wall, tmp_path: Path) -> None:
    """The configurations may be installed later."""
    api = FakeApi()
    keeper = _keeper(api, tmp_path / "new" / "folder", wall)
    keeper.round()

    assert keeper.file.exists()
    assert _stored(api).next_ca is None


def test_replicas_that_start_together_agree(api: FakeApi, wall: Wall, tmp_path: Path) -> None:
    """Five at once end with one CA, one leaf, one bundle."""
    keepers = [_keeper(api, tmp_path / str(number), wall) for number in range(5)]
    threads = [threading.Thread(target=keeper.try_round) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for keeper in keepers:
        keeper.round()

    store = _stored(api)
    assert {keeper.file.read_bytes() for keeper in keepers} == {store.leaf.cert + store.leaf.key}
    assert _published(api) == {certificates.bundle(store)}


def test_overwritten_bundle_is_put_back(api: FakeApi, keeper: Keeper) -> None:
    """A tool that applies the deploy file again takes our bundle away; it comes back."""
    keeper.round()
    emptied = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    api.send(request.json_patch(request.MUTATINGWEBHOOKS, None, REGISTRATION, [emptied]))
    keeper.round()

    assert _published(api) == {certificates.bundle(_stored(api))}


def test_damaged_secret_is_made_again(api: FakeApi, keeper: Keeper) -> None:
    """Somebody's edit costs one round."""
    keeper.round()
    damage = {"data": {"tls.key": None}}
    api.send(request.merge_patch(request.SECRETS, SYSTEM_NAMESPACE, SECRET, damage))
    keeper.round()

    assert keeper.file.read_bytes() == _stored(api).leaf.cert + _stored(api).leaf.key


def test_rotation_of_the_ca(api: FakeApi, keeper: Keeper, wall: Wall) -> None:
    """Old and new are published first; the leaf changes a while after; all in four rounds."""
    keeper.round()
    old = _stored(api).ca
    wall.now = NOW + certs.CA_LIFE - certificates.CA_RENEW_BEFORE + timedelta(days=1)
    keeper.round()
    waiting, published = _stored(api), _published(api)
    keeper.round()
    wall.now += certificates.SETTLE
    keeper.round()

    switched = _stored(api)
    assert waiting.next_ca is not None
    assert published == {certificates.bundle(waiting)}
    assert waiting.ca == old
    assert switched.ca == waiting.next_ca
    assert keeper.file.read_bytes() == switched.leaf.cert + switched.leaf.key
    assert _published(api) == published


def test_lost_race_reads_again(api: FakeApi, keeper: Keeper) -> None:
    """A write that came second is not an error."""
    api.faults.fail_next(Conflict("changed"), 2, match=lambda asked: asked.method == "POST")
    keeper.round()

    assert keeper.file.exists()


def test_endless_race_is_an_error(api: FakeApi, keeper: Keeper) -> None:
    """After some tries the round fails, to be tried again later."""
    api.faults.fail_next(Conflict("changed"), 99, match=lambda asked: asked.method == "POST")

    with pytest.raises(Conflict, match="keep changing"):
        keeper.round()


def test_forbidden_registration_does_not_stop_serving(api: FakeApi, keeper: Keeper) -> None:
    """Without the right to patch, the certificate is still served, and the error is shown."""
    api.faults.fail_next(Forbidden("no"), 99, match=lambda asked: asked.method == "PATCH")

    assert not keeper.try_round()
    assert keeper.file.exists()
    assert "no" in keeper.kept.error


def test_lost_answer_of_the_first_write(api: FakeApi, keeper: Keeper) -> None:
    """A Secret that was made though nobody said so is the one that is used."""
    api.faults.lose_answers(1, match=lambda asked: asked.method == "POST")

    assert not keeper.try_round()
    assert keeper.try_round()
    assert keeper.kept.error == ""
    assert keeper.file.read_bytes().startswith(_stored(api).leaf.cert)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper without the pause between two rounds; the minute between two looks stays."""
    monkeypatch.setattr(webhook.keeper, "_SETTLE_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_thread_puts_a_bundle_back_at_once(api: FakeApi, tmp_path: Path) -> None:
    """The watch wakes the keeper; nobody waits for the minute to be over."""
    keeper = Keeper(api, SYSTEM_NAMESPACE, HOSTS, tmp_path, clock.now)
    keeper.start()
    try:
        until(lambda: b"" not in _published(api))
        wanted = _published(api)
        emptied = {"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}
        api.send(request.json_patch(request.VALIDATINGWEBHOOKS, None, REGISTRATION, [emptied]))
        until(lambda: _published(api) == wanted)
    finally:
        keeper.stop()

    until(lambda: not any(thread.name == "certificates" for thread in threading.enumerate()))


@pytest.mark.usefixtures("at_once")
def test_thread_outlives_an_outage(api: FakeApi, tmp_path: Path) -> None:
    """While the API server is away the keeper tries on, with pauses."""
    gone: KubeError = Unavailable("away")
    api.faults.fail_next(gone, 1_000_000)  # until it is back: the watches ask as well
    keeper = Keeper(api, SYSTEM_NAMESPACE, HOSTS, tmp_path, clock.now)
    keeper.start()
    try:
        until(lambda: keeper.kept.error)
        api.faults.clear()
        until(lambda: keeper.kept.expires and not keeper.kept.error)
    finally:
        keeper.stop()

    assert keeper.file.exists()


class Stopping:
    """The keeper's signal to end: set after some rounds; pauses take no time and are kept."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds
        self.pauses_s: list[float] = []

    def is_set(self) -> bool:
        """As `threading.Event` has it."""
        self._left -= 1
        return self._left < 0

    def set(self) -> None:
        """As `threading.Event` has it."""
        self._left = 0

    def wait(self, timeout: float) -> None:
        """As `threading.Event` has it."""
        self.pauses_s.append(timeout)


class Longest:
    """Draws the longest pause that there may be."""

    def uniform(self, _low: float, high: float) -> float:
        """As `random.Random` has it."""
        return high


def test_rounds_that_fail_are_tried_later_and_later(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to half a minute; after one that succeeded the first pause is short again."""
    fates = iter([False] * 8 + [True, False, False])
    stopping = Stopping(11)
    monkeypatch.setattr(webhook.keeper, "Random", Longest)
    monkeypatch.setattr(keeper, "try_round", lambda: next(fates))
    monkeypatch.setattr(keeper, "_stopping", stopping)
    keeper.wake()
    keeper._run()  # noqa: SLF001 - what its thread runs

    failed = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    pauses = [1.0 + bound_s for bound_s in failed]
    assert stopping.pauses_s == [*pauses, 1.0, 1.5, 2.0]


def test_a_bundle_that_changed_is_news_to_the_watch() -> None:
    """Whatever bytes somebody put there; what is no bundle is not."""

    def record(bundle: bytes, path: str = "/a") -> bytes:
        config = {"caBundle": base64.b64encode(bundle).decode(), "service": {"path": path}}
        registration = {"webhooks": [{"name": "a", "clientConfig": config}]}
        return webhook.keeper._published(registration)  # noqa: SLF001 - what the watch compares

    assert record(b"\xff one") != record(b"\xff two")
    assert record(b"\xff one") == record(b"\xff one", "/b")


def test_stop_before_start_is_nothing(keeper: Keeper) -> None:
    """A server that failed to start can stop all its parts."""
    keeper.stop()
