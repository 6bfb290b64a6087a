"""A snapshot is read as it was written, and nothing else is taken for one."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import ServerSpec, Snapshot
from policy.document.model import Policy
from policy.errors import SnapshotError
from policy.planning import snapshot_file
from policy.planning.plan_input import PlanInput
from policy.planning.planner import plan
from policy.planning.snapshot_file import SnapshotFile, comparable
from tests.support.builders import NOW_S, job, node, service, trainers
from tests.support.inputs import inputs
from tests.support.strategies import CALM

_JOB = replace(job("net", 1, 3), template_json=b'{"secret": "hunter2"}')
_CLUSTER = ClusterState.of(
    Snapshot((node("n0"),), (service("web", 3), *trainers(_JOB, ["n0", "n0"])), (_JOB,))
)
_INPUT = PlanInput.of(_CLUSTER, Policy(), NOW_S)
_TEXT = snapshot_file.dumps(SnapshotFile(_INPUT, _INPUT.plan()))


@CALM
@given(inputs())
def test_what_is_read_is_what_was_written(taken: PlanInput) -> None:
    """With everything in it; and its plan is the plan of the cluster that it was taken of."""
    decided = plan(taken.cluster(), taken.policy, taken.at_s, taken.history)
    file = snapshot_file.loads(snapshot_file.dumps(SnapshotFile(taken, decided)))

    assert file == SnapshotFile(taken, comparable(decided))
    assert comparable(file.input.plan()) == file.decided


def test_the_order_of_records_has_no_meaning() -> None:
    """A state that was built in another order gives the same text."""
    reverse = Snapshot(
        tuple(reversed(_INPUT.snapshot.nodes)),
        tuple(reversed(_INPUT.snapshot.pods)),
        tuple(reversed(_INPUT.snapshot.jobs)),
    )
    again = PlanInput.of(ClusterState.of(reverse), Policy(), NOW_S)
    assert snapshot_file.dumps(SnapshotFile(again, again.plan())) == _TEXT


def test_pod_templates_are_not_in_it() -> None:
    """They may contain passwords, and no decision reads them; whether there is one stays known."""
    secret = b'{"secret": "hunter2"}'
    owner = replace(
        _JOB, servers=ServerSpec(1, {"cpu": 1}, template_json=secret), master_template_json=secret
    )
    taken = PlanInput.of(ClusterState.of(Snapshot((), (), (owner,))), Policy(), NOW_S)
    (kept,) = taken.snapshot.jobs

    assert b"hunter2" not in _TEXT
    assert b"hunter2" not in snapshot_file.dumps(SnapshotFile(taken))
    assert kept.servers == ServerSpec(1, {"cpu": 1}, template_json=b"{}")
    assert kept.master_template_json == b"{}"


@pytest.mark.parametrize("length", [0, 1, len(_TEXT) // 2, len(_TEXT) - 1])
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    """Wherever it was cut, in one line."""
    with pytest.raises(SnapshotError, match=r"^not a whole snapshot: .+$"):
        snapshot_file.loads(_TEXT[:length])


def _changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(_TEXT), **fields}).encode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"[1]", 'not a snapshot: it has no "kind": "edl.training/snapshot"'),
        (b'{"kind": "Policy"}', 'not a snapshot: it has no "kind": "edl.training/snapshot"'),
        (
            _changed(version=2),
            "a snapshot of version 2; this EDL reads version 1: use the EDL that wrote it",
        ),
        (_changed(pods=[{"name": "x"}]), "damaged snapshot: pods.0.namespace: Field required"),
        (_changed(colour="red"), "damaged snapshot: colour: Extra inputs are not permitted"),
        (b"[" * 100_000, "not a whole snapshot: "),
        (b"\xff\xfe", "not a whole snapshot: "),
    ],
)
def test_what_is_no_snapshot_is_refused(text: bytes, complaint: str) -> None:
    """With the reason, in one line of bounded length."""
    with pytest.raises(SnapshotError) as caught:
        snapshot_file.loads(text)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_many_problems_are_counted() -> None:
    """The first three are named."""
    broken = _changed(pods=[{"name": "x"}] * 9)
    with pytest.raises(SnapshotError, match=r"; and \d+ more$"):
        snapshot_file.loads(broken)


@CALM
@given(st.data())
def test_anything_else_is_refused_or_read(data: st.DataObject) -> None:
    """Files of strangers end in a snapshot or in one line, whatever stands in the fields."""
    fields = json.loads(_TEXT)
    path = data.draw(
        st.sampled_from(["at_s", "policy", "nodes", "pods", "jobs", "decided", "history"])
    )
    fields[path] = data.draw(_JSON)
    complaint = ""
    try:
        snapshot_file.loads(json.dumps(fields).encode())
    except SnapshotError as error:
        complaint = str(error)
    assert "\n" not in complaint


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
