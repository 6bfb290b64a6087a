import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.run import Component, RunDirectory, SupervisorState

ROOT = Path(__file__).parents[3]
STATE = SupervisorState(
    supervisor=1,
    started_s=5.5,
    url="https://127.0.0.1:1",
    kubeconfig="/k",
    kubectl="/b/kubectl",
    version="v1.36.3",
    components=(Component("etcd", 2, 3, None), Component("kwok", 4, 5, 137)),
)
HOLDER = """
import sys, time
from pathlib import Path
from e2e.cluster.run import RunDirectory

place = RunDirectory(Path(sys.argv[1]))
descriptor = place.hold()
print("held", flush=True)
time.sleep(60)
"""


def holder(place: RunDirectory) -> "subprocess.Popen[bytes]":
    """Another process that holds the lock, as a supervisor does."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", HOLDER, str(place.directory)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
    return process


def test_the_state_survives_its_file() -> None:
    """What is written is what is read."""
    assert SupervisorState.from_json(STATE.to_json()) == STATE


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"components": [{}]}', '{"components": []}'])
def test_a_damaged_state_is_no_state(text: str) -> None:
    """Any damage is one kind of error."""
    with pytest.raises(ValueError, match=r".+"):
        SupervisorState.from_json(text)


def test_a_held_lock_means_a_running_cluster(tmp_path: Path) -> None:
    """The state is believed while the supervisor lives, and stopping ends it."""
    place = RunDirectory(tmp_path)
    process = holder(place)
    try:
        assert place.read() is None  # not up yet
        place.write(STATE)
        assert place.read() == STATE
        assert not place.clear_stale()
        assert place.stop()
    finally:
        process.kill()
        process.wait()

    assert not place.is_held
    assert not place.state_file.exists()
    assert not place.stop()


def test_a_state_without_its_supervisor_is_stale(tmp_path: Path) -> None:
    """It is not believed, and can be cleared once."""
    place = RunDirectory(tmp_path)
    process = holder(place)
    place.write(STATE)
    process.kill()
    process.wait()

    assert place.read() is None
    assert place.clear_stale()
    assert not place.clear_stale()


def test_a_damaged_file_names_the_way_out(tmp_path: Path) -> None:
    """One line with the file and the command that helps."""
    place = RunDirectory(tmp_path)
    descriptor = place.hold()
    assert descriptor is not None
    place.state_file.write_text("{")

    with pytest.raises(ClusterError, match=r"state\.json cannot be read .*e2e\.cluster down"):
        place.read()
    os.close(descriptor)


def test_an_unsigned_lock_stops_nobody(tmp_path: Path) -> None:
    """Without the holder's process id there is nobody to send a signal to."""
    place = RunDirectory(tmp_path)
    descriptor = place.hold()
    assert descriptor is not None
    os.ftruncate(descriptor, 0)

    with pytest.raises(ClusterError, match="without its name in it"):
        place.stop()
    os.close(descriptor)


def test_the_supervisors_last_words_are_at_hand(tmp_path: Path) -> None:
    """For the error message of `up`."""
    place = RunDirectory(tmp_path)
    place.log.write_text("first\nno space left\n")

    assert place.problem() == "no space left"
