"""Masters and SDKs of different releases: each works with the last release of the other."""

import os
import secrets
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from edl.local.ports import free_ports
from edl_protocol import master as protocol

from master.protocol import check
from runtime.call_checks import RefusedError
from tests.reconciler.waiting import until

ROOT = Path(__file__).parents[2]
RELEASES = ("b2315ff", "2167d18")
"""Commits that count as the last releases."""
ROOMS = ("master", "runtime", "policy", "kube", "sdk")
RECORDS = 400
_MAX_S = 120.0
TRAIN = f"""
import sys, edl
count, most = 0, int(sys.argv[1])
for batch in edl.batches(edl.from_function("numbers", int, {RECORDS}), batch_size=10, task_records=10):
    count += len(batch)
    if count >= most:
        break
print(count)
"""
MEET = """
import time, edl
with edl.Rounds(29500) as rounds:
    for entered in rounds:
        rounds.ready()
        if len(entered.members) == 2:
            time.sleep(0.5)
            rounds.finish()
            print(entered.rank, [member.trainer for member in entered.members])
        while len(entered.members) < 2 and not rounds.changed:
            time.sleep(0.01)
"""


def test_a_caller_of_a_newer_version_may_send_unknown_fields() -> None:
    """They are ignored, also in parts of a body; from a caller of this version they are mistakes."""
    who = b'"trainer":"a","incarnation":"a-1"'
    raw = b"{" + who + b',"held":[{"task":"t","attempt":0,"mood":"good"}],"colour":"red"}'
    newer = str(protocol.VERSION + 1)
    body = check(protocol.HeartbeatRequest, raw, newer)
    assert [lease.task for lease in body.held] == ["t"]
    for version in ("", "1", str(protocol.VERSION), "x", "-3", "9" * 50, "٣"):
        with pytest.raises(RefusedError, match="no such field"):
            check(protocol.HeartbeatRequest, raw, version)
    with pytest.raises(RefusedError, match="incarnation"):
        check(protocol.HeartbeatRequest, b'{"trainer":"a"}', newer)


class _Job:
    """A master of one tree, and programs of another."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._token = folder, secrets.token_hex(16)
        (self._port,) = free_ports(1)

    @contextmanager
    def master(self, tree: Path) -> Iterator[None]:
        """A master, which is killed at the end."""
        command = [sys.executable, "-m", "master", "--listen", f"127.0.0.1:{self._port}"]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - this interpreter
                [*command, "--journal", str(self._folder / "journal")],
                cwd=tree,
                env={**os.environ, "EDL_JOB": "job", "EDL_TOKEN": self._token},
                stdout=log,
                stderr=log,
            )
        try:
            until(lambda: b"serving" in (self._folder / "log").read_bytes())
            (self._folder / "log").write_bytes(b"")
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(_MAX_S)

    def start(self, tree: Path, trainer: str, program: str, *flags: str) -> subprocess.Popen[str]:
        """Starts a program."""
        about = {"EDL_MASTER": f"http://127.0.0.1:{self._port}", "EDL_TOKEN": self._token}
        path = {"EDL_TRAINER": trainer, "PYTHONPATH": str(tree / "sdk" / "src")}
        return subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-P", "-c", program, *flags],
            cwd=self._folder,
            env={**os.environ, **about, **path},
            stdout=subprocess.PIPE,
            text=True,
        )

    def output(self, tree: Path, trainer: str, program: str, *flags: str) -> str:
        """What a program prints, which must end well."""
        return _output(self.start(tree, trainer, program, *flags))


def _output(process: subprocess.Popen[str]) -> str:
    text = process.communicate(timeout=_MAX_S)[0]
    assert process.returncode == 0
    return text.strip()


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The tree of a release."""
    command = ["git", "-C", str(ROOT), "archive", request.param, *ROOMS]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - git
    if done.returncode:
        pytest.skip(f"the history of this clone lacks {request.param}")
    tree = tmp_path / "release"
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


@pytest.mark.soak
@pytest.mark.parametrize("is_master_old", [True, False])
def test_trainers_and_master_of_different_releases_work_together(
    release: Path, tmp_path: Path, *, is_master_old: bool
) -> None:
    """All records are trained once, and rounds form, whichever of the two is older."""
    job = _Job(tmp_path)
    master, sdk = (release, ROOT) if is_master_old else (ROOT, release)
    with job.master(master):
        assert job.output(sdk, "trainer-0", TRAIN, str(RECORDS * 2)) == str(RECORDS)
        members = [job.start(sdk, f"trainer-{i}", MEET) for i in (1, 2)]
        outputs = sorted(map(_output, members))
        names = outputs[0].partition(" ")[2]
        assert outputs == [f"0 {names}", f"1 {names}"]


@pytest.mark.soak
def test_members_of_different_releases_form_one_round(release: Path, tmp_path: Path) -> None:
    """As while the trainers of a job are replaced one by one."""
    job = _Job(tmp_path)
    with job.master(ROOT):
        members = [job.start(tree, tree.name, MEET) for tree in (release, ROOT)]
        assert sorted(output[0] for output in map(_output, members)) == ["0", "1"]


@pytest.mark.soak
def test_the_journal_of_the_last_release_is_read(release: Path, tmp_path: Path) -> None:
    """What an older master had acknowledged is not trained again."""
    job = _Job(tmp_path)
    with job.master(release):
        begun = int(job.output(release, "trainer-0", TRAIN, str(RECORDS // 2)))
    with job.master(ROOT):
        rest = int(job.output(ROOT, "trainer-1", TRAIN, str(RECORDS * 2)))

    assert begun == RECORDS // 2
    assert RECORDS // 2 <= rest <= RECORDS // 2 + 10  # the newest batch may not be acknowledged
