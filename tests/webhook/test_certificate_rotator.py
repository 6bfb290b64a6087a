import base64
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import webhook.certificate_rotator
from kube import request
from kube.errors import Conflict, Forbidden, KubeError, Unavailable
from lab.fake_api import FakeApi
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, clock
from tests.reconciler.waiting import until
from tests.webhook.cluster import KINDS, read, with_registrations
from webhook import certificates
from webhook.certificate_rotator import CertificateRotator, RotationStatus
from webhook.certificates import REGISTRATION, SECRET, CertificateSet

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
def rotator(api: FakeApi, wall: Wall, tmp_path: Path) -> CertificateRotator:
    """One replica's rotator."""
    return _rotator(api, tmp_path, wall)


def _rotator(api: FakeApi, directory: Path, wall: Wall) -> CertificateRotator:
    return CertificateRotator(api, SYSTEM_NAMESPACE, HOSTS, directory, wall)


def _stored(api: FakeApi) -> CertificateSet:
    cert_set = certificates.read(read(api, request.SECRETS, SECRET, SYSTEM_NAMESPACE))
    assert cert_set is not None
    return cert_set


def _published(api: FakeApi) -> set[bytes]:
    installed = [read(api, kind, REGISTRATION) for kind in KINDS.values()]
    return {bundle for registration in installed for bundle in certificates.bundles(registration)}


def test_the_first_sync_creates_everything(api: FakeApi, rotator: CertificateRotator) -> None:
    """Secret, bundles and file are there after one sync, and only the owner may read the file."""
    rotator.sync()

    cert_set = _stored(api)
    assert _published(api) == {certificates.bundle(cert_set)}
    assert rotator.file.read_bytes() == cert_set.leaf.cert + cert_set.leaf.key
    assert stat.S_IMODE(rotator.file.stat().st_mode) == 0o600
    assert rotator.status.expires == NOW + certs.LEAF_LIFE


def test_a_second_sync_changes_nothing(api: FakeApi, rotator: CertificateRotator) -> None:
    """Looking again writes nothing anywhere."""
    rotator.sync()
    before = [read(api, kind, REGISTRATION) for kind in KINDS.values()]
    file = rotator.file.stat().st_mtime_ns
    rotator.sync()

    assert [read(api, kind, REGISTRATION) for kind in KINDS.values()] == before
    assert rotator.file.stat().st_mtime_ns == file


def test_without_registrations_there_is_a_certificate(wall: Wall, tmp_path: Path) -> None:
    """The configurations may be installed later."""
    api = FakeApi()
    rotator = _rotator(api, tmp_path / "new" / "folder", wall)
    rotator.sync()

    assert rotator.file.exists()
    assert _stored(api).next_ca is None


