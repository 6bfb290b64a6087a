from pathlib import Path

import pytest

from policy.document.model import Policy
from policy.priority_classes import EDL_CLASSES
from webhook import dryrun
from webhook.__main__ import main
from webhook.review import AdmissionContext

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: resnet
  namespace: training
  annotations: {edl.training/min-trainers: "2", edl.training/max-trainers: "60"}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: trainer, image: x}]}
"""
PSERVER = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: ps, namespace: training}
spec:
  template:
    metadata: {labels: {edl.training/job: resnet, edl.training/role: pserver}}
    spec: {priorityClassName: high, containers: [{name: pserver, image: x}]}
"""
POLICY = """
apiVersion: v1
kind: ConfigMap
metadata: {name: edl-policy}
data: {policy.yaml: "tears: {}"}
"""


def _lines(text: str) -> tuple[str, ...]:
    return dryrun.report(text, AdmissionContext(Policy(), EDL_CLASSES)).lines


def test_changes_are_shown_as_operations() -> None:
    """Every change to a Job is a line with its path and value."""
    lines = _lines(JOB)

    assert lines[0] == "Job training/resnet: changed:"
    assert '  add /spec/managedBy "edl.training/reconciler"' in lines
    assert "  add /spec/parallelism 2" in lines


def test_pods_of_workloads_are_shown() -> None:
    """The changes of a ReplicaSet's pods are shown, including warnings."""
    lines = _lines(PSERVER)

    assert lines[0] == "pods of ReplicaSet training/ps: changed:"
    assert '  add /spec/priorityClassName "edl-support"' in lines
    assert lines[-1].startswith("  warning: changed priorityClassName from high to edl-support")


def test_refusals_say_why() -> None:
    """A bad Job and a bad policy are refused by field, whatever else is in the file."""
    text = "---".join([JOB.replace('"60"', '"1"'), POLICY, PSERVER])

    report = dryrun.report(text, AdmissionContext(Policy(), EDL_CLASSES))

    assert report.refused
    assert "min must not exceed max" in report.lines[0]
    assert report.lines[1].startswith(
        "ConfigMap edl-system/edl-policy: refused: policy.yaml: tears"
    )


def test_values_without_quotes_are_refused() -> None:
    """As the API server does, which says it in words of its Go types."""
    text = (
        "{kind: Job, metadata: {name: a, annotations:"
        " {edl.training/min-trainers: 2, edl.training/master: true, x: 1}}}"
    )

    assert _lines(text) == (
        'Job default/a: refused: edl.training/min-trainers is not a string: write it in quotes, "2"',
        'Job default/a: refused: edl.training/master is not a string: write it in quotes, "true"',
    )


def test_other_objects_are_said_to_be_none_of_ours() -> None:
    """Each object of the file gets an answer, those of a List too."""
    text = (
        "{kind: List, items: [{kind: Service, metadata: {name: a}}, 1,"
        " {kind: Pod, metadata: {generateName: b-}}]}\n---\n"
    )

    assert _lines(text) == (
        "Service default/a: EDL does not review this kind",
        "Pod default/b-: allowed unchanged",
    )


def test_an_object_without_a_name_has_none() -> None:
    """Its namespace is the default one, as for kubectl."""
    assert _lines("{kind: Pod}") == ("Pod default/(no name): allowed unchanged",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid YAML"),
        ("[]", "has no kind"),
        ("a: 1", "has no kind"),
        ("", "the file contains no objects: write Kubernetes objects"),
        ("---\n# all commented out\n---\n", "the file contains no objects"),
    ],
)
def test_files_without_objects(text: str, message: str) -> None:
    """A file that holds no objects is refused in one line."""
    with pytest.raises(dryrun.FileError, match=message):
        _lines(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: !!int ''", "not valid YAML"),
        ("kind: " + "[" * 5_000, "nested more than 60 levels deep"),
        ("a: &a {x: 1}\nb: {<<: *a}\nkind: Pod", "anchors and aliases"),
        ("kind: Pod\nmetadata: {name: 0x" + "f" * 5_000 + "}", "a number of 5002 characters"),
        ('kind: "\\ud800"', "not valid YAML"),
    ],
)
def test_files_that_harm_their_reader_are_refused(text: str, message: str) -> None:
    """In one line and at once: what multiplies itself, is nested without end, or is not a number that can be shown."""
    with pytest.raises(dryrun.FileError, match=message):
        _lines(text)


@pytest.mark.parametrize(
    "text",
    [
        "{kind: Pod, metadata: [a]}",
        "{kind: Deployment, spec: [1]}",
        "{kind: Deployment, spec: {template: x}}",
        "{kind: Job, metadata: x, spec: {template: [1]}}",
        "{kind: Pod, metadata: {name: a, creationTimestamp: 2001-01-01}}",
    ],
)
def test_parts_of_another_type_count_as_missing(text: str) -> None:
    """As the API server's own check would say it, which comes after admission."""
    (line,) = _lines(text)
    assert line.endswith(": allowed unchanged")


def test_names_in_files_do_nothing_to_the_terminal() -> None:
    """Neither those of objects nor those of kinds."""
    text = '{kind: "\\e[2J", metadata: {name: "\\e]0;x\\a", namespace: "a\\u202e"}}'
    assert _lines(text) == ("?[2J a?/?]0;x?: EDL does not review this kind",)


def test_command_prints_and_tells_by_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 0, or with 1 after a refusal."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(JOB)
    bad.write_text(JOB.replace('"2"', '"x"'))

    codes = [main(["dry-run", str(file)]) for file in (good, bad)]

    out = capsys.readouterr().out
    assert codes == [0, 1]
    assert "Job training/resnet: changed:" in out
    assert "Job training/resnet: refused: edl.training/min-trainers is 'x'" in out


def test_the_command_takes_a_master_for_granted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image of masters is a setting of the cluster, not of the Job."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("{edl.", '{edl.training/master: "true", edl.', 1))

    assert main(["dry-run", str(file)]) == 0
    assert "managedBy" in capsys.readouterr().out


def test_command_goes_by_a_policy_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--policy decides what is capped and protected."""
    file, policy = tmp_path / "ps.yaml", tmp_path / "policy.yaml"
    file.write_text(PSERVER)
    policy.write_text("tiers: {graceSeconds: 3}")

    code = main(["dry-run", str(file), "--policy", str(policy)])

    assert code == 0
    assert "  add /spec/terminationGracePeriodSeconds 3" in capsys.readouterr().out


def test_command_says_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, a binary one and a bad policy are one line each, and code 1."""
    binary, policy, job = tmp_path / "binary", tmp_path / "policy.yaml", tmp_path / "job.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    policy.write_text("tears: {}")
    job.write_text(JOB)

    codes = [
        main(["dry-run", str(tmp_path / "none.yaml")]),
        main(["dry-run", str(binary)]),
        main(["dry-run", str(job), "--policy", str(policy)]),
        main(["--kubeconfig", str(tmp_path / "none")]),
    ]

    lines = capsys.readouterr().err.splitlines()
    assert codes == [1, 1, 1, 1]
    assert len(lines) == 4
    assert all(line.startswith("webhook: ") for line in lines)


def test_a_field_whose_name_is_not_a_string_is_refused() -> None:
    """YAML reads an unquoted `true` as a boolean, also as the name of a field."""
    with pytest.raises(dryrun.FileError, match="the field True is not a string: quote it"):
        _lines("kind: Pod\nmetadata: {name: web}\ntrue: 1\n")
