"""The fake beyond the contract: fault injection, and pods on nodes."""

from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import errors, request
from kube.request import CONFIGMAPS, PODDISRUPTIONBUDGETS, PODS, Request, Resource
from lab.fake_api import FakeApi
from lab.fake_api.patches import merged, patched
from lab.fake_api.selectors import matches


@pytest.fixture
def api() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


def add_pod(api: FakeApi, name: str = "p", *, finalizers: tuple[str, ...] = ()) -> Any:
    """A pod on a node, running."""
    metadata = {"name": name, "labels": {"app": "x"}, "finalizers": list(finalizers)}
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 20}
    api.send(request.create(PODS, "n", {"metadata": metadata, "spec": spec}))
    status = {"status": {"phase": "Running"}}
    return ask(api, request.merge_patch(PODS, "n", name, status, subresource="status"))


def ask(api: FakeApi, api_request: Request) -> Any:
    """The answer, decoded."""
    return orjson.loads(api.send(api_request))


def is_gone(api: FakeApi, name: str = "p") -> bool:
    """Whether a pod no longer exists."""
    try:
        api.send(request.get(PODS, "n", name))
    except errors.NotFound:
        return True
    return False


def test_a_pod_on_a_node_stays_until_its_kubelet_is_done(api: FakeApi) -> None:
    """Deletion marks it; only a deletion without grace, as the kubelet sends, removes it."""
    add_pod(api)
    marked = ask(api, request.delete(PODS, "n", "p"))
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 20
    longer = ask(api, request.delete(PODS, "n", "p", grace_s=60))
    assert longer == marked
    shorter = ask(api, request.delete(PODS, "n", "p", grace_s=5))
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5

    api.send(request.delete(PODS, "n", "p", grace_s=0))
    assert is_gone(api)


def test_a_negative_grace_period_is_one_second() -> None:
    """As upstream (registry/rest `CheckGracefulDelete`): the pod stays until its kubelet has ended it."""
    api = FakeApi()
    spec = {"nodeName": "n0", "terminationGracePeriodSeconds": -5}
    ask(api, request.create(PODS, "n", {"metadata": {"name": "p"}, "spec": spec}))

    deleted = ask(api, request.delete(PODS, "n", "p"))

    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_finalizer_outlives_the_kubelet(api: FakeApi) -> None:
    """The pod also waits for the kubelet: it is removed when both are done."""
    nothing = {"metadata": {"finalizers": None}}
    add_pod(api, "a", finalizers=("x/y",))
    api.send(request.delete(PODS, "n", "a", grace_s=0))
    assert not is_gone(api, "a")
    api.send(request.merge_patch(PODS, "n", "a", nothing))
    assert is_gone(api, "a")

    add_pod(api, "b", finalizers=("x/y",))
    api.send(request.delete(PODS, "n", "b"))
    api.send(request.merge_patch(PODS, "n", "b", nothing))
    assert not is_gone(api, "b")


def add_budget(api: FakeApi, name: str, allowed: int, selector: dict[str, Any]) -> None:
    """A budget that allows some disruptions; the fake has no controller that would count."""
    body = {"metadata": {"name": name}, "spec": {"selector": selector}}
    api.send(request.create(PODDISRUPTIONBUDGETS, "n", body))
    status = {"status": {"disruptionsAllowed": allowed}}
    api.send(request.merge_patch(PODDISRUPTIONBUDGETS, "n", name, status, subresource="status"))


def test_a_budget_is_used_up(api: FakeApi) -> None:
    """Each eviction takes one; then they are refused, while ended pods may always go."""
    add_budget(api, "b", 1, {"matchLabels": {"app": "x"}})
    add_pod(api, "p1")
    add_pod(api, "p2")
    api.send(request.evict("n", "p1"))
    with pytest.raises(errors.TooManyRequests):
        api.send(request.evict("n", "p2"))
    ended = {"status": {"phase": "Failed"}}
    api.send(request.merge_patch(PODS, "n", "p2", ended, subresource="status"))
    api.send(request.evict("n", "p2"))

    assert is_gone(api, "p2")
    assert "deletionTimestamp" in ask(api, request.get(PODS, "n", "p1"))["metadata"]