def test_replicas_that_start_together_agree(api: FakeApi, wall: Wall, tmp_path: Path) -> None:
    """Five at once end with one CA, one leaf, one bundle."""
    rotators = [_rotator(api, tmp_path / str(number), wall) for number in range(5)]
    threads = [threading.Thread(target=rotator.try_sync) for rotator in rotators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rotator in rotators:
        rotator.sync()

    cert_set = _stored(api)
    assert {rotator.file.read_bytes() for rotator in rotators} == {
        cert_set.leaf.cert + cert_set.leaf.key
    }
    assert _published(api) == {certificates.bundle(cert_set)}


def test_overwritten_bundle_is_put_back(api: FakeApi, rotator: CertificateRotator) -> None:
    """A tool that applies the deploy file again takes our bundle away; it comes back."""
    rotator.sync()
    emptied = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    api.send(request.json_patch(request.MUTATINGWEBHOOKS, None, REGISTRATION, [emptied]))
    rotator.sync()

    assert _published(api) == {certificates.bundle(_stored(api))}


def test_damaged_secret_is_made_again(api: FakeApi, rotator: CertificateRotator) -> None:
    """A manual edit is repaired by one sync."""
    rotator.sync()
    damage = {"data": {"tls.key": None}}
    api.send(request.merge_patch(request.SECRETS, SYSTEM_NAMESPACE, SECRET, damage))
    rotator.sync()

    assert rotator.file.read_bytes() == _stored(api).leaf.cert + _stored(api).leaf.key


def test_rotation_of_the_ca(api: FakeApi, rotator: CertificateRotator, wall: Wall) -> None:
    """Old and new are published first; the leaf changes a while after; all in four syncs."""
    rotator.sync()
    old = _stored(api).ca
    wall.now = NOW + certs.CA_LIFE - certificates.CA_RENEW_BEFORE + timedelta(days=1)
    rotator.sync()
    waiting, published = _stored(api), _published(api)
    rotator.sync()
    wall.now += certificates.SETTLE
    rotator.sync()

    switched = _stored(api)
    assert waiting.next_ca is not None
    assert published == {certificates.bundle(waiting)}
    assert waiting.ca == old
    assert switched.ca == waiting.next_ca
    assert rotator.file.read_bytes() == switched.leaf.cert + switched.leaf.key
    assert _published(api) == published


def test_lost_race_reads_again(api: FakeApi, rotator: CertificateRotator) -> None:
    """A write that came second is not an error."""
    api.faults.fail_next(
        Conflict("changed"), 2, match=lambda api_request: api_request.method == "POST"
    )
    rotator.sync()

    assert rotator.file.exists()


def test_endless_race_is_an_error(api: FakeApi, rotator: CertificateRotator) -> None:
    """After some attempts the sync fails, and is retried later."""
    api.faults.fail_next(
        Conflict("changed"), 99, match=lambda api_request: api_request.method == "POST"
    )

    with pytest.raises(Conflict, match="keeps changing"):
        rotator.sync()


def test_forbidden_registration_does_not_stop_serving(
    api: FakeApi, rotator: CertificateRotator
) -> None:
    """Without permission to patch, the certificate is still served, and the error is shown."""
    api.faults.fail_next(
        Forbidden("no"), 99, match=lambda api_request: api_request.method == "PATCH"
    )

    assert not rotator.try_sync()
    assert rotator.file.exists()
    assert "no" in rotator.status.error


def test_a_failed_sync_leaves_the_end_of_the_served_certificate(
    api: FakeApi, rotator: CertificateRotator
) -> None:
    """Alerts on it go on while the API server is away."""
    assert rotator.try_sync()
    api.faults.fail_next(Forbidden("no"), 99)

    assert not rotator.try_sync()
    assert rotator.status == RotationStatus(NOW + certs.LEAF_LIFE, rotator.status.error)
    assert rotator.status.error


def test_lost_answer_of_the_first_write(api: FakeApi, rotator: CertificateRotator) -> None:
    """A Secret whose creation was not confirmed is used."""
    api.faults.lose_answers(1, match=lambda api_request: api_request.method == "POST")

    assert not rotator.try_sync()
    assert rotator.try_sync()
    assert rotator.status.error == ""
    assert rotator.file.read_bytes().startswith(_stored(api).leaf.cert)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotator without the pause between two syncs; the interval of a minute stays."""
    monkeypatch.setattr(webhook.certificate_rotator, "_SETTLE_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_thread_puts_a_bundle_back_at_once(api: FakeApi, tmp_path: Path) -> None:
    """The watch wakes the rotator before the minute is over."""
    rotator = CertificateRotator(api, SYSTEM_NAMESPACE, HOSTS, tmp_path, clock.now)
    rotator.start()
    try:
        until(lambda: b"" not in _published(api))
        bundles = _published(api)
        emptied = {"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}
        api.send(request.json_patch(request.VALIDATINGWEBHOOKS, None, REGISTRATION, [emptied]))
        until(lambda: _published(api) == bundles)
    finally:
        rotator.stop()

    until(lambda: not any(thread.name == "certificates" for thread in threading.enumerate()))


@pytest.mark.usefixtures("at_once")
def test_thread_outlives_an_outage(api: FakeApi, tmp_path: Path) -> None:
    """While the API server is down the rotator retries, with pauses."""
    outage: KubeError = Unavailable("away")
    api.faults.fail_next(outage, 1_000_000)  # until it is back: the watches ask as well
    rotator = CertificateRotator(api, SYSTEM_NAMESPACE, HOSTS, tmp_path, clock.now)
    rotator.start()
    try:
        until(lambda: rotator.status.error)
        api.faults.clear()
        until(lambda: rotator.status.expires and not rotator.status.error)
    finally:
        rotator.stop()

    assert rotator.file.exists()


class Stopping:
    """A stop event that is set after some syncs; pauses take no time and are recorded."""

    def __init__(self, syncs: int) -> None:
        self._remaining = syncs
        self.pauses_s: list[float] = []

    def is_set(self) -> bool:
        """See `threading.Event`."""
        self._remaining -= 1
        return self._remaining < 0

    def set(self) -> None:
        """See `threading.Event`."""
        self._remaining = 0

    def wait(self, timeout: float) -> None:
        """See `threading.Event`."""
        self.pauses_s.append(timeout)


class Longest:
    """A random generator that always returns the longest pause."""

    def random(self) -> float:
        """See `random.Random`."""
        return 1.0


def test_failed_syncs_are_retried_with_growing_pauses(
    rotator: CertificateRotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses grow to half a minute; after a success the first pause is short again."""
    fates = iter([False] * 8 + [True, False, False])
    stopping = Stopping(11)
    monkeypatch.setattr(webhook.certificate_rotator, "Random", Longest)
    monkeypatch.setattr(rotator, "try_sync", lambda: next(fates))
    monkeypatch.setattr(rotator, "_stopping", stopping)
    rotator.wake()
    rotator._run()  # noqa: SLF001 - what its thread runs

    failed = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    pauses = [1.0 + bound_s for bound_s in failed]
    assert stopping.pauses_s == [*pauses, 1.0, 1.5, 2.0]


def test_a_bundle_that_changed_is_news_to_the_watch() -> None:
    """Any change of the bytes counts; other fields do not."""

    def record(bundle: bytes, path: str = "/a") -> bytes:
        config = {"caBundle": base64.b64encode(bundle).decode(), "service": {"path": path}}
        registration = {"webhooks": [{"name": "a", "clientConfig": config}]}
        return webhook.certificate_rotator._published(registration)  # noqa: SLF001 - what the watch compares

    assert record(b"\xff one") != record(b"\xff two")
    assert record(b"\xff one") == record(b"\xff one", "/b")


def test_stop_before_start_is_nothing(rotator: CertificateRotator) -> None:
    """A server that failed to start can stop all its parts."""
    rotator.stop()
