import yaml

from e2e.cluster import stages
from e2e.cluster.nodes import node


def test_the_document_is_what_kwok_reads() -> None:
    """Options first, then one Stage object per stage, each with selector and steps."""
    options, *documents = yaml.safe_load_all(stages.document())

    assert options["kind"] == "KwokConfiguration"
    assert {document["kind"] for document in documents} == {"Stage"}
    assert [document["metadata"]["name"] for document in documents] == [
        "node-ready",
        "pod-run",
        "pod-succeed",
        "pod-fail",
        "pod-stop",
        "pod-remove",
    ]
    assert all(
        {"resourceRef", "selector", "steps"} <= set(document["spec"]) for document in documents
    )


def test_the_default_stop_time_can_be_set() -> None:
    """It is where SIGTERM is played; what selects the stages does not change."""
    usual = {stage["metadata"]["name"]: stage for stage in stages.stages()}
    slow = {stage["metadata"]["name"]: stage for stage in stages.stages(stop_time_ms=7000)}
    delay = slow["pod-stop"]["spec"]["delay"]["durationFrom"]["cel"]["expression"]

    assert '"7000ms"' in delay
    assert "DEFAULT_STOP_TIME" not in stages.document()
    assert [
        name for name in usual if usual[name]["spec"]["selector"] != slow[name]["spec"]["selector"]
    ] == []
    assert usual["pod-run"] == slow["pod-run"]


def test_every_patch_names_the_version_it_was_made_for() -> None:
    """A stage that is played twice must not undo what happened in between."""
    patches = [
        step["patch"]["template"]
        for stage in stages.stages()
        for step in stage["spec"]["steps"]
        if "patch" in step
    ]

    assert len(patches) == 5
    assert all("resourceVersion: {{ .metadata.resourceVersion" in patch for patch in patches)


def test_kwok_finds_our_nodes() -> None:
    """The selector in its options fits the label that `node` sets."""
    labels = node("n")["metadata"]["labels"]
    key, _, value = stages.options()["options"]["manageNodesWithLabelSelector"].partition("=")

    assert labels[key] == value


def test_nodes_have_what_they_are_asked_to_have() -> None:
    """Capacity and allocatable agree, extended resources and labels included."""
    manifest = node("n", cpu="8", pods=20, labels={"zone": "a"}, extended={"nvidia.com/gpu": "4"})

    assert manifest["status"]["allocatable"] == {
        "cpu": "8",
        "memory": "96Gi",
        "pods": "20",
        "nvidia.com/gpu": "4",
    }
    assert manifest["status"]["capacity"] == manifest["status"]["allocatable"]
    assert manifest["metadata"]["labels"]["zone"] == "a"
    assert manifest["metadata"]["labels"]["kubernetes.io/hostname"] == "n"
