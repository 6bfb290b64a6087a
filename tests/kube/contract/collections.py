"""Lists and watches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kube import errors, reading, request
from kube.api import Api
from kube.request import (
    CONFIGMAPS,
    JOBS,
    PODS,
)
from tests.kube.contract.server import (
    ContractFixtures,
    ask,
    make_config,
    make_pod,
    run_pod,
    version_of,
    watched,
)


def refuse_errors(events: list[tuple[str, Any]]) -> None:
    """Raises the error of an ERROR event."""
    for kind, obj in events:
        if kind == "ERROR":
            raise errors.from_status(obj)


class CollectionContract(ContractFixtures):
    """Contract tests of lists and watches."""

    def test_pages_make_up_the_whole(self, api: Api, namespace: str) -> None:
        """Pages carry one version, and what is made in between is not in them."""
        for number in range(5):
            make_config(api, namespace, f"c{number}")
        chosen = {"label_selector": "suite=contract"}
        page = ask(api, request.list_page(CONFIGMAPS, namespace, limit=2, **chosen))
        make_config(api, namespace, "c9")
        names, versions = [], set()
        while True:
            names += [item["metadata"]["name"] for item in page["items"]]
            versions.add(page["metadata"]["resourceVersion"])
            token = page["metadata"].get("continue")
            if not token:
                break
            next_page = request.list_page(CONFIGMAPS, namespace, limit=2, token=token, **chosen)
            page = ask(api, next_page)

        assert names == ["c0", "c1", "c2", "c3", "c4"]
        assert len(versions) == 1

    def test_a_group_names_its_kinds(self, api: Api) -> None:
        """Those that it has; a group that does not exist is not found."""
        served = ask(api, request.kinds(JOBS.group, JOBS.version))

        assert "jobs" in {kind["name"] for kind in served["resources"]}
        assert reading.is_served(api, JOBS)
        assert not reading.is_served(api, replace(JOBS, plural="works"))
        assert not reading.is_served(api, replace(JOBS, group="none.training"))

    def test_items_of_a_list_carry_no_kind(self, api: Api, namespace: str) -> None:
        """The list has the kind once."""
        make_config(api, namespace, "one")
        page = ask(api, request.list_page(CONFIGMAPS, namespace))

        assert page["kind"] == "ConfigMapList"
        assert all("kind" not in item for item in page["items"])

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ("metadata.name=a", ["a"]),
            ("metadata.name!=a", ["b"]),
            ("status.phase!=Running", ["b"]),
            ("status.phase=Running,spec.nodeName=", ["a"]),
        ],
    )
    def test_field_selectors(
        self, api: Api, namespace: str, fields: str, expected: list[str]
    ) -> None:
        """Name, phase and node of pods select, also negated and together."""
        make_pod(api, namespace, "a")
        make_pod(api, namespace, "b")
        run_pod(api, namespace, "a")

        page = ask(api, request.list_page(PODS, namespace, field_selector=fields))
        assert [item["metadata"]["name"] for item in page["items"]] == expected

    def test_an_unknown_field_selector_is_refused(self, api: Api, namespace: str) -> None:
        """400, which is our own mistake and no class of its own."""
        with pytest.raises(errors.KubeError) as caught:
            api.send(request.list_page(PODS, namespace, field_selector="spec.wrong=1"))
        assert caught.value.status == 400

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ("x=1", ["a"]),
            ("x==1", ["a"]),
            ("x!=1", ["b", "c"]),
            ("x", ["a", "b"]),
            ("!x", ["c"]),
            ("x,x!=1", ["b"]),
        ],
    )
    def test_label_selectors(
        self, api: Api, namespace: str, labels: str, expected: list[str]
    ) -> None:
        """Equality and existence, alone and together; != includes objects without the label."""
        for name, own in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
            body = {"metadata": {"name": name, "labels": {"suite": "labels", **own}}}
            api.send(request.create(CONFIGMAPS, namespace, body))

        list_request = request.list_page(
            CONFIGMAPS, namespace, label_selector=f"suite=labels,{labels}"
        )
        assert [item["metadata"]["name"] for item in ask(api, list_request)["items"]] == expected

    def test_a_watch_continues_a_list(self, api: Api, namespace: str) -> None:
        """From a list's version on, every later event comes once and in order."""
        make_config(api, namespace, "before")
        version = version_of(api, namespace)
        make_config(api, namespace, "one", a="1")
        api.send(request.merge_patch(CONFIGMAPS, namespace, "one", {"data": {"a": "2"}}))
        make_config(api, namespace, "two")
        api.send(request.delete(CONFIGMAPS, namespace, "one"))

        watch_request = request.watch(CONFIGMAPS, namespace, resource_version=version, timeout_s=25)
        events = watched(api, watch_request, 4)
        assert [(kind, obj["metadata"]["name"]) for kind, obj in events] == [
            ("ADDED", "one"),
            ("MODIFIED", "one"),
            ("ADDED", "two"),
            ("DELETED", "one"),
        ]
        versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
        assert versions == sorted(set(versions))
        assert int(version) < versions[0]
        assert {obj["kind"] for _, obj in events} == {"ConfigMap"}

    def test_an_object_that_leaves_the_selector_is_deleted(self, api: Api, namespace: str) -> None:
        """A watch with a selector sees objects come and go as they match."""
        version = version_of(api, namespace)
        make_config(api, namespace, "one")
        for label in ("yes", None, "yes"):
            patch = {"metadata": {"labels": {"chosen": label}}}
            api.send(request.merge_patch(CONFIGMAPS, namespace, "one", patch))

        watch_request = request.watch(
            CONFIGMAPS,
            namespace,
            resource_version=version,
            timeout_s=25,
            label_selector="chosen=yes",
        )
        assert [kind for kind, _ in watched(api, watch_request, 3)] == ["ADDED", "DELETED", "ADDED"]

    def test_a_watch_ends_after_its_time(self, api: Api, namespace: str) -> None:
        """The server ends it in the regular way: the lines just stop."""
        version = version_of(api, namespace)
        watch_request = request.watch(CONFIGMAPS, namespace, resource_version=version, timeout_s=1)

        assert watched(api, watch_request, 1) == []

    def test_a_watch_from_too_long_ago_is_gone(
        self, api: Api, namespace: str, forget_history: Callable[[], None]
    ) -> None:
        """410, inside the stream or instead of it."""
        version = version_of(api, namespace)
        make_config(api, namespace, "one")
        forget_history()
        watch_request = request.watch(CONFIGMAPS, namespace, resource_version=version, timeout_s=25)

        with pytest.raises(errors.Gone) as caught:
            refuse_errors(watched(api, watch_request, 1))
        assert caught.value.reason == "Expired"

    def test_a_page_token_that_is_no_token_is_refused(self, api: Api, namespace: str) -> None:
        """Nonsense in `continue` fails; it never gives the first page again."""
        make_config(api, namespace, "one")

        with pytest.raises(errors.KubeError) as caught:
            api.send(request.list_page(CONFIGMAPS, namespace, token="x"))  # noqa: S106 - of a page
        assert caught.value.status in (400, 410)