def test_two_budgets_over_one_pod_are_an_error(api: FakeApi) -> None:
    """500, as upstream."""
    add_pod(api)
    add_budget(api, "a", 1, {})
    add_budget(api, "b", 1, {"matchLabels": {"app": "x"}})

    with pytest.raises(errors.Unavailable, match="more than one"):
        api.send(request.evict("n", "p"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_label_selectors_of_objects(selector: dict[str, Any] | None, expected: bool) -> None:
    """metav1 LabelSelector against the labels a=1."""
    assert matches({"a": "1"}, selector) is expected


def test_planned_failures_happen_once_each(api: FakeApi) -> None:
    """Refused before they have an effect, and only where they match."""
    api.faults.fail_next(
        errors.Forbidden("no", status=403), count=2, match=lambda r: r.method == "POST"
    )
    body = {"metadata": {"name": "a"}}
    api.send(request.list_page(CONFIGMAPS))
    for _ in range(2):
        with pytest.raises(errors.Forbidden):
            api.send(request.create(CONFIGMAPS, "n", body))
    api.send(request.create(CONFIGMAPS, "n", body))


def test_a_lost_answer_leaves_its_effect(api: FakeApi) -> None:
    """The write happened; its sender does not know."""
    api.faults.lose_answers()
    with pytest.raises(errors.Unavailable):
        api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "a"}}))

    assert ask(api, request.get(CONFIGMAPS, "n", "a"))["metadata"]["name"] == "a"


def test_plans_can_be_dropped(api: FakeApi) -> None:
    """After `clear` there are no more faults."""
    api.faults.fail_next(errors.Unavailable("down"), count=9)
    api.faults.clear()

    assert ask(api, request.list_page(CONFIGMAPS))["items"] == []


def test_a_watch_can_be_ended_after_what_there_is(api: FakeApi) -> None:
    """The regular end of a watch loses nothing."""
    watch_request = request.watch(CONFIGMAPS, resource_version="", timeout_s=100)
    api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "before"}}))
    with api.stream(watch_request) as stream:
        api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "a"}}))
        api.end_watches()
        names = [orjson.loads(line)["object"]["metadata"]["name"] for line in stream]

    assert names == ["before", "a"]
    assert api.watches == 0


def test_a_watch_from_nonsense_is_refused(api: FakeApi) -> None:
    """400: the version has to be one."""
    watch_request = request.watch(CONFIGMAPS, resource_version="x", timeout_s=1)

    with pytest.raises(errors.KubeError, match="resourceVersion"), api.stream(watch_request):
        pass


def test_a_short_memory_forgets_the_oldest() -> None:
    """A watch from a version before the history gets 410 inside its stream."""
    api = FakeApi(history=2)
    version = ask(api, request.list_page(CONFIGMAPS))["metadata"]["resourceVersion"]
    for name in "abc":
        api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": name}}))
    kinds = []
    for start in (version, str(int(version) + 1)):
        watch_request = request.watch(CONFIGMAPS, resource_version=start, timeout_s=0)
        with api.stream(watch_request) as stream:
            kinds.append([orjson.loads(line)["type"] for line in stream])

    assert kinds == [["ERROR"], ["ADDED", "ADDED"]]


def test_old_page_tokens_are_forgotten(api: FakeApi) -> None:
    """Compaction drops them, and so do a hundred newer ones."""
    for name in "ab":
        api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": name}}))
    token = ask(api, request.list_page(CONFIGMAPS, limit=1))["metadata"]["continue"]
    for _ in range(100):
        api.send(request.list_page(CONFIGMAPS, limit=1))

    with pytest.raises(errors.Gone):
        api.send(request.list_page(CONFIGMAPS, token=token))


def test_other_kinds_can_be_served() -> None:
    """A custom resource is one more entry; its names and statuses work like the others'."""
    kind = Resource("edl.training", "v1", "trainingjobs", "TrainingJob")
    api = FakeApi(resources=(kind,))
    created = ask(api, request.create(kind, "n", {"metadata": {"name": "a"}, "spec": {"x": 1}}))

    assert created["apiVersion"] == "edl.training/v1"
    with pytest.raises(errors.NotFound):
        api.send(request.list_page(PODS, "n"))
    with pytest.raises(errors.NotFound):
        api.send(request.merge_patch(kind, "n", "a", {}, subresource="scale"))


