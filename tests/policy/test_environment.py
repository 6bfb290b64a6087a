from typing import Any

import jsonpatch
import pytest

from policy.admission.mutation import pod_patch
from policy.document.model import Policy
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_KEPT_ENVIRONMENT,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MAX,
    ANNOTATION_SERVER_ADDRESSES,
)
from policy.priority_classes import EDL_CLASSES
from tests.webhook.vectors import thing

ADDRESS = "http://10.96.0.7:8790"
SERVERS = "http://10.96.0.8:8791,http://10.96.0.9:8791"


def _variables(**annotations: str) -> dict[str, Any]:
    """The environment of a trainer with these annotations, as admission leaves it."""
    changed = _changed(_trainer(**annotations))
    entries = changed["spec"]["containers"][0].get("env", [])
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def _trainer(**annotations: str) -> dict[str, Any]:
    pod = thing("pod-create-trainer")
    names = {
        "master": ANNOTATION_MASTER_ADDRESS,
        "servers": ANNOTATION_SERVER_ADDRESSES,
        "most": ANNOTATION_MAX,
        "data": ANNOTATION_DATA,
        "epochs": ANNOTATION_EPOCHS,
    }
    pod["metadata"]["annotations"] = {names[name]: text for name, text in annotations.items()}
    return pod


def _changed(pod: dict[str, Any]) -> dict[str, Any]:
    operations = pod_patch(pod, "training", Policy(), EDL_CLASSES).operations
    changed: dict[str, Any] = jsonpatch.JsonPatch(list(operations)).apply(pod)
    return changed


def test_trainers_know_how_others_reach_them() -> None:
    """By the pod's own address, at one port, and how many others there may be."""
    variables = _variables(master=ADDRESS, most="8")

    assert variables["EDL_ADDRESS"] == {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"},
    }
    assert (variables["EDL_EXCHANGE_PORT"], variables["EDL_MAX_TRAINERS"]) == ("8792", "8")
    assert "EDL_PARAMETER_SERVERS" not in variables


def test_trainers_know_their_parameter_servers() -> None:
    """In order of index, where their job has some."""
    assert _variables(master=ADDRESS, servers=SERVERS)["EDL_PARAMETER_SERVERS"] == SERVERS


def test_trainers_know_their_data_and_epochs() -> None:
    """As the Job's annotations say it; nothing is set where they do not."""
    variables = _variables(master=ADDRESS, data="/data/train", epochs="12")

    assert (variables["EDL_DATA"], variables["EDL_EPOCHS"]) == ("/data/train", "12")
    assert not {"EDL_DATA", "EDL_EPOCHS"} & set(_variables(master=ADDRESS))


def test_without_a_master_nothing_is_told() -> None:
    """Whatever else the annotations say."""
    assert _variables(servers=SERVERS, most="8") == {}


@pytest.mark.parametrize(
    ("requested", "told"),
    [(5, "4"), (2, "1"), (1, "0.5"), (29, "9"), (30, None), (10, None), (None, None), (0, None)],
)
def test_a_grace_period_that_the_user_chose_is_the_trainers(
    requested: int | None, told: str | None
) -> None:
    """Less a second; the API server's default and the cap of the policy are no choice."""
    pod = _trainer(master=ADDRESS)
    pod["spec"]["terminationGracePeriodSeconds"] = requested
    once = _changed(pod)
    entries = {entry["name"]: entry.get("value") for entry in once["spec"]["containers"][0]["env"]}
    assert entries.get("EDL_GRACE_S") == told
    assert _changed(once) == once
    pod["spec"]["containers"][0]["env"] = [{"name": "EDL_GRACE_S", "value": "7"}]
    kept = _changed(pod)
    assert ANNOTATION_KEPT_ENVIRONMENT not in kept["metadata"]["annotations"]


def test_a_pod_that_was_told_is_not_told_again() -> None:
    """The reference to the address is written as the API server stores it."""
    once = _changed(_trainer(master=ADDRESS, servers=SERVERS, most="8"))

    assert _changed(once) == once
    assert ANNOTATION_KEPT_ENVIRONMENT not in once["metadata"]["annotations"]


def test_an_address_of_the_users_own_is_kept_and_said() -> None:
    """Some networks have better ones than the pod's."""
    pod = _trainer(master=ADDRESS)
    pod["spec"]["containers"][0]["env"] = [{"name": "EDL_ADDRESS", "value": "10.0.0.1"}]

    assert _changed(pod)["metadata"]["annotations"][ANNOTATION_KEPT_ENVIRONMENT].endswith(
        "/EDL_ADDRESS"
    )
