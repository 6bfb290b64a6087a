"""Objects, writes, status and leases."""

import pytest

from kube import errors, request
from kube.api import Api
from kube.request import CONFIGMAPS, JOBS, LEASES, NODES, PRIORITYCLASSES, Resource
from tests.kube.contract.server import ContractFixtures, Object, ask, make_config, make_job


class ObjectContract(ContractFixtures):
    """Contract tests of single objects; every test creates its own."""

    def test_create_answers_the_object_as_stored(self, api: Api, namespace: str) -> None:
        """A creation answers with uid, version, time and kind filled in."""
        created = make_config(api, namespace, "one", a="1")

        assert created["kind"] == "ConfigMap"
        assert created["data"] == {"a": "1"}
        assert {"uid", "resourceVersion", "creationTimestamp"} <= created["metadata"].keys()
        assert created == ask(api, request.get(CONFIGMAPS, namespace, "one"))

    def test_a_dry_run_answers_the_object_and_stores_nothing(
        self, api: Api, namespace: str
    ) -> None:
        """A taken name is refused as in a real creation."""
        body = {"metadata": {"name": "one"}, "data": {"a": "1"}}
        answer = ask(api, request.create(CONFIGMAPS, namespace, body, dry_run=True))

        assert (answer["data"], answer["metadata"]["namespace"]) == ({"a": "1"}, namespace)
        with pytest.raises(errors.NotFound):
            api.send(request.get(CONFIGMAPS, namespace, "one"))
        make_config(api, namespace, "one")
        with pytest.raises(errors.AlreadyExists):
            api.send(request.create(CONFIGMAPS, namespace, body, dry_run=True))

    def test_generated_names_differ(self, api: Api, namespace: str) -> None:
        """With generateName the server appends five characters."""
        body = {"metadata": {"generateName": "some-"}}
        names = {
            ask(api, request.create(CONFIGMAPS, namespace, body))["metadata"]["name"]
            for _ in range(3)
        }

        assert len(names) == 3
        assert {len(name) for name in names} == {len("some-12345")}

    def test_a_nameless_object_is_invalid(self, api: Api, namespace: str) -> None:
        """Neither name nor generateName: 422."""
        with pytest.raises(errors.Invalid):
            api.send(request.create(CONFIGMAPS, namespace, {"metadata": {}}))

    def test_a_taken_name_is_refused(self, api: Api, namespace: str) -> None:
        """The second creation of a name is 409 AlreadyExists, not a Conflict."""
        make_config(api, namespace, "one")

        with pytest.raises(errors.AlreadyExists) as caught:
            make_config(api, namespace, "one")
        assert caught.value.status == 409
        assert caught.value.request.startswith("POST /api/v1/namespaces/")

    def test_a_missing_object_is_not_found(self, api: Api, namespace: str) -> None:
        """Reading, patching and deleting what is not there are all 404."""
        for api_request in (
            request.get(CONFIGMAPS, namespace, "none"),
            request.merge_patch(CONFIGMAPS, namespace, "none", {"data": {}}),
            request.delete(CONFIGMAPS, namespace, "none"),
            request.evict(namespace, "none"),
        ):
            with pytest.raises(errors.NotFound):
                api.send(api_request)

    def test_an_unknown_resource_is_not_found(self, api: Api, namespace: str) -> None:
        """A kind that the server does not have is 404 as well."""
        unknown = Resource("edl.training", "v9", "unicorns", "Unicorn")

        with pytest.raises(errors.NotFound):
            api.send(request.list_page(unknown, namespace))

    def test_cluster_scoped_kinds_have_no_namespace(self, api: Api, namespace: str) -> None:
        """A PriorityClass is made, read and deleted without one."""
        body = {"metadata": {"name": namespace}, "value": -7, "preemptionPolicy": "Never"}
        created = ask(api, request.create(PRIORITYCLASSES, None, body))

        assert created["value"] == -7
        assert "namespace" not in created["metadata"]
        api.send(request.delete(PRIORITYCLASSES, None, namespace))
        assert isinstance(ask(api, request.list_page(NODES))["items"], list)

    def test_replace_over_an_old_version_is_a_conflict(self, api: Api, namespace: str) -> None:
        """A PUT made from a version that was overwritten is refused and changes nothing."""
        old = make_config(api, namespace, "one", a="1")
        api.send(request.replace(CONFIGMAPS, namespace, "one", {**old, "data": {"a": "2"}}))

        with pytest.raises(errors.Conflict) as caught:
            api.send(request.replace(CONFIGMAPS, namespace, "one", {**old, "data": {"a": "3"}}))
        assert caught.value.status == 409
        assert ask(api, request.get(CONFIGMAPS, namespace, "one"))["data"] == {"a": "2"}

    def test_a_write_that_changes_nothing_makes_no_version(self, api: Api, namespace: str) -> None:
        """A PUT of what is there keeps the resource version."""
        created = make_config(api, namespace, "one", a="1")

        same = ask(api, request.replace(CONFIGMAPS, namespace, "one", created))
        assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

    def test_merge_patch_sets_and_removes(self, api: Api, namespace: str) -> None:
        """Null removes a key, the rest is merged."""
        make_config(api, namespace, "one", a="1", b="2")
        patch = {"data": {"a": None, "c": "3"}}

        patched = ask(api, request.merge_patch(CONFIGMAPS, namespace, "one", patch))
        assert patched["data"] == {"b": "2", "c": "3"}

    def test_merge_patch_with_an_old_version_is_a_conflict(self, api: Api, namespace: str) -> None:
        """`metadata.resourceVersion` in a merge patch is an optimistic lock."""
        old = make_config(api, namespace, "one", a="1")
        version = {"resourceVersion": old["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "data": {"a": "2"}}
        api.send(request.merge_patch(CONFIGMAPS, namespace, "one", patch))

        with pytest.raises(errors.Conflict):
            api.send(
                request.merge_patch(CONFIGMAPS, namespace, "one", {**patch, "data": {"a": "3"}})
            )

    def test_json_patch_applies_all_operations(self, api: Api, namespace: str) -> None:
        """Add, replace and remove in one step; a slash in a key is written ~1."""
        make_config(api, namespace, "one", a="1", b="2")
        ops = [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "replace", "path": "/data/a", "value": "9"},
            {"op": "remove", "path": "/data/b"},
            {"op": "add", "path": "/metadata/labels/example.com~1x", "value": "y"},
        ]

        patched = ask(api, request.json_patch(CONFIGMAPS, namespace, "one", ops))
        assert patched["data"] == {"a": "9"}
        assert patched["metadata"]["labels"]["example.com/x"] == "y"

    @pytest.mark.parametrize(
        "op",
        [
            {"op": "test", "path": "/data/a", "value": "other"},
            {"op": "remove", "path": "/data/none"},
            {"op": "add", "path": "/none/below", "value": "1"},
        ],
        ids=["test", "remove", "add"],
    )
    def test_json_patch_that_does_not_apply_is_invalid(
        self, api: Api, namespace: str, op: Object
    ) -> None:
        """A failed `test` or a missing path is 422, and no operation takes effect."""
        make_config(api, namespace, "one", a="1")
        ops = [{"op": "add", "path": "/data/z", "value": "1"}, op]

        with pytest.raises(errors.Invalid) as caught:
            api.send(request.json_patch(CONFIGMAPS, namespace, "one", ops))
        assert caught.value.status == 422
        assert ask(api, request.get(CONFIGMAPS, namespace, "one"))["data"] == {"a": "1"}

    def test_json_patch_replaces_what_is_not_there(self, api: Api, namespace: str) -> None:
        """Contrary to RFC 6902, `replace` sets a missing key, so it does not prove existence."""
        make_config(api, namespace, "one", a="1")
        ops: list[Object] = [{"op": "replace", "path": "/data/none", "value": "1"}]

        patched = ask(api, request.json_patch(CONFIGMAPS, namespace, "one", ops))
        assert patched["data"] == {"a": "1", "none": "1"}

    def test_json_patch_of_an_absent_annotation_may_test_for_null(
        self, api: Api, namespace: str
    ) -> None:
        """`test` with null on a missing key is the only way to express "only if absent"."""
        make_config(api, namespace, "one", a="1")
        ops: list[Object] = [
            {"op": "test", "path": "/data/none", "value": None},
            {"op": "add", "path": "/data/none", "value": "1"},
        ]

        patched = ask(api, request.json_patch(CONFIGMAPS, namespace, "one", ops))
        assert patched["data"]["none"] == "1"
        with pytest.raises(errors.Invalid):
            api.send(request.json_patch(CONFIGMAPS, namespace, "one", ops))

    def test_status_and_spec_are_written_apart(self, api: Api, namespace: str) -> None:
        """A write to /status leaves the spec alone, a write to the object leaves the status."""
        make_job(api, namespace, "one")
        both = {"spec": {"parallelism": 7}, "status": {"active": 3}}

        after = ask(api, request.merge_patch(JOBS, namespace, "one", both, subresource="status"))
        assert (after["spec"]["parallelism"], after["status"]["active"]) == (1, 3)

        both = {"spec": {"parallelism": 5}, "status": {"active": 4}}
        after = ask(api, request.merge_patch(JOBS, namespace, "one", both))
        assert (after["spec"]["parallelism"], after["status"]["active"]) == (5, 3)

    def test_a_status_write_carries_annotations_too(self, api: Api, namespace: str) -> None:
        """One atomic write to a Job's /status changes its status and an annotation."""
        make_job(api, namespace, "one")
        both = {"metadata": {"annotations": {"edl.training/x": "1"}}, "status": {"active": 3}}

        after = ask(api, request.merge_patch(JOBS, namespace, "one", both, subresource="status"))
        assert after["metadata"]["annotations"]["edl.training/x"] == "1"
        assert after["status"]["active"] == 3

    def test_a_managed_job_takes_conditions_of_our_own(self, api: Api, namespace: str) -> None:
        """A type with a domain is kept beside the built-in ones, turns, and changes its reason."""
        make_job(api, namespace, "one")
        stamp = "2026-01-02T03:04:05Z"
        ours = {"type": "edl.training/Waiting", "message": "one line", "lastTransitionTime": stamp}
        suspended = {"type": "Suspended", "status": "False", "lastTransitionTime": stamp}
        stored_conditions = []
        for truth, reason in (("True", "NoRoom"), ("True", "FitsNoNode"), ("False", "Started")):
            conditions = [{**ours, "status": truth, "reason": reason}, suspended]
            body = {"status": {"conditions": conditions}}
            status_patch = request.merge_patch(JOBS, namespace, "one", body, subresource="status")
            stored_conditions.append(
                [
                    (c["type"], c["status"], c.get("reason"))
                    for c in ask(api, status_patch)["status"]["conditions"]
                ]
            )

        assert stored_conditions == [
            [("edl.training/Waiting", "True", "NoRoom"), ("Suspended", "False", None)],
            [("edl.training/Waiting", "True", "FitsNoNode"), ("Suspended", "False", None)],
            [("edl.training/Waiting", "False", "Started"), ("Suspended", "False", None)],
        ]

    def test_a_status_write_from_an_old_version_is_a_conflict(
        self, api: Api, namespace: str
    ) -> None:
        """The optimistic lock holds on /status as well."""
        old = make_job(api, namespace, "one")
        api.send(request.merge_patch(JOBS, namespace, "one", {"spec": {"parallelism": 5}}))

        with pytest.raises(errors.Conflict):
            api.send(request.replace(JOBS, namespace, "one", old, subresource="status"))

    def test_a_lease_is_written_over_its_version_only(self, api: Api, namespace: str) -> None:
        """The second of two writes based on one version is refused."""
        body = {
            "metadata": {"name": "one"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0},
        }
        lease = ask(api, request.create(LEASES, namespace, body))
        renewed = {**lease, "spec": {**lease["spec"], "renewTime": "2026-01-02T03:04:05.000006Z"}}
        stored = ask(api, request.replace(LEASES, namespace, "one", renewed))

        assert stored["spec"]["renewTime"] == "2026-01-02T03:04:05.000006Z"
        with pytest.raises(errors.Conflict):
            api.send(request.replace(LEASES, namespace, "one", renewed))

    def test_a_lease_can_be_without_holder(self, api: Api, namespace: str) -> None:
        """Leaving `holderIdentity` out gives it away."""
        body = {"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": 1}}

        assert "holderIdentity" not in ask(api, request.create(LEASES, namespace, body))["spec"]
