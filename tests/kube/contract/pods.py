"""How pods and other objects leave."""

import pytest

from kube import errors, request
from kube.api import Api
from kube.request import CONFIGMAPS, PODDISRUPTIONBUDGETS, PODS
from tests.kube.contract.server import (
    ContractFixtures,
    ask,
    get_pod,
    make_config,
    make_pod,
    run_pod,
)


class PodContract(ContractFixtures):
    """Contract tests of deletion and eviction."""

    def test_delete_of_another_uid_is_a_conflict(self, api: Api, namespace: str) -> None:
        """A uid that is not the object's protects a namesake made since."""
        config_map = make_config(api, namespace, "one")

        with pytest.raises(errors.Conflict):
            api.send(request.delete(CONFIGMAPS, namespace, "one", uid="another"))
        api.send(request.delete(CONFIGMAPS, namespace, "one", uid=config_map["metadata"]["uid"]))
        with pytest.raises(errors.NotFound):
            api.send(request.get(CONFIGMAPS, namespace, "one"))

    def test_a_pod_made_again_has_another_uid(self, api: Api, namespace: str) -> None:
        """The same name again is another object."""
        first = make_pod(api, namespace, "one")
        api.send(request.delete(PODS, namespace, "one", grace_s=0))

        second = make_pod(api, namespace, "one")
        assert first["metadata"]["uid"] != second["metadata"]["uid"]

    def test_an_unscheduled_pod_goes_at_once(self, api: Api, namespace: str) -> None:
        """A pod without a node is removed immediately, whatever its grace period."""
        make_pod(api, namespace, "one")
        api.send(request.delete(PODS, namespace, "one", grace_s=30))

        with pytest.raises(errors.NotFound):
            api.send(request.get(PODS, namespace, "one"))

    def test_a_finalizer_holds_an_object(self, api: Api, namespace: str) -> None:
        """Deletion marks it; it goes when the last finalizer goes."""
        finalizers = {"metadata": {"finalizers": ["edl.training/hold"]}}
        make_config(api, namespace, "one")
        api.send(request.merge_patch(CONFIGMAPS, namespace, "one", finalizers))
        api.send(request.delete(CONFIGMAPS, namespace, "one"))

        marked = ask(api, request.get(CONFIGMAPS, namespace, "one"))
        assert "deletionTimestamp" in marked["metadata"]

        api.send(
            request.merge_patch(CONFIGMAPS, namespace, "one", {"metadata": {"finalizers": None}})
        )
        with pytest.raises(errors.NotFound):
            api.send(request.get(CONFIGMAPS, namespace, "one"))

    def test_a_budget_refuses_an_eviction(self, api: Api, namespace: str) -> None:
        """A running pod whose budget allows no disruption: 429, and the pod stays."""
        make_pod(api, namespace, "one")
        run_pod(api, namespace, "one")
        budget = {
            "metadata": {"name": "one"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "contract"}}},
        }
        api.send(request.create(PODDISRUPTIONBUDGETS, namespace, budget))

        with pytest.raises(errors.TooManyRequests) as caught:
            api.send(request.evict(namespace, "one"))
        assert caught.value.status == 429
        assert "deletionTimestamp" not in get_pod(api, namespace, "one")["metadata"]

    def test_an_eviction_without_budget_removes_the_pod(self, api: Api, namespace: str) -> None:
        """Without a budget the pod is removed."""
        pod = make_pod(api, namespace, "one")
        api.send(request.evict(namespace, "one", uid=pod["metadata"]["uid"], grace_s=0))

        with pytest.raises(errors.NotFound):
            api.send(request.get(PODS, namespace, "one"))

    def test_an_eviction_marks_the_pod_as_disrupted(self, api: Api, namespace: str) -> None:
        """The condition DisruptionTarget is on the pod when watchers see it leave."""
        created = make_pod(api, namespace, "one")
        hold = {"metadata": {"finalizers": ["edl.training/hold"]}}
        api.send(request.merge_patch(PODS, namespace, "one", hold))
        api.send(request.evict(namespace, "one", uid=created["metadata"]["uid"]))

        pod = get_pod(api, namespace, "one")
        assert "deletionTimestamp" in pod["metadata"]
        assert ("DisruptionTarget", "True") in [
            (c["type"], c["status"]) for c in pod["status"]["conditions"]
        ]
        api.send(request.merge_patch(PODS, namespace, "one", {"metadata": {"finalizers": None}}))

    def test_an_eviction_of_another_uid_is_a_conflict(self, api: Api, namespace: str) -> None:
        """The uid precondition holds for evictions, too."""
        make_pod(api, namespace, "one")

        with pytest.raises(errors.Conflict):
            api.send(request.evict(namespace, "one", uid="another"))
        assert get_pod(api, namespace, "one")["metadata"]["name"] == "one"
