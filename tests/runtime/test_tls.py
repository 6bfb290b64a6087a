import logging
import ssl
from pathlib import Path

import pytest

from runtime import tls
from tests.runtime.servers import make_ca, make_leaf


def test_context_is_kept_while_files_are_the_same(tmp_path: Path) -> None:
    """Building one per connection would cost a millisecond each."""
    ca, _ = make_ca(tmp_path)
    certificates = tls.Certificates(make_leaf(ca, tmp_path / "leaf.pem"))

    assert certificates.current() is certificates.current()


def test_unusable_file_leaves_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A half-written or missing file does not end service; it is reported once per change."""
    ca, _ = make_ca(tmp_path)
    file = make_leaf(ca, tmp_path / "leaf.pem")
    certificates = tls.Certificates(file)
    good = certificates.current()
    with caplog.at_level(logging.WARNING):
        file.write_bytes(b"half")
        contexts = [certificates.current(), certificates.current()]
    warned = len(caplog.records)
    file.unlink()
    contexts.append(certificates.current())
    make_leaf(ca, file)

    assert all(context is good for context in contexts)
    assert warned == 1
    assert certificates.current() is not good


def test_key_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    """A Secret mounted as tls.crt and tls.key works too."""
    ca, _ = make_ca(tmp_path)
    both = make_leaf(ca, tmp_path / "leaf.pem").read_bytes()
    cut = both.index(b"-----BEGIN PRIVATE")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(both[:cut])
    key.write_bytes(both[cut:])

    assert tls.Certificates(cert, key).current() is not None
    with pytest.raises(OSError, match=r"PEM|key|SSL"):
        tls.Certificates(cert)


def test_with_a_client_ca_the_handshake_needs_a_certificate(tmp_path: Path) -> None:
    """So no application has to look for one."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")

    assert tls.Certificates(leaf, client_ca=ca_file).current().verify_mode is ssl.CERT_REQUIRED
    assert tls.Certificates(leaf).current().verify_mode is ssl.CERT_NONE
