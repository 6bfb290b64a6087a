import base64
from dataclasses import replace
from typing import Any

import pytest

from reconciler.manifests import master as master_manifests
from reconciler.manifests import owned
from tests.support.builders import job

JOB = replace(job("net"), account="data")
NAME = "net-edl-master"
KEY = b"the key of an installation of tests"


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
    assert owned.service_url({"spec": spec}, 8790) == url


def test_a_token_is_derived_again_and_never_read() -> None:
    """256 bits that depend on the installation's key, the very Job and its generation alone."""
    token = master_manifests.token(JOB, KEY)
    others = [
        master_manifests.token(JOB, b"another key"),
        master_manifests.token(replace(JOB, uid="uid-later"), KEY),
        master_manifests.token(replace(JOB, namespace="vision"), KEY),
        master_manifests.token(replace(JOB, token_generation=2), KEY),
    ]

    assert len(base64.urlsafe_b64decode(token + "=")) == 32
    assert token == master_manifests.token(replace(JOB, max_trainers=7), KEY)
    assert len({token, *others}) == 5


def test_the_secret_holds_the_token() -> None:
    """A later generation is another object, so pods of the one before keep theirs."""
    secret = master_manifests.secret(JOB, NAME, KEY)
    renewed = master_manifests.secret(replace(JOB, token_generation=2), NAME, KEY)

    assert base64.b64decode(secret["data"]["token"]).decode() == master_manifests.token(JOB, KEY)
    assert (secret["metadata"]["name"], secret["type"]) == (NAME, "Opaque")
    assert renewed["metadata"]["name"] == f"{NAME}-2"


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
    assert owned.is_own(JOB, {"metadata": {"ownerReferences": references}}) is own


def test_objects_go_with_the_job() -> None:
    """As its controller's own, so that garbage collection takes them."""
    (owner,) = master_manifests.config_map(JOB, NAME)["metadata"]["ownerReferences"]

    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("batch/v1", "Job", "net")
    assert (owner["uid"], owner["controller"]) == ("uid-net", True)


def test_the_master_is_reached_at_its_port() -> None:
    """The Service's is the container's."""
    (port,) = master_manifests.service(JOB, NAME)["spec"]["ports"]

    assert (port["port"], port["targetPort"]) == (8790, 8790)


def test_the_account_of_the_jobs_pods_gets_the_role() -> None:
    """In the Job's namespace, and no other."""
    binding = master_manifests.role_binding(JOB, NAME)

    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "data", "namespace": "ml"}]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "net-edl-master")
