"""The extender's wiring, certificates and command line."""

import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from extender import app, certificates
from extender.__main__ import main
from extender.settings import ExtenderSettings
from kube import config
from runtime import certs, extender_tls
from tests.reconciler.waiting import until
from tests.support.commands import Commands

NOW = datetime(2026, 11, 20, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("root_logger")


def test_a_process_without_an_api_server_is_not_ready(nowhere: Path) -> None:
    """It reports why, rejects requests, and `stop` ends all of its threads."""
    before = set(threading.enumerate())
    service = app.build(ExtenderSettings(), config.load(nowhere))
    service.start()
    client = service.app.test_client()
    ready, filtered = client.get("/readyz"), client.post("/filter", json={})
    scrape = client.get("/metrics").text
    service.stop()
    until(lambda: set(threading.enumerate()) <= before)

    assert (ready.status_code, filtered.status_code) == (503, 503)
    assert ready.json is not None
    assert ready.json["synced"] is False
    assert ready.json["policy"]["source"] == "default"
    assert "edl_extender_watch_age_seconds" in scrape
    assert "edl_extender_certificate_expiry_timestamp_seconds 0.0" in scrape


def test_a_missing_kubeconfig_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the file, and the exit code is 1."""
    code = main([f"--kubeconfig={tmp_path / 'none'}", "--listen=127.0.0.1:0"])

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 1
    assert line.startswith(f"extender: {tmp_path / 'none'}: no usable API server configuration")


def _names(leaf: x509.Certificate) -> list[str]:
    """What a certificate is good for, in order."""
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _common(name: x509.Name) -> str:
    (attribute,) = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(attribute.value)


def test_certificates_name_both_sides() -> None:
    """The server by all its names, the scheduler as a client of the same CA."""
    files = extender_tls.files("edl-system", ("scheduler.example",), NOW)
    leaf = x509.load_pem_x509_certificate(files["tls.crt"])
    ca = x509.load_pem_x509_certificate(files["ca.crt"])
    client = x509.load_pem_x509_certificate(files["client.crt"])

    assert _names(leaf) == [
        "edl-extender.edl-system.svc",
        "edl-extender.edl-system",
        "127.0.0.1",
        "scheduler.example",
    ]
    subjects = [_common(certificate.subject) for certificate in (ca, leaf, client)]
    assert subjects == ["edl-extender-ca", "edl-extender", "kube-scheduler"]
    assert leaf.issuer == client.issuer == ca.subject
    assert ca.not_valid_after_utc >= leaf.not_valid_after_utc


def test_certificates_live_as_long_as_their_ca() -> None:
    """Nothing renews them, and kube-scheduler goes on without the extender when one has ended."""
    files = extender_tls.files("edl-system", (), NOW)
    ends = {certs.expires(files[name]) for name in ("ca.crt", "tls.crt", "client.crt")}

    assert ends == {NOW + certs.CA_LIFE}


def test_the_end_of_the_certificates_is_known(tmp_path: Path) -> None:
    """The first that ends counts; one that cannot be read has ended, for an alert."""
    certificates.write(tmp_path, extender_tls.files("edl-system", (), NOW))
    later = certs.new_ca("later", NOW + timedelta(days=1))
    (tmp_path / "later.crt").write_bytes(later.cert)
    files = [tmp_path / "later.crt", tmp_path / "tls.crt"]
    (tmp_path / "bad.crt").write_text("no certificate")

    assert certificates.expiry_s(files) == (NOW + certs.CA_LIFE).timestamp()
    assert certificates.expiry_s([*files, tmp_path / "bad.crt"]) == 0.0
    assert certificates.expiry_s([tmp_path / "none.crt"]) == 0.0
    assert certificates.expiry_s([]) == 0.0


def test_each_key_is_of_its_certificate() -> None:
    """A pair that does not match serves nobody."""
    files = extender_tls.files("edl-system", (), NOW)

    for name in ("ca", "tls", "client"):
        assert certs.matches(certs.Pair(files[f"{name}.crt"], files[f"{name}.key"]))


def test_the_command_writes_certificates_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readable by their owner alone."""
    out = tmp_path / "new" / "folder"
    code = main(["certificates", "--out", str(out), "--host", "10.0.0.1"])

    assert code == 0
    assert capsys.readouterr().out == (
        f"Wrote the CA, server and client certificates to {out}. Next, create the Secret:\n"
        "  kubectl -n edl-system create secret generic edl-extender-tls \\\n"
        f"    --from-file={out}/tls.crt --from-file={out}/tls.key \\\n"
        f"    --from-file={out}/ca.crt\n"
        "Then set ca.crt, client.crt and client.key in the extender entries of kube-scheduler's\n"
        "configuration. Keep ca.key outside of the cluster and of repositories: it is needed only for\n"
        "certificates --renew, and its owner can call the extender as kube-scheduler.\n"
    )
    leaf = x509.load_pem_x509_certificate((out / "tls.crt").read_bytes())
    assert _names(leaf)[-1] == "10.0.0.1"
    assert {path.name for path in out.iterdir()} == {
        *("ca.crt", "ca.key", "tls.crt", "tls.key", "client.crt", "client.key")
    }
    assert {path.stat().st_mode & 0o077 for path in out.iterdir()} == {0}


def test_certificates_are_renewed_by_their_ca(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the same names and more; the old and the new of each side trust each other."""
    old, new = tmp_path / "old", tmp_path / "new"
    main(["certificates", "--out", str(old), "--host", "10.0.0.1"])
    code = main(
        ["certificates", "--renew", f"--ca={old}", f"--out={new}", "--host", "scheduler.example"]
    )
    leaf = x509.load_pem_x509_certificate((new / "tls.crt").read_bytes())

    assert code == 0
    text = capsys.readouterr().out
    assert "The extender loads it without a restart." in text
    assert text.endswith("kube-scheduler, and restart kube-scheduler.\n")
    assert _names(leaf)[-2:] == ["10.0.0.1", "scheduler.example"]
    assert (new / "ca.crt").read_bytes() == (old / "ca.crt").read_bytes()
    for name in ("tls", "client"):
        cert, key = (new / f"{name}.crt").read_bytes(), (new / f"{name}.key").read_bytes()
        assert certs.issued_by(cert, (old / "ca.crt").read_bytes())
        assert certs.matches(certs.Pair(cert, key))
        assert cert != (old / f"{name}.crt").read_bytes()
    assert not (new / "ca.key").exists()


def test_a_ca_that_cannot_renew_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its key is elsewhere, or of another CA; nothing is written."""
    main(["certificates", "--out", str(tmp_path / "old")])
    (tmp_path / "old" / "ca.key").write_bytes(certs.new_ca("other", NOW).key)
    renew = ["certificates", "--renew", f"--ca={tmp_path / 'old'}", f"--out={tmp_path / 'new'}"]
    codes = [main(renew)]
    (tmp_path / "old" / "ca.key").unlink()
    codes.append(main(renew))

    first, second = capsys.readouterr().err.splitlines()
    assert codes == [1, 1]
    assert first == "extender: ca.key is not the key of ca.crt"
    assert "ca.key" in second
    assert not (tmp_path / "new").exists()


def test_renewed_certificates_end_with_their_ca() -> None:
    """A CA that ends soon, or is none, issues nothing more."""
    ca = certs.new_ca("edl-extender", NOW)
    later = NOW + timedelta(days=1000)
    files = certificates.renewed(ca, (), "edl-system", later)

    assert {certs.expires(files[name]) for name in ("tls.crt", "client.crt")} == {
        NOW + certs.CA_LIFE
    }
    assert certs.hosts(files["tls.crt"]) == extender_tls.names("edl-system")
    with pytest.raises(
        certificates.CaError, match=r"^ca.crt ends on \d{4}-\d\d-\d\d: create a new CA"
    ):
        certificates.renewed(ca, (), "edl-system", NOW + certs.CA_LIFE - timedelta(days=1))
    with pytest.raises(certificates.CaError, match="not a CA and its key in PEM"):
        certificates.renewed(certs.Pair(b"", b""), (), "edl-system", NOW)


@pytest.mark.parametrize(
    ("flag", "error"),
    [
        ("--renew", "--renew needs --ca, the directory with ca.crt, ca.key and tls.crt"),
        ("--ca=y", "--ca needs --renew: without --renew, a new CA is created"),
    ],
)
def test_renewal_needs_a_ca(flag: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage exits with 2, and the line has the way out."""
    with pytest.raises(SystemExit) as ended:
        main(["certificates", "--out=x", flag])

    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_the_end_of_the_schedulers_certificate_is_known() -> None:
    """As TLS has it; 0 for a caller without one."""
    assert certificates.peer_expiry_s({"notAfter": "Jan  1 00:00:10 1970 GMT"}) == 10.0
    assert certificates.peer_expiry_s({}) == 0.0
    assert certificates.peer_expiry_s(None) == 0.0


def test_certificates_are_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the file; nothing is written beside it."""
    (tmp_path / "tls.key").write_text("mine")
    code = main(["certificates", "--out", str(tmp_path)])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert line == (f"extender: {tmp_path / 'tls.key'} exists already: use another directory")
    assert [path.name for path in tmp_path.iterdir()] == ["tls.key"]


def test_certificates_need_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage exits with 2."""
    with pytest.raises(SystemExit) as ended:
        main(["certificates"])

    assert ended.value.code == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "says"),
    [("--stale-seconds=1", "--stale-seconds is '1'"), ("--colour", "--colour")],
)
def test_a_bad_flag_is_one_line(flag: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors exit with 2."""
    with pytest.raises(SystemExit) as ended:
        main([flag])

    assert ended.value.code == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]


def test_an_address_that_is_taken_is_one_line(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the setting, and the exit code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"--listen=127.0.0.1:{listener.getsockname()[1]}"
        code = main([where, f"--kubeconfig={nowhere}"])

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 1
    assert line.startswith("extender: cannot listen on 127.0.0.1:")


def test_help_says_what_every_flag_means(commands: Commands) -> None:
    """And which environment variable stands for it."""
    done = commands.run(main, "--help")

    assert done.returncode == 0
    assert "--stale-seconds" in done.stdout
    assert "EDL_EXTENDER_TLS_CERT" in done.stdout