def test_a_strategic_patch_is_not_understood(api: FakeApi) -> None:
    """415: EDL uses the two patches that mean the same for every kind."""
    api.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "a"}}))
    path = "/api/v1/namespaces/n/configmaps/a"
    content_type = "application/strategic-merge-patch+json"

    with pytest.raises(errors.KubeError) as caught:
        api.send(Request("PATCH", path, body=b"{}", content_type=content_type))
    assert caught.value.status == 415


JSON = st.recursive(
    st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab~/"), inner),
    max_leaves=6,
)
POINTER = st.lists(st.sampled_from(["a", "b", "~0", "~1", "0", "1", "2", "-"]), max_size=3).map(
    lambda keys: "".join(f"/{key}" for key in keys)
)
OPERATION = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "copy", "move", "test"]),
        "path": POINTER,
        "from": POINTER,
        "value": JSON,
    }
)


@settings(deadline=None)
@given(JSON, st.lists(OPERATION, max_size=3))
def test_patches_mean_what_another_reader_says(document: Any, operations: list[Any]) -> None:
    """RFC 6902 as the jsonpatch library reads it; where it refuses, so do we."""
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        return
    if any(not op[{"remove": "path", "move": "from"}.get(op["op"], "op")] for op in operations):
        return  # it takes the whole document away; a server refuses to remove an object like that

    assert patched(document, operations) == expected


@pytest.mark.parametrize(
    "op",
    [
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/l/5"},
        {"op": "move", "from": "/none", "path": "/n"},
        {"op": "test", "path": "/l/5", "value": 1},
        {"op": "test", "path": "", "value": 1},
    ],
)
def test_operations_that_do_not_apply_are_invalid(op: dict[str, Any]) -> None:
    """422, and the document stays as it was."""
    document = {"n": 1, "l": [1, 2]}

    with pytest.raises(errors.Invalid):
        patched(document, [op])
    assert document == {"n": 1, "l": [1, 2]}


def test_values_are_moved_and_copied() -> None:
    """A copy is one: the original can change without it."""
    ops: list[dict[str, Any]] = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/x", "value": 2},
        {"op": "move", "from": "/b", "path": "/c"},
    ]

    assert patched({"a": {"y": 1}}, ops) == {"a": {"x": 2, "y": 1}, "c": {"y": 1}}


def test_an_unknown_operation_is_refused() -> None:
    """400: the patch is invalid."""
    with pytest.raises(errors.KubeError) as caught:
        patched({}, [{"op": "spin", "path": "/a"}])
    assert caught.value.status == 400


def test_merge_patches_follow_the_rfc() -> None:
    """Cases of RFC 7386, appendix A."""
    assert merged({"a": "b"}, {"a": None}) == {}
    assert merged({"a": [1]}, {"a": [2]}) == {"a": [2]}
    assert merged({"e": None}, {"a": 1}) == {"e": None, "a": 1}
    assert merged([1], {"a": {"b": None}}) == {"a": {}}
    assert merged({"a": 1}, ["c"]) == ["c"]


def test_add_works_at_every_depth() -> None:
    """`add` inserts into lists, appends with "-", and replaces the document with an empty path."""
    ops: list[dict[str, Any]] = [
        {"op": "add", "path": "/l/0", "value": 0},
        {"op": "add", "path": "/l/-", "value": 9},
        {"op": "add", "path": "/l/3", "value": 10},
    ]

    assert patched({"l": [1]}, ops) == {"l": [0, 1, 9, 10]}
    assert patched({"a": 1}, [{"op": "add", "path": "", "value": {}}]) == {}


def test_replace_works_at_every_depth() -> None:
    """`replace` needs an existing list element, but sets any key of an object."""
    assert patched({"l": [1, 2]}, [{"op": "replace", "path": "/l/0", "value": 9}]) == {"l": [9, 2]}
    assert patched({"a": 1}, [{"op": "replace", "path": "", "value": [1]}]) == [1]
    with pytest.raises(errors.Invalid):
        patched({"l": [1]}, [{"op": "replace", "path": "/l/1", "value": 9}])
