import base64
from dataclasses import replace
from typing import Any

import pytest

from reconciler import masterobjects
from tests.support.builders import job

JOB = replace(job("net"), account="data")


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ({"clusterIP": "10.96.0.7"}, "http://10.96.0.7:8790"),
        ({"clusterIP": "fd00::7"}, "http://[fd00::7]:8790"),
        ({"clusterIP": "None"}, ""),
        ({"clusterIP": ""}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_service_has_the_address_that_the_cluster_gave_it(spec: Any, url: str) -> None:
    """In brackets where it is one of IPv6; a headless one has none."""
    assert masterobjects.address({"spec": spec}, 8790) == url


@pytest.mark.parametrize(
    ("data", "token"),
    [
        ({"token": "aGVsbG8="}, "hello"),
        ({"token": "aGVs?bG8="}, ""),
        ({"token": "//8="}, ""),
        ({"token": None}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_token_that_cannot_be_read_is_none(data: Any, token: str) -> None:
    """Trainers that guess at it would be turned away."""
    assert masterobjects.token({"data": data}) == token


def test_a_token_is_read_back() -> None:
    """As it was written."""
    made = masterobjects.secret(JOB, "secret")

    assert masterobjects.token(made) == "secret"
    assert base64.b64decode(made["data"]["token"]) == b"secret"
    assert made["type"] == "Opaque"


@pytest.mark.parametrize(
    ("references", "own"),
    [
        ([{"uid": "uid-net"}], True),
        ([{"uid": "other"}, {"uid": "uid-net"}], True),
        ([{"uid": "other"}], False),
        ([{}], False),
        ([], False),
        (None, False),
    ],
)
def test_an_object_is_a_jobs_own_by_its_owner(references: Any, own: bool) -> None:
    """A namesake of an earlier Job, or of a user, is not."""
    assert masterobjects.is_own(JOB, {"metadata": {"ownerReferences": references}}) is own


def test_objects_go_with_the_job() -> None:
    """As its controller's own, so that garbage collection takes them."""
    (owner,) = masterobjects.config_map(JOB)["metadata"]["ownerReferences"]

    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("batch/v1", "Job", "net")
    assert (owner["uid"], owner["controller"]) == ("uid-net", True)


def test_the_master_is_reached_at_its_port() -> None:
    """The Service's is the container's."""
    (port,) = masterobjects.service(JOB)["spec"]["ports"]

    assert (port["port"], port["targetPort"]) == (8790, 8790)


def test_the_account_of_the_jobs_pods_gets_the_role() -> None:
    """In the Job's namespace, and no other."""
    made = masterobjects.role_binding(JOB)

    assert made["subjects"] == [{"kind": "ServiceAccount", "name": "data", "namespace": "ml"}]
    assert (made["roleRef"]["kind"], made["roleRef"]["name"]) == ("Role", "net-master")
